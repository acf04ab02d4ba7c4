"""An image read on demand: a process of its own, so that what runs from it outlives the agent.

Chunks are fetched when they are first read, checked, and kept up to a limit; the kernel's page cache holds the rest. A
controller that is away is waited for: reads hang rather than fail, and go on when it is back.
"""

from __future__ import annotations

import json
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from ..errors import AgentError, Corrupt
from ..link.http import tls_context
from ..paths import Paths
from .damage import note_damage
from .fetch import Source
from .nbd import serve
from .release import Release

_CACHE_BYTES = 32 << 20


class ChunkCache:
    """Reads any range of an image through checked chunks, the latest of them kept in memory."""

    def __init__(
        self,
        release: Release,
        digests: bytes,
        source: Source,
        say: Callable[[str], None],
        damaged: Callable[[str], None],
    ) -> None:
        """``damaged`` takes why a chunk cannot be had from any controller as it was signed, ``say`` anything else."""
        self._release = release
        self._digests = digests
        self._source = source
        self._say = say
        self._damaged = damaged
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._most = max(4, _CACHE_BYTES // release.chunk)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the image; Corrupt where the controllers have other ones than were signed."""
        size = self._release.chunk
        first, last = offset // size, (offset + length - 1) // size
        data = b"".join(self._chunk(index) for index in range(first, last + 1))
        start = offset - first * size
        return data[start : start + length]

    def _chunk(self, index: int) -> bytes:
        chunk = self._kept.get(index)
        if chunk is None:
            chunk = self._fetch(index)
            self._kept[index] = chunk
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(index)
        return chunk

    def _fetch(self, index: int) -> bytes:
        while True:
            try:
                for _, piece in self._source.chunks(self._release, self._digests, index, 1):
                    return bytes(piece)
            except Corrupt as error:
                self._damaged(str(error))
                raise
            except AgentError as error:
                self._say(f"waiting for a controller: {error}")
                time.sleep(2)


def main(arguments: list[str]) -> None:
    """Serve one image as one block device: RUN-DIRECTORY DEVICE, the release and its chunk list on standard input."""
    run, device = arguments
    paths = Paths(run=Path(run))
    told = json.loads(sys.stdin.buffer.readline())
    release = Release(told["release"])
    source = Source(told["controllers"], lambda: tls_context(paths.authority, paths.identity))

    def say(text: str) -> None:
        print(f"strata-agent: {device}: {text}", file=sys.stderr, flush=True)

    def damaged(why: str) -> None:
        say(why)
        note_damage(paths, release, why)

    def ready() -> None:
        print("ready", flush=True)

    cache = ChunkCache(release, bytes.fromhex(told["digests"]), source, say, damaged)
    serve(device, release.size, cache.read, ready)
