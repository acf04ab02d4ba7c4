"""A layer's blob as the plain tar that it is: checked against its digests on the way, and bounded."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from strata.core.errors import BadRequest, Corrupt, Unavailable

PIECE = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


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
    with _opened(blob) as source, plain.open("xb") as file:
        try:
            while piece := source.read(PIECE):
                size += len(piece)
                if size > most:
                    raise BadRequest(f"more than {most >> 20} MiB unpacked", where=blob.name[:12])
                digest.update(piece)
                file.write(piece)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadRequest(f"the layer cannot be unpacked: {error}", where=blob.name[:12]) from None
    if diff_id and f"sha256:{digest.hexdigest()}" != diff_id:
        raise BadRequest("the layer is not the one that the image's configuration names", where=blob.name[:12])
    return size


def pack(plain: Path, blob: Path) -> None:
    """Write ``plain`` compressed to ``blob``."""
    with plain.open("rb") as source, blob.open("xb") as into:
        try:
            done = subprocess.run(["zstd", "-cq", "-3"], stdin=source, stdout=into, stderr=subprocess.PIPE, check=False)
        except FileNotFoundError:
            raise Unavailable("zstd is not installed", hint="apt-get install zstd") from None
    if done.returncode:
        raise Unavailable(f"zstd failed: {done.stderr.decode(errors='replace').strip()[:200]}", where=str(blob))


@contextmanager
def _opened(blob: Path) -> Iterator[IO[bytes]]:
    with blob.open("rb") as probe:
        magic = probe.read(4)
    with blob.open("rb") as file:
        if magic.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as plain:
                yield plain  # type: ignore[misc]
        elif magic == _ZSTD:
            with _zstd(file, blob.name) as plain:
                yield plain
        else:
            yield file


@contextmanager
def _zstd(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    try:
        process = subprocess.Popen(
            ["zstd", "-dcq", "--memory=128MB"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise Unavailable(
            "the layer is compressed by zstd, which is not installed", hint="apt-get install zstd"
        ) from None
    assert process.stdout is not None
    try:
        with process.stdout:
            yield process.stdout
        if process.wait():
            raise BadRequest("the layer cannot be unpacked: not sound zstd data", where=name[:12])
    finally:
        process.kill()
        process.wait()
