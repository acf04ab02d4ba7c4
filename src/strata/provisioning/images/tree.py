"""The files of an image: layers laid one over the other, in memory, as if they were unpacked in order.

What layers hold is not trusted. Paths cannot leave the root, links are followed inside it only, devices are left out,
and sizes, counts and attributes are bounded. Nothing is written to disk: the bytes of a file stay in its layer.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Literal, cast

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning.images.tarball import Entry, Reader, entries

Kind = Literal["file", "dir", "link", "fifo"]

MOST_ENTRIES = 2_000_000
"""Files, folders and links of all layers: each takes about half a kilobyte of memory while it is laid out."""
MOST_BYTES = 64 << 30
MOST_HOLES = 1 << 30
"""Bytes of holes in sparse files: they cost nothing in an archive, and time and space from there on."""
_MOST_ATTRIBUTES = 64 << 20
_MOST_DEPTH = 200
_MOST_PATH = 4000
_MOST_HOPS = 40
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
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
    at: int = -1
    """Where in the layer its bytes are."""
    pieces: Reader | None = None


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
        self._holes = 0
        self._attributes = 0
        self._most_entries = most_entries
        self._most_bytes = most_bytes

    def apply(self, number: int, archive: tarfile.TarFile) -> None:
        """Lay a layer over those before it. Its whiteouts are about those only, wherever in it they stand."""
        file = cast("IO[bytes]", archive.fileobj)
        added: list[Entry] = []
        for entry in entries(file, f"layer {number + 1}"):
            self._count(entry, number)
            parts = _parts(entry.name, number)
            if parts and parts[-1].startswith(_WHITEOUT):
                self._whiteout(parts)
            elif not any(part.startswith(_WHITEOUT) for part in parts):
                added.append(entry)
        added.reverse()
        while added:  # and forgotten one by one: there may be millions of them
            entry = added.pop()
            parts = _parts(entry.name, number)
            if parts:
                self._add(number, parts, entry)
            elif entry.kind == "dir":
                self.root.inode = _inode(entry, "dir", number)

    def provide(self, path: str, kind: Literal["file", "dir"]) -> None:
        """An empty file or folder at ``path``, unless something is there, or something else is in the way."""
        parts = _parts(path, 0)
        if self._find(parts) is not None:
            return
        for depth in range(1, len(parts)):
            found = self._find(parts[:depth])
            if found is not None and found.children is None:
                return
        parent = self._directory(parts[:-1], 0)
        assert parent.children is not None
        parent.children.setdefault(parts[-1], Node(Inode(kind=kind, mode=0o755 if kind == "dir" else 0o644)))

    def walk(self) -> Iterator[tuple[str, Inode]]:
        """Every path below the root with what is there, parents first, by name."""
        stack = [("", self.root)]
        while stack:
            path, node = stack.pop()
            if len(path) > _MOST_PATH:
                raise BadRequest("holds a path that is too long, through its links", where=repr(path)[:200])
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

    def _count(self, entry: Entry, number: int) -> None:
        self._entries += 1
        self._bytes += entry.size
        self._holes += entry.size - entry.stored
        self._attributes += sum(map(len, entry.xattrs.values()))
        where = f"layer {number + 1}"
        if self._entries > self._most_entries:
            raise BadRequest(f"more than {self._most_entries} files", where=where, hint="make the image of fewer files")
        if self._bytes > self._most_bytes:
            raise BadRequest(f"more than {self._most_bytes >> 20} MiB unpacked", where=where, hint="leave files out")
        if self._holes > MOST_HOLES:
            raise BadRequest(
                f"sparse files with more than {MOST_HOLES >> 20} MiB of holes",
                where=f"{where}, {entry.name[:200]!r}",
                hint="leave them out, or pack them without --sparse",
            )
        if self._attributes > _MOST_ATTRIBUTES:
            raise BadRequest(f"more than {_MOST_ATTRIBUTES >> 20} MiB of extended attributes", where=where)

    def _add(self, number: int, parts: tuple[str, ...], entry: Entry) -> None:
        parent = self._directory(parts[:-1], number)
        children, name = parent.children, parts[-1]
        assert children is not None
        if entry.kind == "device":
            self.left_out += 1
            children.pop(name, None)
        elif entry.kind == "dir":
            found = children.get(name)
            if found is not None and found.children is not None:
                found.inode = _inode(entry, "dir", number)
            else:
                children[name] = Node(_inode(entry, "dir", number))
        elif entry.kind == "hardlink":
            target = self._find(_parts(entry.target, number), follow_last=False)
            if target is None or target.children is not None:
                raise _wrong(f"a hard link to what is no file: {entry.target[:200]!r}", number, entry.name)
            children[name] = Node(target.inode)
        else:
            children[name] = Node(_inode(entry, entry.kind, number))

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
            if len(trail) > _MOST_DEPTH:
                raise BadRequest("holds folders that are too deep, through links", where=repr("/".join(parts))[:200])
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


def _inode(entry: Entry, kind: Kind, number: int) -> Inode:
    if not (0 <= entry.uid < 2**32 and 0 <= entry.gid < 2**32):
        raise _wrong("an owner that cannot be", number, entry.name)
    if kind == "link" and (not 0 < len(entry.target) <= _MOST_PATH or "\0" in entry.target):
        raise _wrong("a link without a target, or with one that cannot be", number, entry.name)
    return Inode(
        kind=kind,
        mode=0o777 if kind == "link" else entry.mode & 0o7777,
        uid=entry.uid,
        gid=entry.gid,
        mtime=min(entry.mtime, 2**32 - 1),
        size=entry.size,
        target=entry.target if kind == "link" else "",
        xattrs=_kept(entry.xattrs) if entry.xattrs else entry.xattrs,
        layer=number,
        at=entry.at,
        pieces=entry.pieces,
    )


def _kept(xattrs: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in xattrs.items() if name.startswith(_KEPT_XATTRS)}


def _wrong(what: str, number: int, path: str) -> BadRequest:
    return BadRequest(f"holds {what}", where=f"layer {number + 1}, {path[:200]!r}", hint="the image is not imported")
