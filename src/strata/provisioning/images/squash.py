"""From a tree to the squashfs that nodes mount: the same tree gives the same file, byte for byte.

The tree goes as one tar straight into ``mksquashfs``; nothing is unpacked. Beside it comes the list of files (for
``diff``) and the list of chunks (for nodes, which verify each as it arrives).
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec

from strata.core.errors import StrataError, Unavailable
from strata.provisioning.images.disk_space import Room
from strata.provisioning.images.records import Squashed
from strata.provisioning.images.release import CHUNK
from strata.provisioning.images.tarball import Body
from strata.provisioning.images.tree import MOST_BYTES, Inode, Kind, Tree

_DPKG = "var/lib/dpkg/status"
_DPKG_MORE = "var/lib/dpkg/status.d/"
_MOST_STATUS = 64 << 20
_MEMORY = "512M"
"""What ``mksquashfs`` may have for its blocks; else it takes a quarter of the machine."""
_TYPES: dict[Kind, bytes] = {
    "file": tarfile.REGTYPE,
    "dir": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "fifo": tarfile.FIFOTYPE,
}


class FileLine(msgspec.Struct, frozen=True, array_like=True):
    """One path of an image."""

    path: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    content: str
    """SHA-256 of a file, target of a link."""


class _Sink:
    """Counts and hashes the bytes of one file on their way into the tar."""

    def __init__(self, source: Body, room: Room) -> None:
        self._source = source
        self._room = room
        self.digest = hashlib.sha256()
        self.kept = bytearray()
        self.keep = False

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self._room.take(len(piece))  # at most so much comes out of it at the other end, on the same disk
        self.digest.update(piece)
        if self.keep and len(self.kept) < _MOST_STATUS:
            self.kept += piece
        return piece


def squash(
    tree: Tree, layers: Sequence[tarfile.TarFile], into: Path, listing: Path, *, processors: int = 2
) -> Squashed:
    """Make ``into`` (the squashfs), ``listing`` (its files) and ``into`` with ``.chunks`` at its end."""
    root = tree.root.inode
    command = [
        *("mksquashfs", "-", str(into), "-tar", "-noappend", "-comp", "zstd", "-Xcompression-level", "9"),
        *("-b", "128K", "-reproducible", "-processors", str(processors), "-mem", _MEMORY, "-no-progress", "-quiet"),
        *("-root-mode", f"{root.mode:o}", "-root-uid", str(root.uid), "-root-gid", str(root.gid)),
    ]
    # From a tar, the root's own time would be now whatever option is given; this is the one thing that it heeds.
    now = time.time()
    newest = max((inode.mtime for _, inode in tree.walk() if inode.mtime <= now), default=0)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "SOURCE_DATE_EPOCH": str(newest)}
    complaints = into.with_suffix(".errors")
    with complaints.open("wb") as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, env=environment
            )
        except FileNotFoundError:
            raise Unavailable("mksquashfs is not installed", hint="apt-get install squashfs-tools") from None
        assert process.stdin is not None
        try:
            with process.stdin, gzip.GzipFile(listing, "wb", compresslevel=1, mtime=0) as lines:
                room = Room(into.parent, MOST_BYTES, "squashfs")
                files, unpacked, packages = _write(tree, layers, process.stdin, lines, room)
        except BrokenPipeError:
            files = unpacked = 0
            packages = {}
        except BaseException:
            process.kill()
            raise
        finally:
            status = process.wait()
    said = complaints.read_text(errors="replace").strip()[-500:]
    complaints.unlink()
    if status or said:
        raise StrataError(f"mksquashfs failed: {said or status}", where=into.name)
    chunk_list = into.with_suffix(".chunks")
    squashfs, size = write_chunks(into, chunk_list)
    return Squashed(
        squashfs=squashfs,
        size=size,
        chunks=f"sha256:{hashlib.sha256(chunk_list.read_bytes()).hexdigest()}",
        files=files,
        unpacked=unpacked,
        packages=len(packages),
        left_out=tree.left_out,
    )


def write_chunks(squashfs: Path, into: Path) -> tuple[str, int]:
    """Write the digests of its chunks; the digest and size of the whole."""
    whole = hashlib.sha256()
    size = 0
    with squashfs.open("rb") as file, into.open("wb") as list_:
        while piece := file.read(CHUNK):
            whole.update(piece)
            size += len(piece)
            list_.write(hashlib.sha256(piece).digest())
    return f"sha256:{whole.hexdigest()}", size


def read_listing(listing: Path | IO[bytes]) -> Iterator[FileLine]:
    """The files of an image, parents first, by name."""
    decode = msgspec.json.Decoder(FileLine).decode
    with _opened(listing) as lines:
        for line in lines:
            if not line.startswith(b"{"):
                yield decode(line)


def read_packages(listing: Path | IO[bytes]) -> dict[str, str]:
    """Debian packages in an image and their versions; empty where there are none."""
    with _opened(listing) as lines:
        for line in lines:
            if line.startswith(b"{"):
                return msgspec.json.decode(line, type=dict[str, str])
    return {}


def _opened(listing: Path | IO[bytes]) -> gzip.GzipFile:
    if isinstance(listing, Path):
        return gzip.GzipFile(listing, "rb")
    listing.seek(0)
    return gzip.GzipFile(fileobj=listing, mode="rb")


def packages_in(status: bytes) -> dict[str, str]:
    """Installed packages and versions in dpkg's status file."""
    found: dict[str, str] = {}
    name = version = ""
    installed = True
    for line in [*status.decode("utf-8", "replace").splitlines(), ""]:
        if not line:
            if name and version and installed:
                found[name[:200]] = version[:200]
            name, version, installed = "", "", True
        elif line.startswith("Package: "):
            name = line[9:].strip()
        elif line.startswith("Version: "):
            version = line[9:].strip()
        elif line.startswith("Status: "):
            installed = line.endswith(" installed")
    return found


