"""Stands in for a workload manager where Strata runs without the layers above the hardware: no job is known of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation


class NoWorkload:
    """Implements ``strata.core.driver.Driver``, for guards only."""

    name = "workload"

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """It carries out nothing."""
        raise BadRequest("no workload manager is known here", where=mutation.name)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """It sees nothing."""
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """``no-running-job``: yes. Whoever takes the hardware layer alone looks after jobs elsewhere."""
        no = "" if guard == "no-running-job" else f"nobody here knows the guard {guard}"
        return [no] * len(batch)
