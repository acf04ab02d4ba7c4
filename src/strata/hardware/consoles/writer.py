"""Writes console logs: numbers lines, rotates and packs segments, keeps within the limits. Blocking, for one thread.

No file stays open between two writes, so a fleet costs a record for each node and nothing else.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from strata.hardware.consoles.files import PACKED, PLAIN, Line, Source, directory_of, lines, segments, written


class ConsoleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept, and how fast it may come. Sizes in bytes."""

    segment: int = 512 * 1024
    """A file that grows beyond this is packed, and another begun."""
    node: int = 8 * 2**20
    """Of one node, packed."""
    total: int = 20 * 2**30
    """Of all nodes; the oldest files of anybody go first."""
    lines_per_second: float = 500.0
    """Of one node, in the long run; what comes faster is dropped, and a line says how much."""
    burst: int = 5000
    """Lines that may come at once."""
    pending: int = 200_000
    """Lines that wait to be written, of all nodes together; more are dropped (the disk hangs)."""
    every: float = 0.1
    """Seconds between writes."""
    dumps: int = 16
    """Excerpts kept of one node."""


class Stream:
    """What is known of one node's log."""

    __slots__ = ("bytes", "first", "last", "path", "size", "time")

    def __init__(self) -> None:
        self.first = 1
        """Number of the oldest line that is kept."""
        self.last = 0
        """Number of the newest line."""
        self.time: float | None = None
        """When that came."""
        self.bytes = 0
        """On disk."""
        self.path: Path | None = None
        """The segment that is written to."""
        self.size = 0
        """Its size, as far as we wrote it."""


class ConsoleWriter:
    """The logs under ``root``."""

    def __init__(self, root: Path, limits: ConsoleLimits) -> None:
        self.root = root
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self.total = 0

    def load(self) -> None:
        """Look at what is there."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for shard in self.root.iterdir():
            if len(shard.name) == 2:
                for directory in shard.iterdir():
                    self.stream(directory.name)

    def stream(self, node: str) -> Stream:
        """The node's record; read from disk the first time."""
        known = self.streams.get(node)
        if known is None:
            known = self.streams[node] = self._read(node)
            self.total += known.bytes
        return known

    def _read(self, node: str) -> Stream:
        found = Stream()
        kept = segments(directory_of(self.root, node))
        for segment in kept:
            found.bytes += segment.path.stat().st_size
        if not kept:
            return found
        found.first = kept[0].first
        newest = kept[-1]
        found.last = newest.first - 1
        for line in lines(newest):
            found.last, found.time = line.id, line.time
        if not newest.packed:
            found.path, found.size = newest.path, -1  # whatever its end looks like
        return found

    def write(self, node: str, new: Iterable[tuple[float, Source, str]]) -> Sequence[Line]:
        """Append (time, source, text); the lines as they were numbered. Raises ``OSError`` when the disk does."""
        stream = self.stream(node)
        numbered = [Line(stream.last + place, *line) for place, line in enumerate(new, 1)]
        if not numbered:
            return ()
        data = b"".join(map(written, numbered))
        if stream.path is None:
            directory = directory_of(self.root, node)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            stream.path, stream.size = directory / f"{numbered[0].id:012}{PLAIN}", 0
        self._append(stream, stream.path, data)
        stream.last, stream.time = numbered[-1].id, numbered[-1].time
        stream.bytes += len(data)
        self.total += len(data)
        if stream.size >= self.limits.segment:
            self._rotate(node, stream)
        return numbered

    def _append(self, stream: Stream, path: Path, data: bytes) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            if size != stream.size and size and os.pread(file, 1, size - 1) != b"\n":
                data = b"\n" + data  # the power failed while the line before was written: let it not spoil this one
            try:
                while data:
                    data = data[os.write(file, data) :]
            except OSError:
                os.ftruncate(file, size)  # all or nothing
                raise
            finally:
                stream.size = os.fstat(file).st_size
        finally:
            os.close(file)

    def _rotate(self, node: str, stream: Stream) -> None:
        plain = stream.path
        assert plain is not None
        packed = plain.with_name(plain.name.removesuffix(PLAIN) + PACKED)
        part = packed.with_suffix(".part")
        part.write_bytes(gzip.compress(plain.read_bytes(), 3))
        part.chmod(0o600)
        part.replace(packed)
        plain.unlink()
        stream.path, stream.size = None, 0
        kept = segments(directory_of(self.root, node))
        sizes = [segment.path.stat().st_size for segment in kept]
        while sum(sizes) > self.limits.node and len(kept) > 1:
            kept.pop(0).path.unlink()
            sizes.pop(0)
        self.total += sum(sizes) - stream.bytes
        stream.bytes, stream.first = sum(sizes), kept[0].first

    def trim(self) -> None:
        """Remove the oldest packed files until all fit into nine tenths of the limit."""
        if self.total <= self.limits.total:
            return
        files = []
        for node, stream in self.streams.items():
            for segment in segments(directory_of(self.root, node)):
                if segment.path != stream.path:
                    about = segment.path.stat()
                    files.append((about.st_mtime, about.st_size, node, segment))
        files.sort(key=lambda file: file[0])
        for _, size, node, segment in files:
            if self.total <= self.limits.total * 0.9:
                return
            segment.path.unlink(missing_ok=True)
            stream = self.streams[node]
            stream.bytes -= size
            self.total -= size
            rest = segments(directory_of(self.root, node))
            stream.first = rest[0].first if rest else stream.last + 1
