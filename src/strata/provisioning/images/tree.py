"""The files of an image: layers laid one over the other, in memory, as if they were unpacked in order.

What layers hold is not trusted. Paths cannot leave the root, links are followed inside it only, devices are left out,
and sizes and counts are bounded. Nothing is written to disk: the bytes of a file stay in its layer.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Literal

import msgspec

from strata.core.errors import BadRequest

Kind = Literal["file", "dir", "link", "fifo"]

MOST_ENTRIES = 4_000_000
MOST_BYTES = 64 << 30
_MOST_DEPTH = 200
_MOST_PATH = 4000
_MOST_HOPS = 40
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_XATTR = "SCHILY.xattr."
_KEPT_XATTRS = ("user.", "security.capability")


class Inode(msgspec.Struct, kw_only=True):
    """One file, directory or link, under however many names."""

    kind: Kind
    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    target: str = ""
    xattrs: dict[str, str] = {}
    layer: int = -1
    member: tarfile.TarInfo | None = None
    """Where its bytes are."""


class Node:
    """A name in a directory."""

    __slots__ = ("children", "inode")

    def __init__(self, inode: Inode) -> None:
        self.inode = inode
        self.children: dict[str, Node] | None = {} if inode.kind == "dir" else None


class Tree:
    """What the layers taken so far come to."""

    def __init__(self, *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> None:
        self.root = Node(Inode(kind="dir", mode=0o755))
        self.left_out = 0
        """Devices that were not taken."""
        self._entries = 0
        self._bytes = 0
        self._most_entries = most_entries
        self._most_bytes = most_bytes

    def apply(self, number: int, archive: tarfile.TarFile) -> None:
        """Lay a layer over those before it. Its whiteouts are about those only, wherever in it they stand."""
        members: list[tuple[tuple[str, ...], tarfile.TarInfo]] = []
        for member in archive:
            self._entries += 1
            if self._entries > self._most_entries:
                raise BadRequest(f"more than {self._most_entries} files", where=f"layer {number + 1}")
            members.append((_parts(member.name, number), member))
        for parts, _ in members:
            if parts and parts[-1].startswith(_WHITEOUT):
                self._whiteout(parts)
        for parts, member in members:
            if not parts:
                if member.isdir():
                    self.root.inode = _inode(member, "dir", number)
            elif not any(part.startswith(_WHITEOUT) for part in parts):
                self._add(number, parts, member)

    def walk(self) -> Iterator[tuple[str, Inode]]:
        """Every path below the root with what is there, parents first, by name."""
        stack = [("", self.root)]
        while stack:
            path, node = stack.pop()
            if path:
                yield path, node.inode
            if node.children:
                prefix = f"{path}/" if path else ""
                stack += ((prefix + name, node.children[name]) for name in sorted(node.children, reverse=True))

    def _whiteout(self, parts: tuple[str, ...]) -> None:
        name = parts[-1]
        parent = self._find(parts[:-1])
        if parent is None or parent.children is None:
            return
        if name == _OPAQUE:
            parent.children.clear()
        elif not name.startswith(_WHITEOUT * 2):  # other marks of an old kind of union mount, of no meaning here
            parent.children.pop(name.removeprefix(_WHITEOUT), None)

    def _add(self, number: int, parts: tuple[str, ...], member: tarfile.TarInfo) -> None:
        parent = self._directory(parts[:-1], number)
        children, name = parent.children, parts[-1]
        assert children is not None
        if member.ischr() or member.isblk():
            self.left_out += 1
            children.pop(name, None)
        elif member.isdir():
            found = children.get(name)
            if found is not None and found.children is not None:
                found.inode = _inode(member, "dir", number)
            else:
                children[name] = Node(_inode(member, "dir", number))
        elif member.islnk():
            target = self._find(_parts(member.linkname, number), follow_last=False)
            if target is None or target.children is not None:
                raise _wrong(f"a hard link to what is no file: {member.linkname[:200]!r}", number, member.name)
            children[name] = Node(target.inode)
        elif member.issym():
            children[name] = Node(_inode(member, "link", number))
        elif member.isfifo():
            children[name] = Node(_inode(member, "fifo", number))
        elif member.isreg():
            self._bytes += member.size
            if self._bytes > self._most_bytes:
                raise BadRequest(f"more than {self._most_bytes >> 20} MiB unpacked", where=f"layer {number + 1}")
            children[name] = Node(_inode(member, "file", number))
        else:
            raise _wrong(f"an entry of an unknown type {member.type!r}", number, member.name)

    def _directory(self, parts: tuple[str, ...], number: int) -> Node:
        """The directory at ``parts``; what is missing on the way is made, what is no directory makes way."""
        found = self._find(parts)
        if found is not None and found.children is not None:
            return found
        here = self.root if len(parts) <= 1 else self._directory(parts[:-1], number)
        assert here.children is not None
        if parts:
            here.children[parts[-1]] = made = Node(Inode(kind="dir", mode=0o755))
            return made
        return here

    def _find(self, parts: tuple[str, ...], *, follow_last: bool = True) -> Node | None:
        """What is at a path, links followed as if the tree were the root of the file system."""
        left = list(reversed(parts))
        trail = [self.root]
        hops = 0
        while left:
            name = left.pop()
            if name == "..":
                if len(trail) > 1:
                    trail.pop()
                continue
            node = (trail[-1].children or {}).get(name)
            if node is None:
                return None
            if node.inode.kind == "link" and (left or follow_last):
                hops += 1
                if hops > _MOST_HOPS:
                    return None
                target = node.inode.target
                if target.startswith("/"):
                    del trail[1:]
                left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            trail.append(node)
        return trail[-1]


def _parts(path: str, number: int) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise _wrong("a path that leaves the image", number, path)
    if (
        len(path) > _MOST_PATH
        or len(parts) > _MOST_DEPTH
        or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts)
    ):
        raise _wrong("a path that is too long", number, path)
    if any("\n" in part or "\0" in part for part in parts):
        raise _wrong("a path with a line break", number, path)
    return parts


def _inode(member: tarfile.TarInfo, kind: Kind, number: int) -> Inode:
    if not (0 <= member.uid < 2**32 and 0 <= member.gid < 2**32):
        raise _wrong("an owner that cannot be", number, member.name)
    if kind == "link" and not 0 < len(member.linkname) <= _MOST_PATH:
        raise _wrong("a link without a target, or with one that is too long", number, member.name)
    xattrs = {
        key.removeprefix(_XATTR): value
        for key, value in member.pax_headers.items()
        if key.startswith(_XATTR) and key.removeprefix(_XATTR).startswith(_KEPT_XATTRS)
    }
    return Inode(
        kind=kind,
        mode=0o777 if kind == "link" else member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime=min(max(int(member.mtime), 0), 2**32 - 1),
        size=member.size if kind == "file" else 0,
        target=member.linkname if kind == "link" else "",
        xattrs=xattrs,
        layer=number,
        member=member if kind == "file" else None,
    )


def _wrong(what: str, number: int, path: str) -> BadRequest:
    return BadRequest(f"holds {what}", where=f"layer {number + 1}, {path[:200]!r}", hint="the image is not imported")
