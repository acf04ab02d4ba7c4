"""Where console logs are on disk, and what is in a segment. Standard library only: the search worker imports it too.

A node has a directory of segments, named after their first line; old ones are compressed. A line of a segment is
``id TAB time TAB source TAB text``. A line that is torn (the disk was full, the power failed) is skipped.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

PLAIN, PACKED = ".log", ".log.gz"

Source = Literal["serial", "syslog", "netconsole", "agent", "strata"]
SOURCES: frozenset[str] = frozenset(get_args(Source))


class Line(NamedTuple):
    """One line: its number in the node's stream, when it came (Unix seconds), whence, and what it says."""

    id: int
    time: float
    source: Source
    text: str


class Segment(NamedTuple):
    """A file of lines, from the line ``first`` on."""

    first: int
    path: Path
    packed: bool


def directory_of(root: Path, node: str) -> Path:
    """The directory of a node. Spread, so that no directory holds a whole fleet."""
    return root / f"{zlib.crc32(node.encode()) & 0xFF:02x}" / node


def segments(directory: Path) -> list[Segment]:
    """The segments of a node, oldest first."""
    found: dict[int, Segment] = {}
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    for name in names:
        packed = name.endswith(PACKED)
        number = name.removesuffix(PACKED).removesuffix(PLAIN)
        # Both are there if the process was killed between writing the one and removing the other.
        if number.isdecimal() and (packed or int(number) not in found):
            found[int(number)] = Segment(int(number), directory / name, packed)
    return [found[first] for first in sorted(found)]


def lines(segment: Segment) -> Iterator[Line]:
    """The lines of a segment that make sense. One that was packed or removed meanwhile is read as far as it goes."""
    try:
        data = gzip.decompress(segment.path.read_bytes()) if segment.packed else segment.path.read_bytes()
    except FileNotFoundError:
        other = segment.path.with_name(f"{segment.first:012}{PACKED}")
        if segment.packed or not other.exists():
            return
        data = gzip.decompress(other.read_bytes())
    except (OSError, EOFError, zlib.error):
        return
    for raw in data.decode("utf-8", "replace").split("\n"):
        line = parse(raw)
        if line is not None:
            yield line


def parse(raw: str) -> Line | None:
    """A line as it is written; None if it is torn."""
    parts = raw.split("\t", 3)
    if len(parts) != 4 or not parts[0].isdecimal() or parts[2] not in SOURCES:
        return None
    try:
        return Line(int(parts[0]), float(parts[1]), cast("Source", parts[2]), parts[3])
    except ValueError:
        return None


def written(line: Line) -> bytes:
    """A line as it is written."""
    return f"{line.id}\t{line.time:.3f}\t{line.source}\t{line.text}\n".encode("utf-8", "replace")
