"""What differs between two images: files and packages."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import msgspec

from strata.provisioning.images.squash import FileLine, read_listing, read_packages

MOST = 10_000
"""Differences that are told by name; the rest are counted."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One path. ``what`` lists the attributes that differ."""

    path: str
    change: str
    what: tuple[str, ...] = ()
    before: int = 0
    after: int = 0
    """Sizes."""


class PackageChange(msgspec.Struct, frozen=True, kw_only=True):
    """One Debian package; an empty version is its absence."""

    name: str
    before: str
    after: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """From one image to another."""

    added: int
    removed: int
    changed: int
    files: tuple[FileChange, ...]
    packages: tuple[PackageChange, ...]


def compare(before: Path | IO[bytes], after: Path | IO[bytes]) -> Difference:
    """Compare two listings."""
    old = {line.path: line for line in read_listing(before)}
    counts = {"added": 0, "removed": 0, "changed": 0}
    files: list[FileChange] = []

    def note(change: FileChange) -> None:
        counts[change.change] += 1
        if len(files) < MOST:
            files.append(change)

    for line in read_listing(after):
        was = old.pop(line.path, None)
        if was is None:
            note(FileChange(path=line.path, change="added", after=line.size))
        elif was != line:
            note(_changed(was, line))
    for line in old.values():
        note(FileChange(path=line.path, change="removed", before=line.size))
    files.sort(key=lambda change: change.path)
    return Difference(
        added=counts["added"],
        removed=counts["removed"],
        changed=counts["changed"],
        files=tuple(files),
        packages=_packages(read_packages(before), read_packages(after)),
    )


def _changed(was: FileLine, now: FileLine) -> FileChange:
    what = tuple(
        name for name in ("kind", "mode", "uid", "gid", "size", "content") if getattr(was, name) != getattr(now, name)
    )
    return FileChange(path=now.path, change="changed", what=what, before=was.size, after=now.size)


def _packages(before: dict[str, str], after: dict[str, str]) -> tuple[PackageChange, ...]:
    return tuple(
        PackageChange(name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
