"""Sets of nodes as administrators type and read them: ClusterShell's language, ``n[1-4,7],@gpu!n3``.

Names, ranges and ``@group`` joined from left to right by ``,`` (and), ``!`` (without), ``&`` (also in) and ``^``
(in just one). ClusterShell reads the ranges; groups come from the caller, never from ClusterShell's files. How many
names a text stands for is counted from its syntax, before any is made. Knows nothing of which nodes exist;
whole-fleet paths keep integers (``strata.core.intset``) and fold at the edge.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from strata.core.errors import BadRequest, NotFound

LIMIT = 1_000_000
"""The most names that a text may spell out."""

LONGEST = 1 << 19
"""The longest text, in characters. Longer sets are folded before they travel."""

_GROUP_WORK = 10
"""Groups and wildcards may touch this many times the limit: their members exist, so they cost less than new names."""

_DIGITS = 15
_NAME_LENGTH = 255
_DIMENSIONS = 10
_BRACKET = r"\[[^\[\]]*\]"
# No repetition inside a repetition: a failing match takes time linear in the text.
_OPERAND = re.compile(rf"\s*(@?)((?:[A-Za-z0-9_.:*?-]|{_BRACKET})+)\s*([,!&^]|\Z)")
_WILD = re.compile(r"[*?]")
_PIECES = re.compile(_BRACKET)
_RANGE = re.compile(
    rf"\s*([0-9]{{1,{_DIGITS}}})\s*(?:-\s*([0-9]{{1,{_DIGITS}}})\s*(?:/\s*([0-9]{{1,{_DIGITS}}})\s*)?)?\Z"
)


class Groups(Protocol):
    """Whoever knows the groups; a plain mapping from a name to its members will do."""

    def get(self, name: str, /) -> Collection[str] | None:
        """The names of the group's members, or None if there is no such group."""
        ...


def expand(
    text: str, groups: Groups | None = None, limit: int = LIMIT, nodes: Collection[str] | None = None
) -> list[str]:
    """The names that ``text`` stands for, each once, in the order of their first mention (ranges ascending).

    ``nodes`` is what the wildcards ``*`` and ``?`` choose from. Raises ``BadRequest`` for what cannot be read or is
    more than ``limit`` names, before making them; ``NotFound`` for an unknown group.
    """
    if len(text) > LONGEST:
        raise BadRequest(
            f"{len(text)} characters; at most {LONGEST} are read", where="nodeset", hint="fold it, or make a group"
        )
    reader = _Reader(groups, limit, nodes)
    # All of it is counted and looked up before the first name is made.
    terms = [
        (operator, reader.group(operand) if is_group else reader.count(operand))
        for operator, is_group, operand in _operands(text)
    ]
    chosen: dict[str, None] = {}
    for operator, term in terms:
        members = reader.names(term) if isinstance(term, str) else term
        if operator == ",":
            chosen.update(dict.fromkeys(members))
        elif operator == "!":
            for name in members:
                chosen.pop(name, None)
        elif operator == "&":
            both = frozenset(members)
            chosen = {name: None for name in chosen if name in both}
        else:
            for name in dict.fromkeys(members):
                if name in chosen:
                    del chosen[name]
                else:
                    chosen[name] = None
    return list(chosen)


NUMBERED = re.compile(r"(.*?)(\d{1,9})([^\d]{0,20})")
"""A name with a number in it: what is before its last number, that, and what follows."""


def padded(name: str) -> list[str]:
    """What ``name`` may stand for if it lacks zeros in front of its last number: ``n7`` may be ``n07``, ``n007`` ..."""
    match = NUMBERED.fullmatch(name[:80])
    if match is None:
        return []
    head, digits, tail = match.groups()
    return [f"{head}{int(digits):0{width}d}{tail}" for width in range(len(digits) + 1, 10)]


