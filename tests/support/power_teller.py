"""A driver that tells who listens what it saw, did or is about to do to nodes' power, as that of BMCs does."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Driver, Outcomes
from strata.core.model import Mutation
from strata.core.state import Outcome

Told = Callable[[Sequence[str]], None]


class PowerTeller:
    """The driver behind it, and nothing else but that ``dark`` and ``lit`` are told the names of nodes, and that
    ``before`` is waited for before nodes are switched on."""

    def __init__(self, driver: Driver, *, dark: Told, lit: Told, before: Callable[[Batch], Awaitable[None]]) -> None:
        """``dark``: seen without power, or about to lose it. ``lit``: switched on just now."""
        self.name = driver.name
        self._driver = driver
        self._dark = dark
        self._lit = lit
        self._before = before

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Carry it out; told beforehand what ends, and afterwards what began."""
        if mutation.variable == "power" and mutation.to == "off":
            self._dark(batch.names)
        if mutation.variable == "power" and mutation.to == "on":
            give_up = time.monotonic() + mutation.timeout
            await self._before(batch)
            mutation = msgspec.structs.replace(mutation, timeout=give_up - time.monotonic())
        outcomes = await self._driver.act(mutation, batch)
        if mutation.variable == "power" and mutation.to == "on":
            begun = np.flatnonzero((outcomes.codes == Outcome.DONE) | (outcomes.codes == Outcome.UNKNOWN))
            self._lit([batch.names[place] for place in begun.tolist()])
        return outcomes

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """Look; told who has no power."""
        seen = await self._driver.observe(variables, batch)
        power = seen.get("power")
        if power is not None and "off" in power.words:
            off = np.flatnonzero(power.codes == power.words.index("off") + 1)
            self._dark([batch.names[place] for place in off.tolist()])
        return seen

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Ask the driver behind it."""
        return await self._driver.permits(guard, batch)
