"""``strata image import|build|export``: files go up in pieces, the work is an operation, its log is shown meanwhile."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.reading import read_text
from strata.cli.session import Session
from strata.cli.words import segment
from strata.core.errors import BadRequest, StrataError
from strata.provisioning.images.commands.tags import IMAGE, path_of, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from strata.cli.client import Client, Json
    from strata.cli.output import Output

_REGISTRY = "docker://"
_LAYOUT = ("oci-layout", "index.json", "blobs")
_RELEASE = "release.json"  # in what 'export' wrote: what is signed of it
_RECIPES = ("recipe.yaml", "Containerfile", "Dockerfile")

PATH = click.Path(path_type=Path)


@click.command("import")
@click.argument("source")
@click.option("--name", required=True, help="Name of the image here.")
@click.option("--tag", default="latest", show_default=True, help="Its tag.")
@click.option("--ref", default="", help="Image to take, if an archive holds several.")
@click.option("--unsigned", is_flag=True, help="Import it as a new image, even if it carries a signed release.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is done.")
@ls.json_option
def import_(
    session: Session, source: str, name: str, tag: str, ref: str, unsigned: bool, wait: bool, as_json: bool
) -> None:
    """Import an image.

    SOURCE is a tar (an OCI layout, what 'docker save' wrote, or the files of a system), a directory with an OCI
    layout, or docker://HOST/NAME:TAG in a registry.

    \b
    Example: strata image import debian.tar --name debian --tag 12
    """
    body: Json = {"name": name, "tag": tag, "ref": ref, "unsigned": unsigned}
    if source.startswith(_REGISTRY):
        body["registry"] = source.removeprefix(_REGISTRY)
    else:
        body["upload"] = send_file(session.client, session.out, Path(source))
    work = session.client.post("/v1/images", body)
    _finish(session, work, f"{name}:{tag}", wait, as_json)


@click.command()
@click.argument("recipe", type=PATH)
@click.option("--name", required=True, help="Name of the image.")
@click.option("--tag", default="latest", show_default=True, help="Its tag.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is done.")
@ls.json_option
def build(session: Session, recipe: Path, name: str, tag: str, wait: bool, as_json: bool) -> None:
    """Build an image from a recipe (YAML), a Containerfile, or a directory with one.

    \b
    Example: strata image build demo.yaml --name demo --tag v1
    """
    sent = send_recipe(session.client, session.out, recipe)
    work = session.client.post("/v1/image-builds", {"name": name, "tag": tag, "upload": sent})
    _finish(session, work, f"{name}:{tag}", wait, as_json)


@click.command()
@IMAGE
@click.argument("file", type=PATH)
@ls.json_option
def export(session: Session, image: str, file: Path, as_json: bool) -> None:
    """Write an image, with its signed release, to a file. 'strata image import' and other tools can read it.

    \b
    Example: strata image export debian:12 debian.tar
    """
    from strata.cli.transfer import download

    if not file.absolute().parent.is_dir():
        raise BadRequest("no such directory", where=str(file.absolute().parent))
    if file.is_dir():
        raise BadRequest("is a directory", where=str(file), hint="name the file to write")
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as into:
            size = download(session.client, f"{path_of(image)}/export", into)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    session.out.answer(as_json, {"image": image, "file": str(file), "bytes": size}, f"wrote {image} to {file}")


def send_recipe(client: Client, out: Output, recipe: Path) -> str:
    """Send a recipe, or a Containerfile, with the files that belong to it; the upload's name."""
    from strata.cli.transfer import Upload

    found = _recipe_in(recipe)
    beside = _named_in(found) if found.suffix in (".yaml", ".yml") else None
    with Upload(client, out, f"sending {found.name}") as upload, upload.tar() as tar:
        if beside is not None:
            _add_recipe(tar, found, beside)
        else:
            _add_context(tar, found)
    return upload.ident


