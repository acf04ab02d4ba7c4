"""Bytes of an image, from whichever controller has them: each chunk checked as it arrives, resumed where it broke."""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Iterator

from ..errors import AgentError, Corrupt, Refused, Unreachable
from ..link.http import Connection
from .release import Release

_TRIES = 6
_CORRUPT_TRIES = 3
_ROUND = 16  # chunks per request: a request costs a round trip, an aborted one at most a chunk


class Source:
    """Reads images from the controllers in turn; one connection is kept."""

    def __init__(self, controllers: list[str], context: Callable[[], ssl.SSLContext]) -> None:
        self._controllers = controllers
        self._context = context
        self._turn = 0
        self._connection: Connection | None = None

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def next(self) -> None:
        """Ask another controller from now on."""
        self.close()
        self._turn += 1

    def chunk_list(self, release: Release) -> bytes:
        """The 32-byte digests of the image's chunks, themselves checked against the signed release."""
        length = release.count * 32
        for _ in range(_CORRUPT_TRIES):
            data = bytearray(length)
            for piece in self._ranges(f"/images/chunks/{release.chunks_hex}", 0, length, length):
                data[:] = piece
            if hashlib.sha256(data).hexdigest() == release.chunks_hex:
                return bytes(data)
            self.next()
        raise Corrupt(f"{release}: the list of its chunks is not the one that was signed")

    def chunks(self, release: Release, digests: bytes, first: int, count: int) -> Iterator[tuple[int, memoryview]]:
        """Checked chunks in order. Each is valid only until the next one is asked for."""
        index, bad, end = first, 0, first + count
        while index < end:
            most = min(end, index + _ROUND)
            start, stop = index * release.chunk, min(most * release.chunk, release.size)
            for piece in self._ranges(f"/images/squashfs/{release.hex}.squashfs", start, stop, release.chunk):
                if hashlib.sha256(piece).digest() != digests[index * 32 : index * 32 + 32]:
                    bad += 1
                    self.next()
                    if bad >= _CORRUPT_TRIES:
                        raise Corrupt(f"{release}: chunk {index} arrived corrupt {bad} times")
                    break
                bad = 0
                yield index, piece
                index += 1

    def _ranges(self, path: str, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Bytes start..stop in pieces of `size`; an interrupted transfer goes on at the piece that it broke."""
        buffer = memoryview(bytearray(min(size, stop - start)))
        failures = 0
        while start < stop:
            try:
                connection = self._ask(path, start, stop)
                while start < stop:
                    piece = buffer[: min(size, stop - start)]
                    connection.fill(piece)
                    start += len(piece)
                    failures = 0
                    yield piece
            except (Unreachable, Refused) as error:
                self.next()
                failures += 1
                if failures >= _TRIES * len(self._controllers):
                    raise AgentError(f"{path} cannot be fetched: {error}") from None
                if failures % len(self._controllers) == 0:
                    time.sleep(min(8.0, 0.25 * 2.0 ** (failures // len(self._controllers))))
            except GeneratorExit:
                self.close()  # the rest of the answer is not wanted
                raise

    def _ask(self, path: str, start: int, stop: int) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._controllers[self._turn % len(self._controllers)], self._context())
        self._connection.send("GET", path, headers=f"Range: bytes={start}-{stop - 1}\r\n")
        reply = self._connection.head()
        if reply.status not in (200, 206):
            self._connection.body(reply)
            raise Refused(reply.status, f"GET {path}")
        expected = stop - start
        if reply.status == 200 and (start or reply.length != expected):
            raise Unreachable(f"{path}: the whole file came instead of a range")
        if reply.length != expected:
            raise Unreachable(f"{path}: {reply.length} bytes came instead of {expected}")
        return self._connection
