"""Writes cpio archives (``newc``) that the kernel unpacks as an initrd. Pure: the same input, the same bytes."""

from __future__ import annotations

import stat
from collections.abc import Iterable

import msgspec

from strata.core.errors import BadRequest

_ALIGN = 4
_TRAILER = "TRAILER!!!"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file, directory (``data`` None) or whatever ``mode`` says. Owned by root."""

    path: str
    """Relative: ``etc/strata/boot.json``."""
    data: bytes | None = None
    mode: int = 0
    """Permission bits; 0: 0755 for directories, 0644 for files. With type bits: that type (a symbolic link's data is
    where it points)."""
    device: tuple[int, int] = (0, 0)
    mtime: int = 0

    def __repr__(self) -> str:
        return f"Member({self.path})"


def archive(members: Iterable[Member]) -> bytes:
    """The archive, members in the given order, directories that are not named made before what is in them."""
    parts: list[bytes] = []
    made: set[str] = set()
    for member in members:
        path = member.path
        if path.startswith("/") or not path or ".." in path.split("/"):
            raise BadRequest("a path in an archive is relative and stays inside", where=path[:80])
        for end in (at for at, char in enumerate(path) if char == "/"):
            if path[:end] not in made:
                made.add(path[:end])
                parts.append(_entry(len(parts) + 1, path[:end], stat.S_IFDIR | 0o755, b""))
        if member.data is None and not stat.S_IFMT(member.mode):
            if path in made:
                continue
            made.add(path)
        parts.append(_entry(len(parts) + 1, path, _mode(member), member.data or b"", member.device, member.mtime))
    parts.append(_entry(0, _TRAILER, 0, b""))
    return b"".join(parts)


def _mode(member: Member) -> int:
    if stat.S_IFMT(member.mode):
        return member.mode
    if member.data is None:
        return stat.S_IFDIR | (member.mode or 0o755)
    return stat.S_IFREG | (member.mode or 0o644)


def _entry(inode: int, path: str, mode: int, data: bytes, device: tuple[int, int] = (0, 0), mtime: int = 0) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode, mode, 0, 0, links, mtime, len(data), 0, 0, *device, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return head + bytes(-len(head) % _ALIGN) + data + bytes(-len(data) % _ALIGN)
