"""The language in which people name nodes: text in, node indices out.

A selector is terms joined by spaces; a node must meet all of them. ``!`` before a term turns it round.

=====================  =====================================================================
``*``                  every node
``n[1-4,7],@a!@b``     a nodeset: ``,`` or, ``!`` but not, ``&`` and, ``^`` one of; left to right; ``n7`` is ``n007``
``@compute``           the members of a group
``n1*``                names that match (``*`` any text, ``?`` any character)
``label:rack=7``       has the label (``label:rack``: whatever its value)
``role:compute,login`` has one of these roles
``arch:x86_64``        has this architecture
``location:x1000c0``   is that place, or is somewhere within it
``state:faulted,held`` is in one of these states
``fact:power=off``     is believed to have this value (``unknown`` too)
``want:image=v2``      is desired to have this value
=====================  =====================================================================

What each term finds is in ``strata.fleet.selectors.terms``. States and facts are the engine's: they come through
``selectable.StateView``. A selector without them and without wants is *static*, and only such a one may stand in a
document.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from strata.core.errors import BadRequest
from strata.core.nodeset import expand
from strata.fleet.columns import Indices, Mask
from strata.fleet.selectors import terms
from strata.fleet.selectors.selectable import Selectable, StateView

KEYS = ("label", "role", "arch", "location", "state", "fact", "want")
LIMIT = 250_000
"""The most nodes that a nodeset may name; more are reached by ``*``, groups and labels. Expanding these takes 0.2 s."""

MOST_GROUPS = 1000
"""The most groups that one ``@rack[1-9]`` may name."""

_LONGEST = 4_000_000
_KEEP = 64
_KEEP_BELOW = 10_000
_kept: dict[str, Selector] = {}
"""Selectors that were read lately. Large ones are not kept: a few could hold gigabytes of names."""
_TERM = re.compile(r"(?P<key>[a-z]+):(?P<rest>.*)\Z", re.DOTALL)


class Selector:
    """A selector that was read and found well-formed. Evaluated against a fleet as often as one likes."""

    __slots__ = ("_closed", "_terms", "groups", "named", "static", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.static = True
        """The answer changes only with nodes and groups."""
        self.groups: set[str] = set()
        """The groups that it names; ``*`` for any."""
        self.named = 0
        """How many nodes it names one by one."""
        words = _words(text)
        self._terms = [self._term(word) for word in words]
        self._closed = [atoms for word in words if (atoms := _bounds(word))]

    def mask(self, fleet: Selectable, states: StateView | None = None, *, strict: bool = True) -> Mask:
        """Who is meant. ``strict``: a node or group that does not exist is an error; otherwise it is nobody."""
        context = terms.Context(fleet, states, strict)
        found = fleet.alive.copy()
        for term in self._terms:
            found &= term(context)
        return found

    def indices(self, fleet: Selectable, states: StateView | None = None, *, strict: bool = True) -> Indices:
        """Who is meant, as ascending indices."""
        return np.flatnonzero(self.mask(fleet, states, strict=strict))

    def within(self, groups: Collection[str]) -> bool:
        """Whether it can mean no node that it does not name and that is in none of ``groups``, whatever nodes there
        are."""
        return any(_is_within(atoms, groups) for atoms in self._closed)

    def _term(self, word: str) -> terms.Term:
        if word.startswith("!"):
            # In one go, however many there are: a call for each would let a caller exhaust the stack.
            bare = word.lstrip("!")
            inner = self._term(bare)
            return inner if (len(word) - len(bare)) % 2 == 0 else lambda context: ~inner(context)
        if match := _TERM.match(word):
            return self._keyed(match["key"], match["rest"])
        return self._nodeset(word)

    def _keyed(self, key: str, rest: str) -> terms.Term:
        where = f"{key}:{rest}"[:80]
        if key not in KEYS:
            hint = "a group is @NAME" if key == "group" else ""
            raise BadRequest(f"no such term; known are {', '.join(f'{k}:' for k in KEYS)}", where=where, hint=hint)
        if not rest:
            raise BadRequest(f"nothing after '{key}:'", where=where)
        if key in ("role", "arch"):
            return terms.in_column(key, rest.split(","))
        if key == "label":
            return terms.labelled(*rest.partition("="))
        if key == "location":
            return terms.located(rest)
        self.static = False
        if key == "want":
            return terms.wanted(*_pair(where, rest))
        if key == "state":
            return terms.in_state(where, rest.split(","))
        return terms.believed(where, *_pair(where, rest))

    def _nodeset(self, word: str) -> terms.Term:
        steps: list[tuple[str, terms.Term]] = []
        for operator, atom in _atoms(word):
            steps.append((operator, self._atom(atom)))

        def nodeset(context: terms.Context) -> Mask:
            found = context.none()
            for operator, term in steps:
                if operator == ",":
                    found |= term(context)
                elif operator == "!":
                    found &= ~term(context)
                elif operator == "&":
                    found &= term(context)
                else:
                    found ^= term(context)
            return found

        return nodeset

    def _atom(self, atom: str) -> terms.Term:
        if atom == "*":
            return lambda context: context.fleet.alive
        if atom.startswith("@"):
            names = expand(atom[1:], {}, MOST_GROUPS) if "[" in atom else [atom[1:]]
            self.groups.update(names)
            return terms.in_any_group if names == ["*"] else terms.in_groups(names)
        if "*" in atom or "?" in atom:
            return terms.matching(atom)
        names = expand(atom, {}, LIMIT - self.named) if "[" in atom else [atom]
        self.named += len(names)
        return terms.named(names)


_Bound = frozenset[str] | None
"""The groups that hold whatever an atom means; none for what it names itself; None: it may mean anybody."""


def _bounds(word: str) -> list[tuple[str, _Bound]]:
    """The operators of a nodeset with what bounds their operands; empty: it is no nodeset."""
    if word.startswith("!") or _TERM.match(word):
        return []
    return [(operator, _bound(atom)) for operator, atom in _atoms(word)]


def _bound(atom: str) -> _Bound:
    if atom.startswith("@"):
        names = expand(atom[1:], {}, MOST_GROUPS) if "[" in atom else [atom[1:]]
        return None if "*" in names else frozenset(names)
    return None if "*" in atom or "?" in atom else frozenset()


def _is_within(atoms: Sequence[tuple[str, _Bound]], groups: Collection[str]) -> bool:
    within = True
    for operator, bound in atoms:
        inside = bound is not None and bound <= set(groups)
        if operator == "&":
            within = within or inside
        elif operator != "!":
            within = within and inside
    return within


def parse(text: str) -> Selector:
    """Read a selector; ``BadRequest`` says which term is wrong and what would be accepted."""
    if len(text) > _LONGEST:
        raise BadRequest(f"a selector of {len(text)} characters; at most {_LONGEST} are read", where=text[:40])
    selector = _kept.get(text)
    if selector is None:
        selector = Selector(text)
        if selector.named + len(text) < _KEEP_BELOW:
            if len(_kept) >= _KEEP:
                _kept.clear()
            _kept[text] = selector
    return selector


def _words(text: str) -> list[str]:
    words = text.split()
    if not words:
        raise BadRequest("an empty selector; write * for every node", where="select")
    return words


def _atoms(word: str) -> list[tuple[str, str]]:
    """(operator, operand) in order; operators inside brackets belong to the range."""
    found: list[tuple[str, str]] = []
    operator, start, depth = ",", 0, 0
    for at, char in enumerate(word):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char in ",!&^" and depth == 0:
            found.append((operator, word[start:at]))
            operator, start = char, at + 1
    found.append((operator, word[start:]))
    if depth or any(not atom or atom == "@" for _, atom in found):
        problem = "brackets do not match" if depth else "an operand is missing"
        raise BadRequest(f"{problem} in a nodeset", where=word[:80], hint="like n[1-4,7],@compute!@gpu")
    return found


def _pair(where: str, rest: str) -> tuple[str, str]:
    name, equals, value = rest.partition("=")
    if not equals or not name or not value:
        raise BadRequest("needs VARIABLE=VALUE", where=where, hint="like fact:power=off")
    return name, value
