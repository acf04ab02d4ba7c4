"""Carries out what the engine decided: the intent is made durable, then the drivers are called."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Sequence

from strata.core.driver import Batch
from strata.core.errors import StrataError
from strata.engine.effects import Act, Done, Input
from strata.engine.reconciler import Engine
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.driver_calls import DriverCalls
from strata.fleet.controller.intents import Intents
from strata.fleet.nodes.batches import batch_of
from strata.fleet.registry.registry import Registry
from strata.fleet.tasks import all_cancelled, beside

log = logging.getLogger(__name__)


class Dispatcher:
    """Begins acts. ``valid_until()``: until when the lead lasts, on the clock; ``deliver`` tells the engine."""

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        intents: Intents,
        driver_calls: DriverCalls,
        clock: Clock,
        *,
        valid_until: Callable[[], float],
        deliver: Callable[[Input], None],
    ) -> None:
        self._registry = registry
        self._model = registry.model
        self._engine = engine
        self._intents = intents
        self._driver_calls = driver_calls
        self._clock = clock
        self._valid_until = valid_until
        self._deliver = deliver
        self._beginning: set[asyncio.Task[None]] = set()

    def begin(self, acts: Sequence[Act]) -> None:
        """Begin these together, soon."""
        beside(self._beginning, self._begin(acts))

    async def quiet(self) -> None:
        """Until every act that was decided under the old shares is written down, or never will be."""
        while self._beginning:
            await asyncio.gather(*self._beginning, return_exceptions=True)

    async def close(self) -> None:
        """Begin nothing any more."""
        await all_cancelled(self._beginning)

    async def _begin(self, acts: Sequence[Act]) -> None:
        """Make the intent durable, then act. If it cannot be made durable, nothing is done."""
        # Built before the first await: an index means the same node only until the registry changes.
        batches = [self._batch(act) for act in acts]
        written = {batch.generation: (act.mutation, batch.uids) for act, batch in zip(acts, batches, strict=True)}
        try:
            await self._intents.write(written, self._clock.wall())
        except StrataError as error:
            log.warning("nothing was begun: the intent could not be written", extra={"error": str(error)})
            for act in acts:
                self._deliver(Done(act.generation, None, f"the store refused the intent: {error}"))
            return
        for act, batch in zip(acts, batches, strict=True):
            allowed = functools.partial(self._engine.may_begin, act.generation, act.nodes)
            self._driver_calls.act(self._model.mutations[act.mutation], batch, act.urgency, allowed)

    def _batch(self, act: Act) -> Batch:
        columns = self._engine.table.columns
        touched = self._model.effects(self._model.mutations[act.mutation])
        goals = {name: columns[name].goal_column(act.nodes) for name in touched}
        lead = functools.partial(self._lead_until, int(self._engine.progress.shard[act.nodes[0]]), int(act.epochs[0]))
        return batch_of(
            self._registry, act.nodes, goals=goals, epochs=act.epochs, generation=act.generation, valid_until=lead
        )

    def _lead_until(self, shard: int, epoch: int) -> float:
        """Until when an act for a shard may be begun: as long as the very lead lasts under which it was decided."""
        return self._valid_until() if self._engine.epochs.get(shard) == epoch else -math.inf
