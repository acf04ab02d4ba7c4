"""A layer's blob as the plain tar that it is: checked against its digests on the way, and bounded.

Bounded by a budget, by what is free on the disk, and by how far honest data grows. ``zstd`` runs as nobody, and sees
its input and its output.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from strata.core.errors import BadRequest, Corrupt, Unavailable
from strata.provisioning.images.disk_space import Room, may_grow_to
from strata.provisioning.images.tarball import entries

PIECE = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_NOT_TAKEN = {b"\xfd7zX": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"\x04\x22\x4d\x18": "lz4"}
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all")


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as ``sha256:...``."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def check_file(path: Path, digest: str) -> None:
    """Raise ``Corrupt`` unless the file is what its name says."""
    found = file_digest(path)
    if found != digest:
        raise Corrupt(f"its digest is {found}", where=f"{digest[:19]}…", hint="import the image again")


def unpack(blob: Path, plain: Path, *, diff_id: str, most: int) -> int:
    """Write the tar inside ``blob`` to ``plain``; its bytes. ``diff_id`` is what it must hash to (empty: anything)."""
    digest = hashlib.sha256()
    size = 0
    name = blob.name[:12]
    room = Room(plain.parent, most, name)
    packed = packing(blob)
    grown = may_grow_to(blob.stat().st_size) if packed else most
    with _opened(blob, packed) as source, plain.open("xb") as file:
        try:
            while piece := source.read(PIECE):
                size += len(piece)
                if size > grown:
                    raise BadRequest(
                        f"grows to more than {grown >> 20} MiB, which no honest data of its size does",
                        where=name,
                        hint="if it is honest, compress it less, or leave out files of zeros",
                    )
                room.take(len(piece))
                digest.update(piece)
                file.write(piece)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadRequest(f"the layer cannot be unpacked: {error}", where=name) from None
    if diff_id and f"sha256:{digest.hexdigest()}" != diff_id:
        raise BadRequest("the layer is not the one that the image's configuration names", where=name)
    with plain.open("rb") as file:
        # Whoever opens it with the standard library's reader has it read the first entry, however hostile.
        next(entries(file, name), None)
    return size


def packing(blob: Path) -> str:
    """How it is compressed: ``gzip``, ``zstd`` or not at all (empty); ``BadRequest`` for another way."""
    with blob.open("rb") as probe:
        magic = probe.read(4)
    for start, kind in _NOT_TAKEN.items():
        if magic.startswith(start):
            raise BadRequest(f"is compressed by {kind}", where=blob.name[:12], hint="gzip, zstd or nothing is taken")
    return "gzip" if magic.startswith(_GZIP) else "zstd" if magic == _ZSTD else ""


def pack(plain: Path, blob: Path) -> None:
    """Write ``plain`` compressed to ``blob``."""
    _need_zstd("an image is kept compressed by zstd")
    room = Room(blob.parent, plain.stat().st_size + PIECE, "layer")
    with plain.open("rb") as source, blob.open("xb") as into:
        process = subprocess.Popen(["zstd", "-cq", "-3"], stdin=source, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            with process.stdout:
                while piece := process.stdout.read(PIECE):
                    room.take(len(piece))
                    into.write(piece)
            if process.wait():
                raise Unavailable(f"zstd failed with status {process.returncode}", where=str(blob), hint="see the log")
        finally:
            process.kill()
            process.wait()


@contextmanager
def _opened(blob: Path, packed: str) -> Iterator[IO[bytes]]:
    with blob.open("rb") as file:
        if packed == "gzip":
            with gzip.GzipFile(fileobj=file) as plain:
                yield plain  # type: ignore[misc]
        elif packed == "zstd":
            with _zstd(file, blob.name) as unzipped:
                yield unzipped
        else:
            yield file


@contextmanager
def _zstd(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    nobody = _NOBODY if os.geteuid() == 0 else ()
    _need_zstd("the layer is compressed by zstd")
    process = subprocess.Popen(
        [*nobody, "zstd", "-dcq", "--memory=128MB"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            yield process.stdout
        if process.wait():
            raise BadRequest("the layer cannot be unpacked: not sound zstd data", where=name[:12])
    finally:
        process.kill()
        process.wait()


def _need_zstd(why: str) -> None:
    if shutil.which("zstd") is None:
        raise Unavailable(f"{why}, which is not installed", hint="apt-get install zstd")
