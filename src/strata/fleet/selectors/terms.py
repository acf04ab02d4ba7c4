"""The terms of selectors: each maker takes a term's words and gives what finds the nodes that meet it.

What is wrong with the words alone is told when the term is made; whom they mean is asked of a fleet, as often as one
likes. How terms are written and joined is in ``strata.fleet.selectors.language``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from strata.core.errors import BadRequest, NotFound
from strata.core.model import UNKNOWN
from strata.core.state import STATES
from strata.core.xname import parse as parse_xname
from strata.fleet.columns import Mask
from strata.fleet.nodes.unknown import find_unpadded, unknown_nodes
from strata.fleet.selectors.selectable import Selectable, StateView


class Context(msgspec.Struct):
    """Against what a term is held. ``strict``: a node or group that does not exist is an error."""

    fleet: Selectable
    states: StateView | None
    strict: bool

    def none(self) -> Mask:
        """Nobody, to begin with."""
        return np.zeros(self.fleet.size, dtype=np.bool_)


Term = Callable[[Context], Mask]
"""Tells who meets it."""


def in_column(key: str, words: list[str]) -> Term:
    """Nodes with one of these roles (or architectures)."""

    def column(context: Context) -> Mask:
        coded = context.fleet.roles if key == "role" else context.fleet.architectures
        found = context.none()
        for word in words:
            found |= coded.where(word)
        return found

    return column


def labelled(key: str, equals: str, value: str) -> Term:
    """Nodes with a label, whatever its value unless there is an equals sign."""

    def label(context: Context) -> Mask:
        coded = context.fleet.label(key)
        return coded.where(value) if equals else coded.codes != 0

    return label


def located(text: str) -> Term:
    """Nodes at a place, or somewhere within it."""
    place = parse_xname(text)
    return lambda context: context.fleet.location(str(place.type)).where(place.text)


def wanted(variable: str, value: str) -> Term:
    """Nodes that are desired to have a value."""

    def want(context: Context) -> Mask:
        context.fleet.model.check_value(variable, value)
        return context.fleet.wanted(variable, value)

    return want


def in_state(where: str, names: list[str]) -> Term:
    """Nodes in one of these states."""
    for name in names:
        if name not in STATES:
            raise BadRequest(f"no state {name[:40]!r}; there are {', '.join(STATES)}", where=where)

    def state(context: Context) -> Mask:
        found = context.none()
        for name in names:
            found |= _states(context, where).state_mask(name)
        return found

    return state


def believed(where: str, variable: str, value: str) -> Term:
    """Nodes whose fact is this value."""

    def fact(context: Context) -> Mask:
        if value != UNKNOWN or variable not in context.fleet.model.variables:
            context.fleet.model.check_value(variable, value)
        return _states(context, where).fact_mask(variable, value)

    return fact


def _states(context: Context, where: str) -> StateView:
    if context.states is None:
        raise BadRequest("states and facts cannot be asked for here", where=where)
    return context.states


def in_any_group(context: Context) -> Mask:
    """Members of whatever group."""
    found = context.none()
    for name in context.fleet.groups:
        found |= context.fleet.groups.mask(name)
    return found


def in_groups(names: Sequence[str]) -> Term:
    """Members of one of these groups."""

    def group(context: Context) -> Mask:
        found = context.none()
        for name in names:
            try:
                found |= context.fleet.groups.mask(name)
            except NotFound:
                if context.strict:
                    raise
        return found

    return group


def matching(pattern: str) -> Term:
    """Nodes whose names match a pattern."""
    if "[" in pattern:
        raise BadRequest("* and ? do not go with ranges", where=pattern[:80])
    matches = re.compile(fnmatch.translate(pattern)).match

    def wild(context: Context) -> Mask:
        names = context.fleet.names
        found = np.fromiter((matches(name) is not None for name in names), dtype=np.bool_, count=len(names))
        return found & context.fleet.alive

    return wild


def named(names: Sequence[str]) -> Term:
    """Nodes by their names; ``n7`` is ``n0007`` where there is no ``n7``."""

    def by_name(context: Context) -> Mask:
        fleet = context.fleet
        found = context.none()
        places = np.fromiter((fleet.find(name) for name in names), dtype=np.int64, count=len(names))
        for at in np.flatnonzero(places < 0).tolist():
            places[at] = find_unpadded(fleet, names[at])
        if context.strict and (places < 0).any():
            missing = [names[at] for at in np.flatnonzero(places < 0)[:5].tolist()]
            more = int((places < 0).sum()) - len(missing)
            raise unknown_nodes(fleet, missing, more)
        found[places[places >= 0]] = True
        return found

    return by_name
