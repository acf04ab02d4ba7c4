"""A file tree in memory, and its form that kernels unpack: a newc cpio archive. Same files, same bytes."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from typing import NamedTuple

from strata.provisioning.boot.cpio import Member, archive


class File(NamedTuple):
    """A regular file, a directory or a symbolic link (whose data is its target)."""

    mode: int
    data: bytes = b""


Tree = dict[str, File]
"""Path without a leading slash → file."""


def regular(data: bytes, *, executable: bool = False) -> File:
    """A file that everybody may read."""
    return File(stat.S_IFREG | (0o755 if executable else 0o644), data)


def directory(mode: int = 0o755) -> File:
    """An empty directory."""
    return File(stat.S_IFDIR | mode)


def link(target: str) -> File:
    """A symbolic link."""
    return File(stat.S_IFLNK | 0o777, target.encode())


def pack(tree: Mapping[str, File]) -> bytes:
    """The tree as a newc archive, sorted."""
    return archive(
        Member(path=path, data=None if stat.S_ISDIR(file.mode) else file.data, mode=file.mode)
        for path, file in sorted(tree.items())
    )


def fingerprint(tree: Mapping[str, File]) -> str:
    """A digest over every path, mode and content."""
    total = hashlib.sha256()
    for path in sorted(tree):
        file = tree[path]
        total.update(f"{file.mode:o} {hashlib.sha256(file.data).hexdigest()} {path}\n".encode())
    return f"sha256:{total.hexdigest()}"
