"""``strata container``: programs in images, on this machine, by whatever runtime; and the images that are here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session, pass_session
from strata.cli.times import when
from strata.core.errors import BadRequest

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.jobs.containers.cache import Cache, Image

IMAGES = (
    ls.plain("reference"),
    ls.Field("digest", lambda item: item["digest"].removeprefix("sha256:")[:12]),
    ls.Field("size", lambda item: f"{item['bytes'] / 1e6:.0f} MB", key=lambda item: item["bytes"], right=True),
    ls.number("files", shown=False),
    ls.Field("wanted", lambda item: when(item["used"]), key=lambda item: -item["used"]),
    ls.plain("root", shown=False),
)
RUNTIMES = (
    ls.plain("name"),
    ls.Field("here", lambda item: "yes" if item["here"] else "no"),
    ls.Field("image", lambda item: "unpacked here" if item["image"] == "folder" else "fetches its own"),
    ls.plain("user"),
    ls.Field("writable", lambda item: "no" if item["writable"] else "yes"),
    ls.Field("homes", lambda item: " ".join(item["homes"])),
    ls.Field("own pids", lambda item: "yes" if item["own_pids"] else "no"),
    ls.Field("hides devices", lambda item: "yes" if item["hides_devices"] else "no"),
    ls.Field("makes places", lambda item: "yes" if item["makes_places"] else "no"),
)
_cache = click.option(
    "--cache",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where images are unpacked. Default: STRATA_CONTAINERS, or the user's cache.",
)


@click.group("container")
def container() -> None:
    """Run programs in container images here, and look after those images."""


@container.command("run")
@click.argument("image")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--runtime", default="native", show_default=True, help="Container runtime; 'strata container runtimes' lists them."
)
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="SRC[:DST][:ro]",
    help="Folder or file of this machine to show in the container.",
)
@click.option("--device", "devices", multiple=True, metavar="NAME", help="nvidia.com/gpu=0, all, or given (by Slurm).")
@click.option(
    "--env", "env", multiple=True, metavar="NAME=VALUE", help="Set this environment variable in the container."
)
@click.option("--clear-env", is_flag=True, help="Do not pass on this environment.")
@click.option("--workdir", default="", help="Where the program starts. Default: where the image says.")
@click.option(
    "--home",
    type=click.Choice(["none", "user", "tmp"]),
    default="none",
    show_default=True,
    help="Home folder in the container.",
)
@click.option("--writable", is_flag=True, help="The image can be written to; what is written is gone afterwards.")
@click.option("--own-pids", is_flag=True, help="See no processes but its own.")
@click.option("--node-tmp", is_flag=True, help="/tmp and /dev/shm are the node's: ranks of MPI share memory there.")
@click.option("--entrypoint", is_flag=True, help="Pass WORDS to the image's own program (its entrypoint).")
@click.option("--show", is_flag=True, help="Print the command instead of running it.")
@_cache
@pass_session
def run(
    session: Session,
    /,
    image: str,
    words: tuple[str, ...],
    binds: tuple[str, ...],
    env: tuple[str, ...],
    folder: Path | None,
    show: bool,
    **asked: object,
) -> None:
    """Run a program in an image, as yourself.

    IMAGE is NAME:TAG of Strata's repository, docker://HOST/NAME:TAG, oci:FOLDER, or the digest of one that is here.

    \b
    Example: strata container run debian:12 --bind /scratch --device nvidia.com/gpu=0 -- python3 train.py
    """
    import msgspec

    from strata.core.input.forms import in_words
    from strata.core.input.yamltree import told as told_by
    from strata.jobs.containers.execution import execute
    from strata.jobs.containers.records import Container

    told = {
        **asked,
        "image": image,
        "binds": [bind_of(word) for word in binds],
        "env": dict(variable_of(word) for word in env),
    }
    try:
        wanted = msgspec.convert(told, Container)
    except msgspec.ValidationError as error:
        said, path = told_by(error)
        raise BadRequest(in_words(said, Container, path), where=path or "container") from None
    execute(wanted, words, opened_cache(folder), lambda cache: bring_image(session, cache, image), show=show)


@container.command("pull")
@click.argument("image")
@_cache
@ls.json_option
def pull(session: Session, image: str, folder: Path | None, as_json: bool) -> None:
    """Fetch and unpack an image on this machine, before jobs need it.

    \b
    Example: strata container pull debian:12
    """
    import msgspec

    found = bring_image(session, opened_cache(folder), image)
    session.out.answer(as_json, msgspec.to_builtins(found), f"{image} is {found.digest} at {found.root}")


@container.command("default")
@click.argument("image")
@click.option("--name", default="", help="Name that jobs can ask for it by. Default: its NAME:TAG.")
@click.option(
    "--opt-out",
    metavar="yes|no|GROUP,...",
    help="Who may run jobs without an image. Default: unchanged; no, if it was never set.",
)
@click.option(
    "--home",
    type=click.Choice(["none", "user", "tmp"]),
    help="Home folder in the container. Default: unchanged; none, if it was never set.",
)
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="SRC[:DST][:ro]",
    help="Folder to show in the container; replaces all earlier ones. Default: unchanged.",
)
@click.option("--policy", type=click.Path(dir_okay=False, path_type=Path), help="Write this file.")
@click.option(
    "--site",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A layer of the site's repository: write the file there, and an overlay that brings it to nodes.",
)
@click.option("--dry-run", is_flag=True, help="Only show the file.")
@_cache
@ls.json_option
def default(
    session: Session,
    image: str,
    name: str,
    opt_out: str | None,
    home: str | None,
    binds: tuple[str, ...],
    policy: Path | None,
    site: Path | None,
    dry_run: bool,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Have plain srun, sbatch and qsub run jobs in IMAGE, from the next job on.

    It is unpacked into the folder (--cache) that login nodes and nodes see, and named in the file that Slurm's plugin
    and Grid Engine's starter read (/etc/strata/containers.conf, unless --policy or --site says otherwise). Images that
    were named before stay; the last default is called previous. Jobs that wait or run keep what they were given.

    \b
    Example: strata container default site:7 --cache /cluster/images --opt-out staff
             strata container default site:7 --cache /cluster/images --site mysite/site
    """
    import msgspec

    from strata.jobs.containers import policy as file

    if policy is not None and site is not None:
        raise click.UsageError("give --policy or --site")
    if folder is None and "STRATA_CONTAINERS" not in os.environ:
        raise click.UsageError("give --cache, a folder that nodes see too: your own cache is on this machine only")
    if not name and image.startswith("oci:"):
        raise click.UsageError("give --name: the name that jobs ask for it by")
    cache = opened_cache(folder)
    found = bring_image(session, cache, image)
    place = site / "files" / file.FILE if site else policy or Path(file.PLACE)
    roots = Path(found.root).parents[1]
    now = file.parse(place.read_text(encoding="utf-8"), str(place)) if place.exists() else None
    if now is None or now.images != str(roots):
        if now is not None and (now.default or now.named):
            hint = f"unpack there: --cache {Path(now.images).parent}; or begin a new file"
            raise BadRequest(f"its images are below {now.images}, not {roots}", where=str(place), hint=hint)
        now = file.Policy(images=str(roots))
    said = {
        "opt_out": opt_out if opt_out is None else file.group_numbers(opt_out),
        "home": home,
        "binds": binds or None,
    }
    then = msgspec.structs.replace(now, **{field: value for field, value in said.items() if value is not None})
    then = then.promoted(f"{Path(found.root).parent.name}/root", name or image.rpartition("/")[2])
    if dry_run:
        session.out.answer(as_json, {"file": str(place), "text": then.text(), "changed": []}, then.text().rstrip())
        return
    for root in now.roots:  # jobs may still be given what is named no more: it stays for as long as if wanted now
        if (before := cache.find(f"sha256:{root.partition('/')[0]}")) is not None:
            cache.want(before)
    cache.keep(str(place.absolute()), (f"sha256:{root.partition('/')[0]}" for root in then.roots))
    files = {place: then.text(), **({site / "containers.yaml": file.OVERLAY} if site else {})}
    fresh = [str(path) for path, text in files.items() if file.written(path, text)]
    told = f"jobs run in {image} ({found.digest[:19]}) from the next one on: {place}"
    told += "\ncommit it, and Strata brings it to nodes" if site else ""
    session.out.answer(as_json, {"file": str(place), "text": then.text(), "changed": fresh}, told)