def send_file(client: Client, out: Output, source: Path) -> str:
    """Send a file, or a directory as a tar; the upload's name."""
    from strata.cli.transfer import Upload

    if not source.exists():
        raise BadRequest(
            "no such file", where=str(source), hint=f"an image in a registry is written {_REGISTRY}HOST/NAME"
        )
    missing = [name for name in _LAYOUT if not (source / name).exists()] if source.is_dir() else []
    if missing:
        raise BadRequest(f"is not an OCI layout: it has no {missing[0]!r}", where=str(source))
    with Upload(client, out, f"sending {source.name}") as upload:
        if source.is_dir():
            with upload.tar() as tar:
                for name in (_RELEASE, *_LAYOUT):
                    if name != _RELEASE or (source / name).exists():
                        tar.add(source / name, arcname=name)
        else:
            upload.total = source.stat().st_size
            with source.open("rb") as file:
                while piece := file.read(1 << 20):
                    upload.write(piece)
    return upload.ident


def _recipe_in(path: Path) -> Path:
    if path.is_dir():
        for name in _RECIPES:
            if (path / name).is_file():
                return path / name
        raise BadRequest(f"holds none of {', '.join(_RECIPES)}", where=str(path))
    if not path.is_file():
        raise BadRequest("no such file", where=str(path))
    return path


def _named_in(recipe: Path) -> list[str]:
    """The files beside the recipe that it names."""
    from strata.provisioning.images.build.recipe import parse_recipe

    files = parse_recipe(read_text(recipe)).files
    names = list(dict.fromkeys(os.path.normpath(file.source) for file in files if file.source is not None))
    for name in names:
        if not (recipe.parent / name).is_file():
            raise BadRequest("no such file beside the recipe", where=f"{recipe}: files, {name}")
    return names


def _add_recipe(tar: tarfile.TarFile, recipe: Path, beside: list[str]) -> None:
    """The recipe and the files that it names, and nothing else that lies beside it."""
    from strata.provisioning.images.build.recipe import RECIPE

    tar.add(recipe, arcname=RECIPE, filter=_nobodys)
    for name in beside:
        tar.add((recipe.parent / name).resolve(), arcname=name, filter=_nobodys)


def _add_context(tar: tarfile.TarFile, containerfile: Path) -> None:
    from strata.provisioning.images.build.recipe import CONTAINERFILE

    tar.add(containerfile, arcname=CONTAINERFILE, filter=_nobodys)
    for path in sorted(containerfile.parent.rglob("*")):
        if path != containerfile and path.is_file() and not path.is_symlink():
            tar.add(path, arcname=str(path.relative_to(containerfile.parent)), filter=_nobodys)


def _nobodys(header: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who owns a file here is nobody's business there."""
    header.uid = header.gid = 0
    header.uname = header.gname = ""
    return header


def _finish(session: Session, work: Json, image: str, wait: bool, as_json: bool) -> None:
    job = work["operation"]
    if not wait:
        session.out.answer(as_json, work, f"operation {job['id']} (strata operation wait {job['id']})")
        return
    try:
        job = followed(session.client, session.out.note, work)
    except KeyboardInterrupt:
        session.out.note(f"the work goes on (strata operation cancel {job['id']} stops it)")
        raise
    must_be_done(job, image)
    report(session, session.client.get(path_of(image)), as_json)
    exits.leave(0)


def must_be_done(job: Json, image: str) -> None:
    """Raise with what went wrong, unless the operation that made the image did so."""
    if job["state"] != "done":
        why = "; ".join(error["detail"] for error in job["errors"]) or f"the operation was {job['state']}"
        raise StrataError(why, where=image, hint=f"strata operation show {job['id']}")


def followed(client: Client, told: Callable[[str], None], work: Json) -> Json:
    """The operation when it is over; ``told`` gets every line of its log meanwhile."""
    from strata.cli.progress import FINISHED

    offset, pause, rest = 0, 0.1, ""
    while True:
        job = client.get(f"/v1/operations/{segment(work['operation']['id'])}")
        part = client.get(f"/v1/image-logs/{segment(work['log'])}", {"offset": offset})
        offset = part["next"]
        *lines, rest = (rest + part["text"]).split("\n")
        for line in lines:
            told(line.rpartition("\r")[2])
        if job["state"] in FINISHED and not part["text"]:
            return job
        time.sleep(0 if part["text"] else pause)
        pause = min(pause * 1.5, 0.5)
