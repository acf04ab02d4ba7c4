"""The language in which people name nodes: text in, node indices out.

A selector is terms joined by spaces; a node must meet all of them. ``!`` before a term turns it round.

=====================  =====================================================================
``*``                  every node
``n[1-4,7],@a!@b``     a nodeset: ``,`` or, ``!`` but not, ``&`` and, ``^`` one of; left to right
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

States and facts are the engine's: they come through ``StateView``. A selector without them and without wants is
*static*, and only such a one may stand in a document.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from strata.control.columns import Indices, Mask, Words
from strata.core.errors import BadRequest, NotFound
from strata.core.model import UNKNOWN, Model
from strata.core.nodeset import expand
from strata.core.xname import parse as parse_xname

STATES = ("ready", "converging", "waiting", "faulted", "held", "frozen", "unreachable", "unmanaged", "unknown")
"""What can be said of a node as a whole; each node is in just one."""

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


class StateView(Protocol):
    """What the engine knows, as masks over all indices."""

    def state_mask(self, state: str) -> Mask:
        """Nodes in ``state`` (one of ``STATES``)."""
        ...

    def fact_mask(self, variable: str, value: str) -> Mask:
        """Nodes whose fact is ``value`` (``unknown`` where nothing is known)."""
        ...


class Fleet(Protocol):
    """What a selector needs of the registry."""

    model: Model

    @property
    def size(self) -> int: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def alive(self) -> Mask: ...
    @property
    def roles(self) -> Words: ...
    @property
    def architectures(self) -> Words: ...
    def find(self, name: str) -> int: ...
    def label(self, key: str) -> Words: ...
    def location(self, kind: str) -> Words: ...
    def group_names(self) -> Iterable[str]: ...
    def group_mask(self, name: str) -> Mask: ...
    def wanted(self, variable: str, value: str) -> Mask: ...


class _Context(msgspec.Struct):
    fleet: Fleet
    states: StateView | None
    strict: bool

    def none(self) -> Mask:
        return np.zeros(self.fleet.size, dtype=np.bool_)


_Term = Callable[[_Context], Mask]


class Selector:
    """A selector that was read and found well-formed. Evaluated against a fleet as often as one likes."""

    __slots__ = ("_terms", "groups", "named", "static", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.static = True
        """The answer changes only with nodes and groups."""
        self.groups: set[str] = set()
        """The groups that it names; ``*`` for any."""
        self.named = 0
        """How many nodes it names one by one."""
        self._terms = [self._term(word) for word in _words(text)]

    def mask(self, fleet: Fleet, states: StateView | None = None, *, strict: bool = True) -> Mask:
        """Who is meant. ``strict``: a node or group that does not exist is an error; otherwise it is nobody."""
        context = _Context(fleet, states, strict)
        found = fleet.alive.copy()
        for term in self._terms:
            found &= term(context)
        return found

    def indices(self, fleet: Fleet, states: StateView | None = None, *, strict: bool = True) -> Indices:
        """Who is meant, as ascending indices."""
        return np.flatnonzero(self.mask(fleet, states, strict=strict))

    def _term(self, word: str) -> _Term:
        if word.startswith("!"):
            # In one go, however many there are: a call for each would let a caller exhaust the stack.
            bare = word.lstrip("!")
            inner = self._term(bare)
            return inner if (len(word) - len(bare)) % 2 == 0 else lambda context: ~inner(context)
        if match := _TERM.match(word):
            return self._keyed(match["key"], match["rest"])
        return self._nodeset(word)

    def _keyed(self, key: str, rest: str) -> _Term:
        where = f"{key}:{rest}"[:80]
        if key not in KEYS:
            raise BadRequest(f"no such term; known are {', '.join(f'{k}:' for k in KEYS)}", where=where)
        if not rest:
            raise BadRequest(f"nothing after '{key}:'", where=where)
        if key in ("role", "arch"):
            return _column(key, rest.split(","))
        if key == "label":
            return _label(*rest.partition("="))
        if key == "location":
            return _location(rest)
        self.static = False
        if key == "want":
            return _want(*_pair(where, rest))
        if key == "state":
            return _state(where, rest.split(","))
        return _fact(where, *_pair(where, rest))

    def _nodeset(self, word: str) -> _Term:
        steps: list[tuple[str, _Term]] = []
        for operator, atom in _atoms(word):
            steps.append((operator, self._atom(atom)))

        def nodeset(context: _Context) -> Mask:
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

    def _atom(self, atom: str) -> _Term:
        if atom == "*":
            return lambda context: context.fleet.alive
        if atom.startswith("@"):
            names = expand(atom[1:], {}, MOST_GROUPS) if "[" in atom else [atom[1:]]
            self.groups.update(names)
            return _any_group if names == ["*"] else _group_term(names)
        if "*" in atom or "?" in atom:
            return _wild(atom)
        names = expand(atom, {}, LIMIT - self.named) if "[" in atom else [atom]
        self.named += len(names)
        return _named(names)


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


def select(text: str, fleet: Fleet, states: StateView | None = None) -> Indices:
    """The nodes that ``text`` names, as ascending indices. Unknown nodes and groups are errors."""
    return parse(text).indices(fleet, states)


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


def _column(key: str, words: list[str]) -> _Term:
    def column(context: _Context) -> Mask:
        coded = context.fleet.roles if key == "role" else context.fleet.architectures
        found = context.none()
        for word in words:
            found |= coded.where(word)
        return found

    return column


def _label(key: str, equals: str, value: str) -> _Term:
    def label(context: _Context) -> Mask:
        coded = context.fleet.label(key)
        return coded.where(value) if equals else coded.codes != 0

    return label


def _location(text: str) -> _Term:
    place = parse_xname(text)
    return lambda context: context.fleet.location(str(place.type)).where(place.text)


def _want(variable: str, value: str) -> _Term:
    def want(context: _Context) -> Mask:
        context.fleet.model.check_value(variable, value)
        return context.fleet.wanted(variable, value)

    return want


def _state(where: str, names: list[str]) -> _Term:
    for name in names:
        if name not in STATES:
            raise BadRequest(f"no state {name[:40]!r}; there are {', '.join(STATES)}", where=where)

    def state(context: _Context) -> Mask:
        found = context.none()
        for name in names:
            found |= _states(context, where).state_mask(name)
        return found

    return state


def _fact(where: str, variable: str, value: str) -> _Term:
    def fact(context: _Context) -> Mask:
        if value != UNKNOWN or variable not in context.fleet.model.variables:
            context.fleet.model.check_value(variable, value)
        return _states(context, where).fact_mask(variable, value)

    return fact


def _states(context: _Context, where: str) -> StateView:
    if context.states is None:
        raise BadRequest("states and facts cannot be asked for here", where=where)
    return context.states


def _any_group(context: _Context) -> Mask:
    found = context.none()
    for name in context.fleet.group_names():
        found |= context.fleet.group_mask(name)
    return found


def _group_term(names: Sequence[str]) -> _Term:
    def group(context: _Context) -> Mask:
        found = context.none()
        for name in names:
            try:
                found |= context.fleet.group_mask(name)
            except NotFound:
                if context.strict:
                    raise
        return found

    return group


def _wild(pattern: str) -> _Term:
    if "[" in pattern:
        raise BadRequest("* and ? do not go with ranges", where=pattern[:80])
    matches = re.compile(fnmatch.translate(pattern)).match

    def wild(context: _Context) -> Mask:
        names = context.fleet.names
        found = np.fromiter((matches(name) is not None for name in names), dtype=np.bool_, count=len(names))
        return found & context.fleet.alive

    return wild


def _named(names: Sequence[str]) -> _Term:
    def named(context: _Context) -> Mask:
        fleet = context.fleet
        found = context.none()
        places = np.fromiter((fleet.find(name) for name in names), dtype=np.int64, count=len(names))
        if context.strict and (places < 0).any():
            missing = [names[at] for at in np.flatnonzero(places < 0)[:5].tolist()]
            more = int((places < 0).sum()) - len(missing)
            raise unknown_nodes(fleet, missing, more)
        found[places[places >= 0]] = True
        return found

    return named


def unknown_nodes(fleet: Fleet, names: Sequence[str], more: int = 0) -> NotFound:
    """The error for nodes that are not there, with what may have been meant."""
    listed = ", ".join(name[:70] for name in names) + (f" and {more} more" if more > 0 else "")
    meant = [close for name in names for close in _close(fleet, name)][:3]
    hint = f"did you mean {', '.join(meant)}?" if meant else "list the nodes with: strata node list"
    return NotFound(f"no such node: {listed}", where="select", hint=hint)


def _close(fleet: Fleet, name: str) -> list[str]:
    """Names that differ in zero padding or case. (Edit distance over 100,000 names would take seconds.)"""
    found = []
    if match := re.fullmatch(r"(.*?)(\d{1,9})([^\d]{0,20})", name[:80]):
        head, digits, tail = match.groups()
        for width in range(1, 10):
            for prefix in {head, head.lower()}:
                other = f"{prefix}{int(digits):0{width}d}{tail}"
                if other != name and other not in found and fleet.find(other) >= 0:
                    found.append(other)
    elif fleet.find(name.lower()) >= 0:
        found.append(name.lower())
    return found
