"""The ``feeds`` driver: answers the two guards that make power go in order, from the facts that the engine has.

``fed``: something that feeds the node is on. ``feeds-nothing``: everything that the node feeds is known to be off.
Nothing orchestrates: whoever is told no asks again, and the order follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from strata.core import xname
from strata.core.column import Column
from strata.core.distinct import distinct
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation
from strata.core.nodeset import fold
from strata.engine.progress import Phase
from strata.engine.reconciler import Engine
from strata.fleet.columns import Indices, Mask
from strata.fleet.registry.registry import Registry
from strata.hardware.feeds.feeds import CHASSIS, FED_BY, OUTLET, Coded, Feeds, Place, feeds_of

FED = "fed"
FEEDS_NOTHING = "feeds-nothing"

_LONGEST = 200  # characters of node names in an answer


class FeedDriver:
    """Implements ``strata.core.driver.Driver``, for guards only."""

    name = "feeds"

    def __init__(self, registry: Registry, engine: Engine, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._engine = engine
        self._clock = clock
        self.feeds = registry.kept(self._feeds)
        """Who feeds whom, as the nodes are described now."""

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """It carries out nothing."""
        raise BadRequest("the feeds driver answers questions only", where=mutation.name)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """It sees nothing."""
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """``fed`` and ``feeds-nothing``; a guard that it does not know is a no."""
        if guard not in (FED, FEEDS_NOTHING):
            return [f"the feeds driver does not know the guard {guard}"] * len(batch)
        feeds = self.feeds()
        if not feeds:
            return [""] * len(batch)
        nodes = self._registry.indices_of(batch.uids)
        return self._fed(feeds, nodes) if guard == FED else self._feeds_nothing(feeds, nodes)

    def _feeds(self) -> Feeds:
        registry = self._registry
        labels = registry.label(FED_BY)
        components = np.flatnonzero(registry.alive & registry.roles.where(CHASSIS)).tolist()
        outlets = registry.roles.where(OUTLET)
        by_kind: dict[str, dict[str, int]] = {}
        for index in components:
            if location := registry.node_at(index).location:
                by_kind.setdefault(xname.parse(location).type, {})[location] = index
        outermost_first = sorted(by_kind, key=_depth)
        words = {kind: registry.location(kind) for kind in outermost_first}
        places = [Place(Coded(words[kind].table, words[kind].codes), by_kind[kind]) for kind in outermost_first]
        return feeds_of(registry.size, Coded(labels.table, labels.codes), registry.find, places, outlets)

    def _fed(self, feeds: Feeds, nodes: Indices) -> list[str]:
        power = self._engine.table.columns["power"]
        falling = self._under_way("off")
        answers: dict[int, str] = {}
        kinds = np.where(nodes >= 0, feeds.kinds[nodes], 0)
        for kind in distinct(kinds).tolist():
            feeders = feeds.feeders[kind]
            on = [node for node in feeders if power.fact[node] == power.word_code("on") and not falling[node]]
            answers[kind] = "" if on else self._unfed(feeds, kind)
        return [answers[kind] for kind in kinds.tolist()]

    def _unfed(self, feeds: Feeds, kind: int) -> str:
        if kind in feeds.missing:
            return f"its label {FED_BY} names {feeds.missing[kind]}, and there is no such node"
        feeders = feeds.feeders[kind]
        if not feeders:
            return ""
        power = self._engine.table.columns["power"]
        off = all(power.fact[node] == power.word_code("off") for node in feeders)
        if len(feeders) == 1:
            return f"it gets power from {self._names(feeders)}, which is {'off' if off else 'not known to be on'}"
        return f"it gets power from {self._names(feeders)}, {'all off' if off else 'of which none is known to be on'}"

    def _feeds_nothing(self, feeds: Feeds, nodes: Indices) -> list[str]:
        power = self._engine.table.columns["power"]
        size = len(feeds.kinds)
        on = (power.fact[:size] == power.word_code("on")) | self._under_way("on")[:size]
        up = np.flatnonzero(self._registry.alive[:size] & ((power.fact[:size] != power.word_code("off")) | on))
        up = up[np.argsort(feeds.kinds[up], kind="stable")]
        kinds = feeds.kinds[up]
        answers = []
        for node in nodes.tolist():
            fed = feeds.fed_by(node) if node >= 0 else ()
            parts = [up[slice(*np.searchsorted(kinds, (kind, kind + 1)))] for kind in fed]
            there = np.concatenate(parts) if parts else up[:0]
            answers.append(self._still_up(there, on) if len(there) else "")
        return answers

    def _still_up(self, nodes: Indices, on: Mask) -> str:
        known, doubtful = nodes[on[nodes]], nodes[~on[nodes]]
        words = []
        if len(known):
            words.append(f"{self._names(known.tolist())} {'is' if len(known) == 1 else 'are'} on")
        if len(doubtful):
            words.append(
                f"{self._names(doubtful.tolist())} {'is' if len(doubtful) == 1 else 'are'} not known to be off"
            )
        return f"{', '.join(words)}, and would lose power"

    def _names(self, nodes: Sequence[int]) -> str:
        text = fold(self._registry.names[node] for node in nodes)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    def _under_way(self, to: str) -> Mask:
        """Nodes whose power is being switched ``to``, here or by another controller: what is asked counts as begun."""
        work, courses = self._engine.progress, self._engine.in_flight
        steps = [number for number, m in enumerate(courses.mutations) if (m.variable, m.to) == ("power", to)]
        busy: Mask = (work.phase != Phase.IDLE) & np.isin(work.mutation, steps)
        for one in courses.foreign.values():
            number = courses.numbers.get(one.mutation, -1)
            # Long after it must have shown, the facts tell more than the intent.
            if number in steps and self._clock() < one.heard + 2 * courses.mutations[number].timeout:
                busy[one.nodes] = True
        return busy


def _depth(kind: str) -> int:
    """How far a type of location is from the whole system."""
    steps = 0
    while kind:
        kind, steps = xname.TYPES[kind].parent, steps + 1
    return steps