def fold(names: Iterable[str]) -> str:
    """The short form of ``names``: ``n[1-4,7]``. Expands to the same set; equal sets fold to equal texts."""
    finished: list[str] = []
    # Heads still to be folded, each with a tail that is. Starts with whole names; every round folds the last number
    # of each head, so that names with several numbers (x[1000-1001]c[0-7]) fold in all of them.
    waiting: Iterable[tuple[str, str]] = ((name, "") for name in set(names))
    while waiting:
        alike: dict[tuple[str, str], list[str]] = {}
        for head, tail in waiting:
            rest = head.rstrip("0123456789")
            if len(rest) == len(head):
                end = len(head.rstrip(_NOT_DIGITS)) if head.isascii() else 0
                tail = head[end:] + tail
                head = head[:end]
                rest = head.rstrip("0123456789")
            number = head[len(rest) :]
            if not 0 < len(number) <= _DIGITS:
                finished.append(head + tail)
            else:
                alike.setdefault((rest, tail), []).append(number)
        waiting = [(rest, _ranges(numbers) + tail) for (rest, tail), numbers in alike.items()]
    return ",".join(sorted(finished))


_NOT_DIGITS = "".join(chr(code) for code in range(128) if not chr(code).isdigit())


def _ranges(numbers: list[str]) -> str:
    """Digits as ClusterShell writes them: the number itself, or ``[1-4,7]``; numbers with zeros in front keep them."""
    if len(numbers) == 1:
        return numbers[0]
    padded = {len(number) for number in numbers if number[0] == "0" and len(number) > 1}
    by_width: dict[int, list[int]] = {}
    for number in numbers:
        width = len(number)
        by_width.setdefault(width if width in padded else 0, []).append(int(number))
    pieces = []
    for width, members in sorted(by_width.items()):
        members.sort()
        first = last = members[0]
        for member in itertools.chain(members[1:], (-1,)):
            if member == last + 1:
                last = member
                continue
            pieces.append(f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}")
            first = last = member
    return f"[{','.join(pieces)}]"


def _operands(text: str) -> Iterator[tuple[str, bool, str]]:
    """Each operand with the operator before it and whether it is a group."""
    if not text.strip():
        return
    place, operator = 0, ","
    while True:
        found = _OPERAND.match(text, place)
        if found is None:
            raise _explain(text, place)
        group, operand, following = found.groups()
        yield operator, bool(group), operand
        if not following:
            return
        place, operator = found.end(), following


def _explain(text: str, place: int) -> BadRequest:
    """What keeps an operand from being read at ``place``."""
    rest = text[place:].lstrip()
    where = f"nodeset, character {len(text) - len(rest) + 1}"
    near = repr(rest[:30])
    if not rest or rest[0] in ",!&^":
        return BadRequest("a name, range or @group is missing beside the operator", where=where)
    bad = re.search(r"[^A-Za-z0-9_.:*?@\[\],!&^/\s-]", rest)
    if bad:
        return BadRequest(f"found {bad.group()!r} in {near}; names have letters, digits, '-', '_', '.'", where=where)
    depth = 0
    for character in rest:
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            return BadRequest(f"brackets do not nest, and each is opened and closed once: {near}", where=where)
    if depth:
        return BadRequest(f"missing ']' after {near}", where=where)
    return BadRequest(f"cannot read {near}; expected like n[1-4,7],@group!n3", where=where)


