"""Where CAPMC's components are, and what gives them power: for one caller, who finds nothing outside its scope."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strata.control.columns import Indices, Mask
from strata.control.feed_driver import FeedDriver
from strata.control.registry import Registry
from strata.core import xname
from strata.core.errors import BadRequest

_SYSTEM = ("s0", "all")


def at_places(registry: Registry, scope: Mask | None, places: Sequence[str]) -> list[int]:
    """The uid of the node at each place, or with that name; -1: there is none."""
    roster, found = registry.roster, []
    for place in places:
        index = roster.at_location(place)
        index = roster.find(place) if index < 0 else index
        visible = index >= 0 and (scope is None or bool(scope[index]))
        found.append(int(roster.uids[index]) if visible else -1)
    return found


def below(registry: Registry, scope: Mask | None, place: str) -> Indices:
    """Every node in a component, itself included."""
    mask = registry.alive if scope is None else registry.alive & scope
    if place not in _SYSTEM:
        try:
            where = xname.parse(place)
        except BadRequest:
            return np.empty(0, dtype=np.int64)
        mask = mask & registry.location(where.type).where(where.text)
    return np.flatnonzero(mask)


def feeders(feeds: FeedDriver, scope: Mask | None, nodes: Indices) -> Indices:
    """What gives power to nodes, and what to that, as far as the outlets."""
    known = feeds.feeds()
    found: set[int] = set()
    more = set(np.unique(known.kinds[nodes]).tolist()) if len(known.kinds) else set[int]()
    while more:
        fresh = {node for kind in more for node in known.feeders[kind]} - found
        found |= fresh
        more = {int(known.kinds[node]) for node in fresh}
    indices = np.array(sorted(found), dtype=np.int64)
    return indices if scope is None else indices[scope[indices]]
