"""Stands in for a workload manager where there is none: without the platform layer, or before the site connects one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation

NOBODY_KNOWS = "no workload manager is connected, so no job can be known here"


class Played(NamedTuple):
    """Put into the services by whoever plays the workload manager, so that none can be connected."""

    why: str
    hint: str


class NoWorkload:
    """Implements ``strata.core.driver.Driver``: does nothing, and answers for ``no-running-job``."""

    name = "workload"

    def __init__(self, *, required: bool = False) -> None:
        """``required``: jobs are Strata's business, so that somebody has to know of them."""
        self._required = required

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """It carries out nothing."""
        raise BadRequest("no workload manager is connected", where=mutation.name, hint="strata workload connect")

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """Where none is required, no node is anybody's. Otherwise it sees nothing."""
        if self._required or "workload" not in variables:
            return {}
        return {"workload": Column.same("out", len(batch))}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """``no-running-job``: yes, unless one is required. Whoever takes the lower layers alone looks after jobs
        elsewhere."""
        if guard != "no-running-job":
            return [f"nobody here knows the guard {guard}"] * len(batch)
        return [NOBODY_KNOWS if self._required else ""] * len(batch)
