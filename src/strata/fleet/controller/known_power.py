"""Whether a node is known to be switched off, for those who must not take somebody else for it.

Not knowing is no reason to keep a node from booting. A fact lags behind the world by as long as nodes are looked at
seldom: it counts only where nothing was done to the node since, and a look has just shown it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np

from strata.engine.progress import Phase
from strata.fleet.controller.controller import Controller

POWER = "power"
FRESH = 1.0
"""Seconds for which a look counts: a node that is switched on by hand takes longer until it asks for anything, and a
BMC is not asked more often, whoever knocks."""
PATIENCE = 5.0
"""Seconds that a look is waited for."""


class KnownPower:
    """What the engine of ``controller`` knows of its nodes' power."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def off(self, name: str) -> bool | None:
        """Whether the node is known to have no power. None: it was seen so, and is being looked at now."""
        index = self._controller.registry.find(name)
        if not self._is_believed_off(index):
            return False
        if self._is_fresh(index):
            return True
        self._look(index)
        return None

    async def looked(self, name: str) -> bool | None:
        """The same, after the look. None: it did not come in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (known := self.off(name)) is None:
                    await self._controller.stepped()
                return known
        return None

    def _is_believed_off(self, index: int) -> bool:
        """It was seen so, we are the one who looks at it, and nothing is being done that would switch it on."""
        engine = self._controller.engine
        column, work = engine.table.columns.get(POWER), engine.progress
        if column is None or index < 0 or work.epoch[index] <= 0 or column.words[column.fact[index]] != "off":
            return False
        if work.phase[index] < Phase.ACTING:
            return True
        doing = engine.in_flight.mutations[work.mutation[index]]
        return bool(doing.variable == POWER and doing.to == "off")

    def _is_fresh(self, index: int) -> bool:
        engine = self._controller.engine
        seen = float(engine.table.columns[POWER].seen[index])
        return seen >= max(float(engine.progress.acted_at[index]), self._controller.clock.now() - FRESH)

    def _look(self, index: int) -> None:
        """Have it looked at, unless somebody is at it already: whoever asks again and again gets no more looks."""
        controller, facts = self._controller, self._controller.engine.facts
        now, observer = controller.clock.now(), controller.model.variables[POWER].observer
        looks = facts.observers.get(observer)
        if looks is not None and not looks.looking[index] and looks.next[index] > now:
            facts.schedule_look(np.array([index], dtype=np.int64), (observer,), now)
            controller.wake()
