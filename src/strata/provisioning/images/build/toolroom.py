"""Runs one of the machine's own programs for a build: unsquashfs, mmdebstrap or buildah, on what is not trusted.

A program of its own (``python -m``), started in namespaces of its own. The other program runs apart (``confinement``),
in a world that holds the machine's programs and what they read of ``/etc``; of everything else there is only the
build's room, at ``/build``. What it leaves there has the ids of builds, and no process of it outlives this one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from strata.core.errors import StrataError
from strata.provisioning.images.build import syscalls
from strata.provisioning.images.build.confinement import apart, build_ids, cover, enter, run_program
from strata.provisioning.images.build.network import RESOLVER

ROOM = "/build"
"""Where the program finds the build's room."""
NOT_STARTED = 199
"""The status that says: not the program failed (which has other ones), but what is needed to run it."""
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS = """
    alternatives apt ca-certificates containers debian_version dpkg gai.conf group host.conf hosts ld.so.cache localtime
    nsswitch.conf os-release passwd perl protocols services ssl
"""
_WRITABLE = ("root", "run", "var/cache", "var/lib")


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """The order."""

    command: list[str]
    work: str
    """A folder of ours with ``room``, ``tmp`` and ``world`` in it; the last is empty."""
    show: list[str] = []
    """What else of the machine the program is to read."""


def open_rooms(work: Path) -> Path:
    """Make what ``Errand.work`` is to hold; the room."""
    for name in ("room", "tmp", "world"):
        (work / name).mkdir(mode=0o700)
    (work / "tmp").chmod(0o1777)
    build_ids().give(work / "room", work / "tmp")
    return work / "room"


def run(errand: Errand) -> int:
    """The program's status; negative: the signal that ended it."""
    work = Path(errand.work)

    def live() -> int:
        enter(alive=True, mounts=True)
        environment = {**os.environ, "TMPDIR": "/tmp"}
        environment.pop("PYTHONPATH", None)
        return run_program(errand.command, environment, reduced=False)

    return apart(work / "world", live, prepare=lambda: _make_world(work, errand.show))


def _make_world(work: Path, show: list[str]) -> None:
    world = work / "world"
    cover(world, syscalls.new_mount("tmpfs", {"mode": "755"}))
    for name in ("proc", "sys", "dev"):
        (world / name).mkdir()
    for name in _WRITABLE:
        (world / name).mkdir(parents=True, mode=0o755)
        build_ids().give(world / name)
    for name, folder in ((ROOM.lstrip("/"), "room"), ("tmp", "tmp"), ("var/tmp", "tmp")):
        (world / name).mkdir(parents=True)
        cover(world / name, syscalls.copy_mount(str(work / folder), attributes=syscalls.NO_DEVICES))
    shown: list[Path] = []
    more = [Path(path) for path in (*os.environ["PATH"].split(":"), *show)]
    for path in dict.fromkeys((Path("/usr"), *(Path("/", name) for name in _LINKS), *more)):
        if path.is_symlink() and path.parent == Path("/"):
            (world / path.name).symlink_to(path.readlink())
        elif path.exists() and not any(path.resolve().is_relative_to(above) for above in shown):
            _show(world, path)
            shown.append(path)
    for name in _SETTINGS.split():
        path = Path("/etc", name)
        if path.exists() and path not in shown:
            _show(world, path)
    (world / "etc/resolv.conf").write_bytes(RESOLVER)
    (world / "etc/mtab").symlink_to("../proc/self/mounts")


def _show(world: Path, path: Path) -> None:
    """Let something of the machine be read in the new world."""
    place = world / path.relative_to("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    found = path.resolve()
    if found.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    cover(place, syscalls.copy_mount(str(found), attributes=syscalls.READ_ONLY | syscalls.NO_SETUID, whole=True))


def main() -> NoReturn:
    """Take the order, end as the program did."""
    errand = msgspec.json.decode(sys.stdin.buffer.read(), type=Errand)
    try:
        status = run(errand)
    except (StrataError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(NOT_STARTED)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
