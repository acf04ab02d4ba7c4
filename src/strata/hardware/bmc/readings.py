"""Sensors told apart: makers give one name to several. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from strata.hardware.bmc.protocol import Reading


class Marked(NamedTuple):
    """A reading, and what else its BMC says by which it may be told from others of its name, the most readable first.
    The last of them are no two readings' alike."""

    reading: Reading
    marks: tuple[str, ...]


def distinct(found: Sequence[Marked]) -> list[Reading]:
    """All of them, in their order. Those of one kind and name have what tells them apart in brackets behind it: a name
    by which the same sensor is found the next time as well, whatever the others measure."""
    alike: dict[tuple[str, str], list[int]] = {}
    for place, (reading, _) in enumerate(found):
        alike.setdefault((reading.kind, reading.name), []).append(place)
    names = [reading.name for reading, _ in found]
    for (_, name), places in alike.items():
        if len(places) > 1:
            for place, mark in zip(places, _apart([found[place].marks for place in places]), strict=True):
                names[place] = f"{name} ({mark})"
    return [replace(one.reading, name=name) for one, name in zip(found, names, strict=True)]


def _apart(marks: Sequence[Sequence[str]]) -> Iterable[str]:
    """The first mark that each has of its own, or (where there is none) which of them it is."""
    for column in zip(*marks, strict=False):
        if all(column) and len(set(column)) == len(column):
            return column
    return [str(number) for number in range(1, len(marks) + 1)]
