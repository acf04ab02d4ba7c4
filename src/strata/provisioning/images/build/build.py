"""Builds images: from a recipe (Debian, nothing, or a parent image) or from a Containerfile.

Heavy work is done by other programs; this only puts them in order. Whatever they say goes to the build's log.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.provisioning.images import archive
from strata.provisioning.images.build.confinement import build_ids
from strata.provisioning.images.build.furnish import Furnishing
from strata.provisioning.images.build.last_words import last_words
from strata.provisioning.images.build.network import Service, services_in, way_out
from strata.provisioning.images.build.recipe import CONTAINERFILE, DEBIAN, RECIPE, Recipe, parse_recipe
from strata.provisioning.images.build.steps import require, run, workplace
from strata.provisioning.images.build.toolroom import NOT_STARTED, ROOM, Errand, open_rooms
from strata.provisioning.images.layers import unpack
from strata.provisioning.images.records import Made
from strata.provisioning.images.release import ImageConfig, Release
from strata.provisioning.images.shelf import Shelf
from strata.provisioning.images.squashing import Order, Pressed
from strata.provisioning.images.unpacking import press

MOST_CONTEXT = 4 << 30
_APT = Path("/etc/apt")
_SLIM = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/i18n/*")
_OWN_PARENT = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*localhost/([a-z0-9][a-z0-9._-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*)", re.M)

_IN_SOURCES = re.compile(r"(?:\b(?:file|copy):(?://)?|signed-by[=:]\s*)(/[^\s\],]+)", re.I)
_ENV = {"PYTHONPATH": str(Path(__file__).parents[4])}

Find = Callable[[str], tuple[Made, Release]]
"""An image of ours by ``name:tag``; raises ``NotFound``."""


async def build(shelf: Shelf, context: Path, find: Find, log: Path, prefix: Sequence[str] = ()) -> Pressed:
    """Build what ``context`` (a tar) describes. ``prefix``: stands before every command that needs the machine's
    network."""
    if os.geteuid() != 0:
        raise Unavailable("images are built by root only", hint="run the service as root, or import what was built")
    async with workplace(shelf.root) as work:
        files = work / "context"
        await asyncio.to_thread(open_rooms, work)
        await asyncio.to_thread(_open_context, context, files, work)
        network = way_out(prefix, await asyncio.to_thread(_services))
        if (files / RECIPE).is_file():
            recipe = parse_recipe((files / RECIPE).read_text(encoding="utf-8", errors="replace"))
            return await _from_recipe(shelf, recipe, files, work, find, log, network)
        if (files / CONTAINERFILE).is_file():
            return await _from_containerfile(shelf, files, work, find, log, network)
    raise BadRequest(f"neither {RECIPE} nor {CONTAINERFILE} is in it", where="build")


async def _from_recipe(
    shelf: Shelf, recipe: Recipe, files: Path, work: Path, find: Find, log: Path, network: Sequence[str]
) -> Pressed:
    tools = _Tools(work, log)
    root, layer = tools.room / "root", work / "layer.tar"
    parent: Made | None = None
    if recipe.parent:
        parent = find(recipe.parent)[0]
        await tools.bring(shelf.squashfs(parent.squashfs), "parent.squashfs")
        command = ["unsquashfs", "-q", "-n", "-d", f"{ROOM}/root", f"{ROOM}/parent.squashfs"]
        await tools.must(command, "the parent image")
    elif recipe.from_ == DEBIAN:
        sources = await asyncio.to_thread(_sources, recipe)
        lists = [await tools.bring(path, f"{number}-{path.name}") for number, path in enumerate(sources)]
        show = await asyncio.to_thread(_named_in, sources)
        await tools.must(_debian(recipe, lists), "the Debian system", network, show)
    else:
        root.mkdir(mode=0o755)
        build_ids().give(root)
    order = Furnishing(
        root=str(root),
        recipe=recipe,
        context=str(files),
        install=bool(parent and recipe.packages),
        parent_listing=str(shelf.listing(parent.image)) if parent else "",
        layer=str(layer),
    )
    furnish = ["nice", "-n", "10", sys.executable, "-P", "-m", "strata.provisioning.images.build.furnish"]
    stdin = msgspec.json.encode(order)
    status, answer = await run(furnish, log=log, stdin=stdin, env=_ENV, answers=True, contained=True, network=network)
    try:
        done = msgspec.json.decode(answer, type=Pressed)
    except msgspec.MsgspecError:
        raise StrataError(f"the image could not be built (status {status})", hint="see its log") from None
    if done.error:
        raise (Unavailable if done.ours else BadRequest)(done.error, where=done.where, hint=done.hint)
    made_by = f"recipe: from {recipe.from_}, {len(recipe.packages)} packages, {len(recipe.files)} files"
    return await press(
        Order(
            root=str(shelf.root),
            layer=str(layer),
            parent=parent.image if parent else "",
            run=recipe.config(parent.config if parent else ImageConfig()),
            made_by=made_by,
            source=f"built from {recipe.from_}",
        ),
        log,
        size=layer.stat().st_size,
    )


def _lists() -> list[Path]:
    """The machine's lists of package sources."""
    found = [_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*.list"))]
    found += sorted((_APT / "sources.list.d").glob("*.sources"))
    return [path for path in found if path.is_file() and path.stat().st_size]


def _services() -> list[Service]:
    """Where the machine's packages come from."""
    return services_in("\n".join(path.read_text(errors="replace") for path in _lists()))


def _sources(recipe: Recipe) -> list[Path]:
    """The lists, if they have what the recipe is made from."""
    there = _lists()
    suite = recipe.suite or _own_suite()
    if not there:
        raise Unavailable("this machine has no apt sources to take Debian from", where=str(_APT))
    if not any(re.search(rf"\b{re.escape(suite)}\b", path.read_text(errors="replace")) for path in there):
        raise BadRequest(
            f"this machine's apt sources do not have {suite}", where="recipe, suite", hint=f"add it below {_APT}"
        )
    return there


def _named_in(sources: Sequence[Path]) -> list[str]:
    """Files of the machine that its lists of sources name: archives on its disks, and keys."""
    text = "\n".join(path.read_text(errors="replace") for path in sources)
    return [path for path in dict.fromkeys(_IN_SOURCES.findall(text)) if Path(path).exists()]


def _debian(recipe: Recipe, lists: Sequence[str]) -> list[str]:
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in _SLIM] if recipe.slim else []
    include = [f"--include={','.join(recipe.packages)}"] if recipe.packages else []
    return [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--skip=check/empty", *left_out),
        *("--aptopt=Apt::Install-Recommends false", *include),
        # mmdebstrap leaves the building machine's own there.
        '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
        *(recipe.suite or _own_suite(), f"{ROOM}/root", *lists),
    ]


