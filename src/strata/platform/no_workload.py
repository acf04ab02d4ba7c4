"""Stands in for a workload manager where there is none: without the platform layer, or before the site connects one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation


class NoWorkload:
    """Implements ``strata.core.driver.Driver``: sees nothing, does nothing, and answers for ``no-running-job``."""

    name = "workload"

    def __init__(self, *, expected: bool = False) -> None:
        """``expected``: the platform layer is here, so that jobs are Strata's business, and nobody knows of them."""
        self._expected = expected

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """It carries out nothing."""
        raise BadRequest("no workload manager is known here", where=mutation.name)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """It sees nothing."""
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """``no-running-job``: yes. Whoever takes the lower layers alone looks after jobs elsewhere."""
        if guard != "no-running-job":
            no = f"nobody here knows the guard {guard}"
        else:
            no = "no workload manager is known here, so that a job may be running" if self._expected else ""
        return [no] * len(batch)
