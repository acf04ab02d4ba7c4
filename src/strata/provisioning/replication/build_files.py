"""The folder of minimal OSes as it is on the disk, and the files of one of them. Looks, and changes nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from strata.provisioning.minos.artefacts import PARTS, REMOVED, latest_links
from strata.provisioning.replication.copying import Wanted

_BUILD = re.compile(r"[0-9a-f]{12}\Z")


class BuildFile(msgspec.Struct, frozen=True):
    """A file of a build."""

    size: int
    sha256: str


class Choice(msgspec.Struct, frozen=True):
    """The latest build of an architecture."""

    digest: str
    chosen: int
    """When somebody made it that."""


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """What is there. Times are in nanoseconds."""

    builds: Mapping[str, int] = {}
    """Digest → when it was made."""
    removed: Mapping[str, int] = {}
    """Digest → when somebody removed it."""
    latest: Mapping[str, Choice] = {}
    """Architecture → the build that is its latest."""


def is_digest(name: str) -> bool:
    """Whether a build can be named so."""
    return _BUILD.match(name) is not None


def read_folder(root: Path) -> Folder:
    """What is in ``STATE/minos``."""
    latest = {arch: Choice(link.readlink().name, link.lstat().st_mtime_ns) for arch, link in latest_links(root).items()}
    return Folder(builds=_times(root), removed=_times(root / REMOVED), latest=latest)


def read_build(path: Path) -> dict[str, BuildFile]:
    """The files of the build in a directory: all four."""
    found = {}
    for name in PARTS:
        with (path / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[name] = BuildFile((path / name).stat().st_size, digest)
    return found


def wanted_files(digest: str, files: Mapping[str, BuildFile]) -> dict[str, Wanted]:
    """The same, to be fetched."""
    return {
        name: Wanted(name=f"minos/{digest}/{name}", digest=files[name].sha256, size=files[name].size)
        for name in PARTS
        if name in files
    }


def _times(folder: Path) -> dict[str, int]:
    try:
        return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if is_digest(path.name)}
    except FileNotFoundError:
        return {}