def _own_suite() -> str:
    for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return "stable"


async def _from_containerfile(
    shelf: Shelf, files: Path, work: Path, find: Find, log: Path, network: Sequence[str]
) -> Pressed:
    tools = _Tools(work, log)
    require("crun")
    buildah = ["buildah", "--root", f"{ROOM}/storage", "--runroot", f"{ROOM}/run", "--storage-driver", "vfs"]
    text = (files / CONTAINERFILE).read_text(encoding="utf-8", errors="replace")
    for number, reference in enumerate(dict.fromkeys(_OWN_PARENT.findall(text))):
        made, release = find(reference)
        parent = tools.room / f"parent-{number}.tar"
        with parent.open("xb") as file:
            await asyncio.to_thread(archive.write, shelf, made.image, release, file)
        build_ids().give(parent)
        await tools.must([*buildah, "pull", "-q", f"oci-archive:{ROOM}/{parent.name}"], f"the parent {reference}")
        status, images = await tools.run([*buildah, "images", "-q"], answers=True)
        newest = images.decode().split()[:1]
        if status or not newest:
            raise BadRequest("the parent image cannot be read by buildah", where=reference)
        await tools.must([*buildah, "tag", newest[0], f"localhost/{reference}"], f"the parent {reference}")
    await asyncio.to_thread(_hand_over, files, tools.room / "context")
    # A step is over when no process of it lives: each has a PID namespace of its own, as crun makes it.
    command = [
        *buildah,
        "build",
        "--isolation",
        "oci",
        "--runtime",
        "crun",
        "--runtime-flag",
        "cgroup-manager=disabled",
    ]
    command += ["--network", "host", "--pull-never", "--timestamp", "0", "--tag", "strata-build"]
    command += ["-f", f"{ROOM}/context/{CONTAINERFILE}", f"{ROOM}/context"]
    await tools.must(command, "the Containerfile", network)
    command = [*buildah, "push", "-q", "strata-build", f"oci-archive:{ROOM}/out.tar"]
    await tools.must(command, "the Containerfile's image")
    out = work / "out.tar"
    await asyncio.to_thread(_take_back, tools.room / "out.tar", out)
    order = Order(root=str(shelf.root), archive=str(out), source="built from a Containerfile")
    return await press(order, log, size=out.stat().st_size)