def _write(
    tree: Tree, layers: Sequence[tarfile.TarFile], into: IO[bytes], lines: gzip.GzipFile, room: Room
) -> tuple[int, int, dict[str, str]]:
    encode = msgspec.json.Encoder().encode
    first: dict[int, tuple[str, str]] = {}  # inode → its first path, and what it holds
    packages: dict[str, str] = {}
    count = unpacked = 0
    with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
        for path, inode in tree.walk():
            count += 1
            content = inode.target
            if inode.kind == "file":
                known = first.get(id(inode))
                if known is not None:
                    content = known[1]
                    tar.addfile(_header(path, inode, link_to=known[0]))
                else:
                    source = cast("IO[bytes]", layers[inode.layer].fileobj)
                    sink = _Sink(Body(source, inode.at, inode.size, inode.pieces), room)
                    sink.keep = path == _DPKG or path.startswith(_DPKG_MORE)
                    tar.addfile(_header(path, inode), sink)
                    content = sink.digest.hexdigest()
                    first[id(inode)] = (path, content)
                    unpacked += inode.size
                    if sink.keep:
                        packages |= packages_in(bytes(sink.kept))
            else:
                tar.addfile(_header(path, inode))
            shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            target = content.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            line = FileLine(shown, inode.kind, inode.mode, inode.uid, inode.gid, inode.size, target)
            lines.write(encode(line) + b"\n")
    lines.write(encode(dict(sorted(packages.items()))) + b"\n")
    return count, unpacked, packages


def _header(path: str, inode: Inode, *, link_to: str = "") -> tarfile.TarInfo:
    header = tarfile.TarInfo(f"./{path}")
    header.type = tarfile.LNKTYPE if link_to else _TYPES[inode.kind]
    header.mode = inode.mode
    header.uid, header.gid = inode.uid, inode.gid
    header.mtime = inode.mtime
    header.size = 0 if link_to else inode.size
    header.linkname = f"./{link_to}" if link_to else inode.target
    if not link_to:
        header.pax_headers = {f"SCHILY.xattr.{name}": value for name, value in inode.xattrs.items()}
    return header
