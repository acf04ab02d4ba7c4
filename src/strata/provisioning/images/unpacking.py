"""What others wrote, read in processes of their own with limits (``worker``): archives, layers, build contexts, lists.

``press``, ``told_in``, ``sound_context`` and ``difference`` are for the service. Run as a program, this does what they
ask for.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning import worker
from strata.provisioning.images import archive, compare
from strata.provisioning.images.build.recipe import CONTAINERFILE, MOST_RECIPE, RECIPE, parse_recipe
from strata.provisioning.images.build.steps import workplace
from strata.provisioning.images.disk_space import Room
from strata.provisioning.images.layers import packing, unpack
from strata.provisioning.images.release import Release
from strata.provisioning.images.squashing import Order, Pressed
from strata.provisioning.images.squashing import press as do_press
from strata.provisioning.images.tarball import Body, entries

MOST_CONTEXT = 4 << 30
_MOST_CONTEXT_FILES = 200_000
_MEMORY = 2 << 30
_SMALL_MEMORY = 512 << 20
_SLOWEST = 1 << 20
"""Bytes of an archive that are read in a second of processor time, at the least."""
_PATIENCE = 4.0
"""Seconds that pass at the most for each of processor time: the disk is slow, others compute as well."""


class _Told(msgspec.Struct, frozen=True, tag="told"):
    file: int


class _Seen(msgspec.Struct, frozen=True):
    release: Release | None


class _Context(msgspec.Struct, frozen=True, tag="context"):
    archive: str
    work: str
    into: str


class _Compare(msgspec.Struct, frozen=True, tag="compare"):
    before: int
    after: int


class _Press(msgspec.Struct, frozen=True, tag="press"):
    order: Order


_Question = _Told | _Context | _Compare | _Press


def limits(size: int, *, memory: int = _MEMORY, file: int = 0) -> worker.Limits:
    """For reading so many bytes; and writing a file of so many."""
    cpu = 300 + size // _SLOWEST
    return worker.Limits(memory=memory, cpu=cpu, wall=_PATIENCE * cpu, file=file)


async def press(order: Order, log: Path, *, size: int) -> Pressed:
    """Have an image made of what came in, ``size`` bytes; raises what is wrong with it."""
    async with workplace(Path(order.root)) as work:
        order = msgspec.structs.replace(order, work=str(work))
        bounds = limits(size, file=order.most + _MEMORY)
        return await worker.ask(__name__, _Press(order), Pressed, bounds, about="image", log=log)


async def told_in(path: Path) -> Release | None:
    """The signed release that can be seen at the beginning of an archive."""
    with path.open("rb") as file:
        bounds = worker.Limits(memory=_SMALL_MEMORY, cpu=20, wall=60.0, file=0)
        found = await worker.ask(__name__, _Told(file.fileno()), _Seen, bounds, about="archive", files=[file.fileno()])
    return found.release


async def sound_context(path: Path, work: Path, log: Path) -> Path:
    """What came with a build, as a tar that we wrote ourselves, in ``work``: plain files and folders, nobody's."""
    into = work / "sound.tar"
    bounds = limits(path.stat().st_size, memory=_SMALL_MEMORY, file=MOST_CONTEXT + _SMALL_MEMORY)
    await worker.ask(__name__, _Context(str(path), str(work), str(into)), int, bounds, about="build", log=log)
    return into


async def difference(before: Path, after: Path) -> compare.Difference:
    """From one image's list of files to another's."""
    with before.open("rb") as one, after.open("rb") as other:
        files = [one.fileno(), other.fileno()]
        bounds = limits(before.stat().st_size + after.stat().st_size)
        return await worker.ask(__name__, _Compare(*files), compare.Difference, bounds, about="images", files=files)


# -- in the process of its own


def _answered(question: _Question) -> object:
    match question:
        case _Told(file):
            with os.fdopen(file, "rb") as opened:
                return _Seen(archive.told_in(opened))
        case _Compare(before, after):
            with os.fdopen(before, "rb") as one, os.fdopen(after, "rb") as other:
                return compare.compare(one, other)
        case _Context():
            return write_sound_context(Path(question.archive), Path(question.work), Path(question.into))
        case _Press(order):
            try:
                return do_press(order)
            except tarfile.TarError as error:
                raise BadRequest(f"a layer is not a sound tar archive: {error}", where="image") from None


def write_sound_context(given: Path, work: Path, into: Path) -> int:
    """Write what came with a build again, as we would have; how many files and folders that is."""
    with _plain(given, work) as source, into.open("xb") as out:
        room = Room(work, MOST_CONTEXT, "build")
        kinds: dict[str, str] = {}
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for number, entry in enumerate(entries(source, "build"), 1):
                parts = [part for part in entry.name.split("/") if part not in ("", ".")]
                name = "/".join(parts)
                if number > _MOST_CONTEXT_FILES:
                    raise BadRequest(f"more than {_MOST_CONTEXT_FILES} files", where="build")
                if not parts:
                    continue
                _check(entry.name, entry.kind, parts, kinds)
                kinds[name] = entry.kind
                header = tarfile.TarInfo(name)
                header.mode = 0o755 if entry.kind == "dir" or entry.mode & 0o100 else 0o644
                if entry.kind == "dir":
                    header.type = tarfile.DIRTYPE
                    tar.addfile(header)
                    continue
                header.size = entry.size
                room.take(entry.size + 1024)
                body = Body(source, entry.at, entry.size, entry.pieces)
                if name in (RECIPE, CONTAINERFILE):
                    if entry.size > MOST_RECIPE:
                        raise BadRequest(f"is larger than {MOST_RECIPE >> 10} KiB", where=f"build, {name}")
                    text = body.read()
                    if name == RECIPE:
                        parse_recipe(text.decode("utf-8", "replace"))
                    tar.addfile(header, io.BytesIO(text))
                else:
                    tar.addfile(header, body)
    return len(kinds)


def _check(name: str, kind: str, parts: list[str], kinds: dict[str, str]) -> None:
    where = repr(name)[:200]
    if ".." in parts or name.startswith("/") or kind not in ("file", "dir"):
        raise BadRequest("only plain files and directories go with a build", where=where)
    if (
        len(name) > 4000
        or len(parts) > 200
        or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts)
    ):
        raise BadRequest("a path that is too long", where=where)
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if kinds.get("/".join(parts), kind) != kind or any(kinds.get(folder) == "file" for folder in above):
        raise BadRequest("is a file and a directory", where=where)


@contextmanager
def _plain(given: Path, work: Path) -> Iterator[IO[bytes]]:
    plain = given
    if packing(given):
        plain = work / "given.tar"
        unpack(given, plain, diff_id="", most=MOST_CONTEXT)
    try:
        with plain.open("rb") as file:
            yield file
    finally:
        if plain is not given:
            plain.unlink(missing_ok=True)


if __name__ == "__main__":
    os.umask(0o077)
    # Those get their files opened, and need no others.
    worker.answer(_Question, _answered, nobody=lambda question: isinstance(question, _Told | _Compare))  # type: ignore[arg-type]