def _hand_over(files: Path, into: Path) -> None:
    """Move what came with the build to where its programs may have it."""
    files.rename(into)
    for folder, _, names in os.walk(into):
        build_ids().give(Path(folder), *(Path(folder, name) for name in names))


def _take_back(made: Path, into: Path) -> None:
    """Move what a program has made to where it cannot touch it; a link that it left there is not followed."""
    made.rename(into)
    if not stat.S_ISREG(into.lstat().st_mode):
        into.unlink()
        raise BadRequest("the Containerfile's image is not a file", where="buildah")


class _Tools:
    """The machine's programs that builds use, in the rooms of one build."""

    def __init__(self, work: Path, log: Path) -> None:
        self.room = work / "room"
        self._work = work
        self._log = log

    async def bring(self, path: Path, name: str) -> str:
        """Copy a file of ours into the room; where programs find it."""
        await asyncio.to_thread(self._copy, path, self.room / name)
        return f"{ROOM}/{name}"

    async def run(
        self, command: list[str], network: Sequence[str] = (), show: Sequence[str] = (), *, answers: bool = False
    ) -> tuple[int, bytes]:
        """Run a program; as ``commands.run``. ``show``: what it is to read of the machine, besides."""
        require(command[0])
        errand = Errand(command=command, work=str(self._work), show=list(show))
        toolroom = [sys.executable, "-P", "-m", "strata.provisioning.images.build.toolroom"]
        stdin = msgspec.json.encode(errand)
        return await run(
            toolroom, log=self._log, stdin=stdin, env=_ENV, answers=answers, contained=True, network=network
        )

    async def must(self, command: list[str], what: str, network: Sequence[str] = (), show: Sequence[str] = ()) -> None:
        """Run a program that is to succeed. ``what``: what it makes, in words."""
        since = self._log.stat().st_size if self._log.exists() else 0
        status, _ = await self.run(command, network, show)
        if status:
            last = await asyncio.to_thread(last_words, self._log, since)
            raise (Unavailable if status == NOT_STARTED else BadRequest)(
                f"{what} could not be made: {last or f'it said nothing (status {status})'}",
                where=command[0],
                hint="see the whole log",
            )

    @staticmethod
    def _copy(path: Path, into: Path) -> None:
        with path.open("rb") as source, into.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        build_ids().give(into)


def _open_context(context: Path, files: Path, work: Path) -> None:
    """Unpack what came with the build. Nothing in it can be outside, special, or owned by somebody."""
    plain = work / "context.tar"
    unpack(context, plain, diff_id="", most=MOST_CONTEXT)
    files.mkdir(mode=0o700)
    try:
        with tarfile.open(plain, "r:") as tar:
            for member in tar:
                _take_out(tar, member, files)
    except tarfile.TarError as error:
        raise BadRequest(f"cannot be unpacked: {error}", where="build") from None
    plain.unlink()


def _take_out(tar: tarfile.TarFile, member: tarfile.TarInfo, files: Path) -> None:
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if ".." in parts or member.name.startswith("/") or not (member.isreg() or member.isdir()):
        raise BadRequest("only plain files and directories go with a build", where=repr(member.name)[:200])
    path = files.joinpath(*parts)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with source, path.open("wb") as file:
        shutil.copyfileobj(source, file)
    path.chmod(member.mode & 0o755)