@container.command("list")
@_cache
@ls.listing(IMAGES)
def list_(session: Session, folder: Path | None, view: ls.Listing) -> None:
    """List the images that are unpacked on this machine.

    \b
    Example: strata container list
    """
    import msgspec

    ls.show(session, IMAGES, [msgspec.to_builtins(image) for image in opened_cache(folder).all()], view)


@container.command("gc")
@click.option(
    "--keep",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Keep images that were used in this many days.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@_cache
@ls.json_option
def gc(session: Session, keep: float, dry_run: bool, folder: Path | None, as_json: bool) -> None:
    """Remove images that have not been used for a while and that no container runs.

    \b
    Example: strata container gc --keep 7
    """
    gone = opened_cache(folder).gc(keep=keep * 86400, dry_run=dry_run)
    size = sum(image.bytes for image in gone)
    told = {"images": [image.reference for image in gone], "bytes": size, "dry_run": dry_run}
    said = "would go" if dry_run else "removed"
    session.out.answer(as_json, told, f"{len(gone)} images, {size / 1e6:.0f} MB {said}")


@container.command("runtimes")
@ls.listing(RUNTIMES)
def runtimes(session: Session, view: ls.Listing) -> None:
    """List the container runtimes: what each can do, and whether it is on this machine.

    \b
    Example: strata container runtimes
    """
    from strata.core.errors import Unavailable
    from strata.jobs.containers import runtimes as known

    rows: list[Json] = []
    for one in known.RUNTIMES.values():
        try:
            here = bool(known.require(one))
        except Unavailable:
            here = False
        rows.append({"name": one.name, "here": here, **one.abilities._asdict()})
    ls.show(session, RUNTIMES, rows, view)


def variable_of(word: str) -> tuple[str, str]:
    """``NAME=VALUE``, parted."""
    name, equals, value = word.partition("=")
    if not equals:
        raise BadRequest("a variable is NAME=VALUE", where=f"--env {word[:80]!r}")
    return name, value


def bind_of(word: str) -> dict[str, object]:
    """``SRC[:DST][:ro]``, parted."""
    source, _, rest = word.partition(":")
    target, _, mode = rest.partition(":")
    if target == "ro" and not mode:
        target, mode = "", "ro"
    return {"source": source, "target": target, "read_only": mode == "ro"}


def opened_cache(folder: Path | None) -> Cache:
    """The images that are here; None: where they are unless somebody says otherwise."""
    from strata.jobs.containers.cache import Cache, default_folder

    cache = Cache(folder or default_folder())
    cache.open()
    return cache


def bring_image(session: Session, cache: Cache, reference: str) -> Image:
    """Have an image here, unpacked."""
    import asyncio

    from strata.jobs.containers.images import bring

    logins = os.environ.get("REGISTRY_AUTH_FILE")
    return asyncio.run(
        bring(cache, reference, _Repository(session), say=session.out.note, logins=Path(logins) if logins else None)
    )


class _Repository:
    """Strata's, by its API."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def digest(self, reference: str) -> str:
        """What it stands for now."""
        return str(self._session.client.get(self._path(reference))["image"])

    def download(self, reference: str, into: IO[bytes]) -> None:
        """All of it."""
        from strata.cli.transfer import download

        download(self._session.client, f"{self._path(reference)}/export", into)

    def _path(self, reference: str) -> str:
        from strata.provisioning.images.commands.tags import path_of

        return path_of(reference)