class _Reader:
    """Turns operands into names, and counts them first."""

    def __init__(self, groups: Groups | None, limit: int, nodes: Collection[str] | None) -> None:
        self._groups = groups
        self._limit = limit
        self._nodes = nodes
        self._named = 0
        self._touched = 0

    def group(self, operand: str) -> Collection[str]:
        """The members of a group, or of each of several (``@rack[1-3]``)."""
        if operand == "*":
            self._touch(1, "@*")
            return self._nodes or ()
        self.count(operand)
        every: list[Collection[str]] = []
        for name in _spell(operand):
            members = self._groups.get(name) if self._groups is not None else None
            if members is None:
                raise NotFound(f"no such group: @{name[:80]}", where="nodeset", hint="'strata group list' shows them")
            self._touched += len(members)
            every.append(members)
        self._check_touched()
        return every[0] if len(every) == 1 else list(itertools.chain.from_iterable(every))

    def count(self, operand: str) -> str:
        """``operand`` itself, once it is known to be readable and not too much."""
        size = 1
        for bracket in _brackets(operand):
            size *= _size(bracket, self._limit)
            self._check(operand, size)  # here and not at the end: the product itself must stay small
        self._named += size
        self._check(operand, self._named)
        if _WILD.search(operand):
            self._touch(size, operand)
        return operand

    def names(self, operand: str) -> Collection[str]:
        """The names that a counted operand spells out or, with wildcards, matches."""
        if not _WILD.search(operand):
            return _spell(operand)
        return [name for mask in _spell(operand) for name in fnmatch.filter(self._nodes or (), mask)]

    def _touch(self, times: int, mask: str) -> None:
        if self._nodes is None:
            raise BadRequest(f"wildcards are not understood here: {mask[:80]}", where="nodeset")
        self._touched += times * len(self._nodes)
        self._check_touched()

    def _check_touched(self) -> None:
        if self._touched > _GROUP_WORK * self._limit:
            raise BadRequest("its groups and wildcards name too many nodes", where="nodeset")

    def _check(self, operand: str, size: int) -> None:
        if size > self._limit:
            raise BadRequest(
                f"names {size} nodes or more, by {operand[:40]!r}; at most {self._limit} are taken",
                where="nodeset",
                hint="narrow the range, or use a group",
            )


def _brackets(operand: str) -> list[str]:
    """What is in the brackets of a name, after a look at its shape."""
    literals = _PIECES.split(operand)
    if sum(map(len, literals)) > _NAME_LENGTH or len(literals) > _DIMENSIONS + 1:
        raise BadRequest(
            f"a name has at most {_NAME_LENGTH} characters and {_DIMENSIONS} ranges: {operand[:40]!r}...",
            where="nodeset",
        )
    if not all(literals[1:-1]):
        raise BadRequest(f"two ranges must not touch: {operand[:80]!r}", where="nodeset")
    return [bracket[1:-1] for bracket in _PIECES.findall(operand)]


def _size(ranges: str, limit: int) -> int:
    """How many numbers ``1-4,7`` stands for, or more if they overlap. Not counted on beyond ``limit``."""
    total = 0
    for one in ranges.split(","):
        if total > limit:
            break
        found = _RANGE.match(one)
        if found is None:
            raise BadRequest(
                f"{one[:40]!r} is not a range; expected like 7, 1-4 or 0-8/2 with at most {_DIGITS} digits",
                where="nodeset",
            )
        first, last, step = found.groups()
        if last is None:
            total += 1
            continue
        low, high, by = int(first), int(last), int(step or 1)
        if high < low or by < 1:
            raise BadRequest(f"range {one.strip()[:40]!r} does not ascend", where="nodeset")
        total += (high - low) // by + 1
    return total


def _spell(operand: str) -> list[str]:
    """Every name that a counted operand stands for."""
    if "[" not in operand:
        return [operand]
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    parts: list[list[str]] = []
    try:
        for literal, bracket in itertools.zip_longest(_PIECES.split(operand), _brackets(operand)):
            parts.append([literal])
            if bracket is not None:
                # As a set of digits, sorted here: ClusterShell's own order costs it seconds for a fleet.
                parts.append(sorted(sorted(frozenset(RangeSet(bracket))), key=len))
    except RangeSetException as error:
        raise BadRequest(f"{str(error)[:120]} in {operand[:80]!r}", where="nodeset") from None
    return ["".join(combination) for combination in itertools.product(*parts)]
