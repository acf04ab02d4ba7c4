"""Follows the store, and tells the engine what people wrote there and what other controllers do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from strata.core import intset
from strata.core.distinct import distinct, united
from strata.core.errors import Compacted, StrataError
from strata.engine.in_flight import ForeignMutation
from strata.engine.reconciler import Engine
from strata.fleet.brakes.edits import RETRY
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.intents import Intents
from strata.fleet.controller.leadership import BATON
from strata.fleet.controller.takeover import ShardTakeover
from strata.fleet.history.recorder import HistoryRecorder
from strata.fleet.history.transitions import Transition
from strata.fleet.registry.changes import Changes
from strata.fleet.registry.registry import Registry
from strata.store.protocol import Event

log = logging.getLogger(__name__)


class Follower:
    """Keeps the registry, and with it the engine, level with the store. ``name`` is this controller's."""

    def __init__(
        self,
        name: str,
        registry: Registry,
        engine: Engine,
        recorder: HistoryRecorder,
        intents: Intents,
        takeover: ShardTakeover,
        clock: Clock,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._name = name
        self._registry = registry
        self._model = registry.model
        self._engine = engine
        self._recorder = recorder
        self._intents = intents
        self._takeover = takeover
        self._clock = clock
        self._wake = wake
        self.trouble = "still loading"
        """Why the store is not followed; empty: it is."""

    async def load(self) -> None:
        """Take in everything that is known."""
        self._tell(await self._registry.load())
        for row in await self._recorder.open():
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
                    await self._recorder.catch_up()
            except StrataError as error:
                self.trouble = f"the store cannot be followed: {error}"
                log.warning("watch broke off", extra={"error": str(error)})
                await asyncio.sleep(1.0)

    def _take(self, events: Sequence[Event]) -> None:
        """What a watch brought: others' facts and intents, requests to retry, and everything that people said."""
        leadership = self._takeover.leadership
        leadership.lapse()  # what a new leader saw is not for one who still thinks that it leads
        for row in self._recorder.read(events):
            if row.controller != self._name:
                self._mirror(row)
        for event in events:
            kind, _, _ = event.key.partition("/")
            if kind == "intent" and (event.value is None or not self._intents.is_own(event.key)):
                self._hear_of(event)
            elif kind == RETRY and event.value is not None:
                nodes = self._registry.indices_of(intset.unpack(msgspec.msgpack.decode(event.value)))
                self._engine.retry(nodes[nodes >= 0])
            elif kind == BATON or (kind in ("shard", "duty", "controller") and event.value is None):
                leadership.poke()
        self._tell(self._registry.apply(events))
        self._wake()

    def _mirror(self, row: Transition) -> None:
        for change in row.changes:
            nodes = self._registry.indices_of(intset.unpack(change.uids))
            self._engine.mirror(change.variable, change.new, nodes[nodes >= 0], self._clock.now())

    def _hear_of(self, event: Event) -> None:
        """Another controller has begun something, or ended it."""
        elsewhere = self._engine.in_flight.foreign
        elsewhere.pop(event.key, None)
        if event.value is not None:
            intent = Intents.decode(event.value)
            nodes = self._registry.indices_of(intset.unpack(intent.uids))
            if intent.mutation in self._model.mutations:
                elsewhere[event.key] = ForeignMutation(intent.mutation, nodes[nodes >= 0], self._clock.now())

    def _tell(self, changes: Changes) -> None:
        """Pass on to the engine what is new in the registry."""
        if not changes:
            return
        registry, engine, now = self._registry, self._engine, self._clock.now()
        if len(changes.removed):
            engine.remove(changes.removed)
        if len(changes.added):
            engine.add(changes.added, self._takeover.shards(changes.added), now)
        for variable in self._model.variables:
            nodes = united(changes.goals_changed.get(variable, changes.added), changes.added)
            if len(nodes):
                goals = registry.desires.goals(variable)
                engine.set_goal(variable, nodes, goals.table, goals.codes[nodes].astype(np.int64))
        braked = distinct(np.concatenate((changes.added, changes.holds_changed, changes.freezes_changed)))
        if len(braked):
            engine.set_brakes(braked, held=registry.brakes.held[braked], frozen=registry.brakes.frozen[braked])
        others = changes.groups_changed or changes.limits_changed
        if others or len(changes.added) or len(changes.removed) or len(changes.nodes_changed):
            self._takeover.divide()
        self._wake()
