"""Names of nodes as Slurm writes and takes them.

Its hostlists look like our nodesets, and are less: nothing stands behind the last pair of brackets, and one pair has
at most 65,536 names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from strata.core.nodeset import expand, fold

_LONGEST_RANGE = 50_000
_BEHIND = re.compile(r"(?P<number>[0-9]+)\Z|(?P<text>[^\]0-9])\Z")
_PARTS = re.compile(r"((?:[^,\[]|\[[^\]]*\])+)")
_NUMBERS = re.compile(r"([0-9]+)")


def hostlist(names: Iterable[str]) -> str:
    """Names, folded as Slurm takes them."""
    every = sorted(set(names))
    folded = ",".join(fold(every[at : at + _LONGEST_RANGE]) for at in range(0, len(every), _LONGEST_RANGE))
    return ",".join(_ended(part) for part in _PARTS.findall(folded))


def _ended(part: str) -> str:
    """With nothing behind the last pair of brackets: ``x[1-2]n0`` is ``x[1-2]n[0]``; ``n[1-2]a`` is not to be said."""
    found = _BEHIND.search(part) if "[" in part else None
    if found is None:
        return part
    return ",".join(expand(part)) if found["text"] else f"{part[: found.start()]}[{found['number']}]"


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts names by their numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name)]


def in_order(names: Sequence[str]) -> str:
    """Names (or addresses) folded, in their order: so that each belongs to one of another list. One number at a time:
    in which order Slurm goes through several is its own affair."""
    parted = [_NUMBERS.split(name) for name in names]
    pieces: list[str] = []
    at = 0
    while at < len(parted):
        place, end = 0, at + 1
        while end < len(parted) and (found := _follows(parted[end - 1], parted[end])) and place in (0, found):
            place, end = found, end + 1
        if place and parted[at][-1] == "":
            low, high = parted[at][place], parted[end - 1][place]
            before, after = "".join(parted[at][:place]), "".join(parted[at][place + 1 :])
            pieces.append(_ended(f"{before}[{low}-{high}]{after}"))
        else:
            pieces += names[at:end]
        at = end
    return ",".join(pieces)


def _follows(one: list[str], other: list[str]) -> int:
    """Where the number is that is one more in the other, all else being equal; 0: nowhere."""
    if len(one) != len(other):
        return 0
    places = [place for place, (this, that) in enumerate(zip(one, other, strict=True)) if this != that]
    if len(places) != 1 or not places[0] % 2:
        return 0
    this, that = one[places[0]], other[places[0]]
    padded = len(this) == len(that) or not (this.startswith("0") or that.startswith("0"))
    return places[0] if padded and len(that) < 10 and int(this) + 1 == int(that) else 0
