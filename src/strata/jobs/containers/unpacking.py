"""Writes the files of an image to a folder: in a process of its own with limits, since somebody else made the image.

Layers are laid one over the other in memory by the code that makes system images (``provisioning/images/tree.py``):
paths cannot leave the root, devices are left out, sizes and counts are bounded. What is written belongs to whoever
unpacks, with no setuid bits, and every folder can be entered by its owner, so that it can be removed again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tarfile
from pathlib import Path
from typing import IO, cast

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning import worker
from strata.provisioning.images import oci
from strata.provisioning.images.archive import take
from strata.provisioning.images.disk_space import Room
from strata.provisioning.images.layers import check_file, unpack
from strata.provisioning.images.release import ImageConfig
from strata.provisioning.images.shelf import Shelf
from strata.provisioning.images.tarball import Body
from strata.provisioning.images.tree import MOST_BYTES, Inode, Tree
from strata.provisioning.images.unpacking import limits

PLACES = (
    "dev",
    "proc",
    "sys",
    "tmp",
    "run",
    "mnt",
    "home",
    ".strata",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/bin",
)
"""Folders that every container has: what runtimes mount over, and where drivers' files and the job's folder come."""
FILES = ("etc/resolv.conf", "etc/hosts", "etc/passwd", "etc/group")
_PIECE = 1 << 20


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Which image (the digest of its manifest) is written where. Its blobs are on the shelf, or in an archive."""

    shelf: str
    manifest: str
    archive: str = ""
    work: str
    """An empty folder on the same disk, for layers."""
    into: str
    """A folder that is not there yet."""
    most: int = MOST_BYTES


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    config: ImageConfig
    entrypoint: tuple[str, ...] = ()
    architecture: str = ""
    files: int = 0
    bytes: int = 0


async def write(order: Order, size: int) -> Unpacked:
    """Have it written; ``size``: the bytes of its layers. Raises what is wrong with the image."""
    return await worker.ask(__name__, order, Unpacked, limits(size, file=order.most), about="image")


# -- in the process of its own


def written(order: Order) -> Unpacked:
    """Do it."""
    shelf, work, into = Shelf(Path(order.shelf)), Path(order.work), Path(order.into)
    if order.archive:
        taken = take(shelf, Path(order.archive), work, ref="", run=ImageConfig(), most=order.most)
        if taken.manifest != order.manifest:
            raise BadRequest(f"holds another image: {taken.manifest[:19]}", where=order.manifest[:19])
    manifest = oci.parse_manifest(shelf.read(order.manifest))
    config = oci.parse_config(shelf.read(manifest.config.digest), len(manifest.layers))
    tree = Tree(most_bytes=order.most)
    with contextlib.ExitStack() as opened:
        tars = []
        left = order.most
        for number, (layer, diff_id) in enumerate(zip(manifest.layers, config.rootfs.diff_ids, strict=True)):
            blob, plain = shelf.blob(layer.digest), work / f"{number}.tar"
            check_file(blob, layer.digest)
            left -= unpack(blob, plain, diff_id=diff_id, most=left)
            tars.append(opened.enter_context(tarfile.open(plain, "r:", errors="surrogateescape")))
            tree.apply(number, tars[-1])
        for path in PLACES:
            tree.provide(path, "dir")
        for path in FILES:
            tree.provide(path, "file")
        files, size = _write(tree, tars, into, Room(work, order.most, "image"))
    said = config.config or oci.RunConfig()
    return Unpacked(
        config=config.run,
        entrypoint=said.entrypoint or (),
        architecture=config.architecture[:32],
        files=files,
        bytes=size,
    )


def _write(tree: Tree, tars: list[tarfile.TarFile], into: Path, room: Room) -> tuple[int, int]:
    first: dict[int, str] = {}
    count = size = 0
    into.mkdir(mode=0o755)
    for path, inode in tree.walk():
        place = f"{into}/{path}"
        count += 1
        if inode.kind == "dir":
            Path(place).mkdir(mode=0o700)
        elif inode.kind == "link":
            os.symlink(inode.target, place)  # noqa: PTH211 - Path would not keep bytes that are no text
        elif inode.kind == "fifo":
            os.mkfifo(place, inode.mode & 0o777)
        elif id(inode) in first:
            os.link(first[id(inode)], place)
        else:
            first[id(inode)] = place
            room.take(inode.size)
            size += inode.size
            _file(place, inode, tars)
    for path, inode in tree.walk():  # at last: what its owner may not write can be filled no more
        if inode.kind == "dir":
            os.chmod(f"{into}/{path}", inode.mode & 0o777 | 0o700)  # noqa: PTH101
            os.utime(f"{into}/{path}", (inode.mtime, inode.mtime))
    _to_disk(into)
    return count, size


def _file(place: str, inode: Inode, tars: list[tarfile.TarFile]) -> None:
    with open(place, "xb") as out:  # noqa: PTH123 - the same
        if inode.layer >= 0:
            body = Body(cast("IO[bytes]", tars[inode.layer].fileobj), inode.at, inode.size, inode.pieces)
            while piece := body.read(_PIECE):
                out.write(piece)
        os.fchmod(out.fileno(), inode.mode & 0o777 | 0o400)
    os.utime(place, (inode.mtime, inode.mtime))


def _to_disk(folder: Path) -> None:
    """All of it, before anybody calls it whole: a machine that loses its power keeps names before contents."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(opened):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(opened)


def _answered(order: Order) -> Unpacked:
    try:
        return written(order)
    except tarfile.TarError as error:
        raise BadRequest(f"a layer is not a sound tar archive: {error}", where="image") from None


if __name__ == "__main__":
    os.umask(0o022)
    worker.answer(Order, _answered, nobody=lambda _: False)
