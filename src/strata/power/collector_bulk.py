"""Asks one place for the power of many nodes in one request: a simulator, or a site's own aggregator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np

from strata.core.errors import DeviceError, Unavailable
from strata.power.collector import Floats, Look, Nodes
from strata.power.series import Uids

Told = tuple[Sequence[str], Mapping[str, Floats]]
"""Names of nodes, and for each metric one value per name."""


class BulkSource:
    """Reads with ``ask``, which ``let_go`` closes."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Told]],
        let_go: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._let_go = let_go
        self._clock = clock
        self._nodes: Nodes | None = None
        self._names: Sequence[str] = ()
        self._places: tuple[Uids, Uids] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    async def close(self) -> None:
        """Let go."""
        await self._let_go()

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """One request for all of them."""
        now = float(int(self._clock()))
        try:
            async with asyncio.timeout(limit):
                names, values = await self._ask()
        except TimeoutError:
            raise Unavailable(f"no answer in {limit:g} s", where="the source of power readings") from None
        if any(len(column) != len(names) for column in values.values()):
            raise DeviceError("the source of power readings told of more nodes than it named")
        uids, places = self._where(nodes, names)
        return [Look(time=now, uids=uids, values={name: column[places] for name, column in values.items()})]

    def _where(self, nodes: Nodes, names: Sequence[str]) -> tuple[Uids, Uids]:
        """Uids of those asked for that were told of, and where; worked out anew only when either has changed."""
        if nodes is not self._nodes or names != self._names:
            place_of = {name: place for place, name in enumerate(names)}
            places = np.array([place_of.get(name, -1) for name in nodes.names], dtype=np.int64)
            told = places >= 0
            self._nodes, self._names, self._places = nodes, names, (nodes.uids[told], places[told])
        return self._places
