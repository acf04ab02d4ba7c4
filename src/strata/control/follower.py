"""The ears of the controller: it follows the store, and tells the engine what people said and what others did."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from strata.control.changes import Changes
from strata.control.chronicle import Chronicle
from strata.control.clock import Clock
from strata.control.edit_brakes import RETRY
from strata.control.intents import Intents
from strata.control.leadership import BATON
from strata.control.registry import Registry
from strata.control.tenure import Tenure
from strata.control.transitions import Transition
from strata.core import intset
from strata.core.errors import Compacted, StrataError
from strata.engine.courses import Elsewhere
from strata.engine.reconciler import Engine
from strata.store.protocol import Event

log = logging.getLogger(__name__)


class Follower:
    """Keeps the registry, and with it the engine, level with the store. ``name`` is this controller's."""

    def __init__(
        self,
        name: str,
        registry: Registry,
        engine: Engine,
        chronicle: Chronicle,
        intents: Intents,
        tenure: Tenure,
        clock: Clock,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._name = name
        self._registry = registry
        self._model = registry.model
        self._engine = engine
        self._chronicle = chronicle
        self._intents = intents
        self._tenure = tenure
        self._clock = clock
        self._wake = wake
        self.trouble = "still loading"
        """Why the store is not followed; empty: it is."""

    async def load(self) -> None:
        """Take in everything that is known."""
        self._tell(await self._registry.load())
        for row in await self._chronicle.open():
            self._mirror(row)
        for key, value in await self._intents.listed():
            self._hear_of(Event(0, key, value))
        self.trouble = ""

    async def run(self) -> None:
        """Follow the store, for ever."""
        while True:
            try:
                stream = self._registry.store.watch("", start=self._registry.revision + 1)
                async with contextlib.aclosing(stream):  # type: ignore[type-var]
                    async for events in stream:
                        self.trouble = ""
                        self._take(events)
            except Compacted:
                log.warning("the watch fell behind; listing again")
                with contextlib.suppress(StrataError):
                    self._tell(await self._registry.load())
                    await self._chronicle.catch_up()
            except StrataError as error:
                self.trouble = f"the store cannot be followed: {error}"
                log.warning("watch broke off", extra={"error": str(error)})
                await asyncio.sleep(1.0)

    def _take(self, events: Sequence[Event]) -> None:
        """What a watch brought: others' facts and intents, requests to retry, and everything that people said."""
        leadership = self._tenure.leadership
        leadership.lapse()  # what a new leader saw is not for one who still thinks that it leads
        for row in self._chronicle.read(events):
            if row.controller != self._name:
                self._mirror(row)
        for event in events:
            kind, _, _ = event.key.partition("/")
            if kind == "intent" and (event.value is None or not self._intents.is_own(event.key)):
                self._hear_of(event)
            elif kind == RETRY and event.value is not None:
                nodes = self._registry.indices_of(intset.unpack(msgspec.msgpack.decode(event.value)))
                self._engine.retry(nodes[nodes >= 0])
            elif kind == BATON or (kind in ("shard", "controller") and event.value is None):
                leadership.poke()
        self._tell(self._registry.apply(events))
        self._wake()

    def _mirror(self, row: Transition) -> None:
        for change in row.changes:
            nodes = self._registry.indices_of(intset.unpack(change.uids))
            self._engine.mirror(change.variable, change.new, nodes[nodes >= 0], self._clock.now())

    def _hear_of(self, event: Event) -> None:
        """Another controller has begun something, or ended it."""
        elsewhere = self._engine.courses.elsewhere
        elsewhere.pop(event.key, None)
        if event.value is not None:
            intent = Intents.decode(event.value)
            nodes = self._registry.indices_of(intset.unpack(intent.uids))
            if intent.mutation in self._model.mutations:
                elsewhere[event.key] = Elsewhere(intent.mutation, nodes[nodes >= 0], self._clock.now())

    def _tell(self, changes: Changes) -> None:
        """Pass on to the engine what is new in the registry."""
        if not changes:
            return
        registry, engine, now = self._registry, self._engine, self._clock.now()
        if len(changes.removed):
            engine.remove(changes.removed)
        if len(changes.added):
            engine.add(changes.added, self._tenure.shards(changes.added), now)
        for variable in self._model.variables:
            nodes = np.union1d(changes.goals_changed.get(variable, changes.added), changes.added)
            if len(nodes):
                goals = registry.desires.goals(variable)
                engine.set_goal(variable, nodes, goals.table, goals.codes[nodes].astype(np.int64))
        braked = np.unique(np.concatenate((changes.added, changes.holds_changed, changes.freezes_changed)))
        if len(braked):
            engine.set_brakes(braked, held=registry.brakes.held[braked], frozen=registry.brakes.frozen[braked])
        if changes.groups_changed or len(changes.added) or len(changes.removed) or len(changes.nodes_changed):
            self._tenure.divide()
        self._wake()
