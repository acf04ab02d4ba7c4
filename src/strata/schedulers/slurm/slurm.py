"""One Slurm cluster, by commands that a ``Runner`` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from strata.schedulers.protocol import NodeSeen
from strata.schedulers.runner import Runner
from strata.schedulers.slurm import replies


class Slurm:
    """Implements ``strata.schedulers.protocol.Scheduler``."""

    def __init__(self, runner: Runner, mark: str) -> None:
        self._runner = runner
        self._mark = mark

    async def look(self) -> Mapping[str, NodeSeen]:
        """Two questions for the whole cluster: states, then jobs."""
        states = await self._runner.run(*replies.NODES)
        jobs = await self._runner.run(*replies.JOBS)
        return await asyncio.to_thread(lambda: replies.together(replies.nodes(states, self._mark), replies.jobs(jobs)))

    async def drain(self, names: Sequence[str], reason: str) -> None:
        """One command for all of them."""
        await self._runner.run(*replies.drain(names, self._mark, reason))

    async def resume(self, names: Sequence[str]) -> None:
        """One command for all of them."""
        await self._runner.run(*replies.resume(names))
