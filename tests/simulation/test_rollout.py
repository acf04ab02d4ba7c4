"""A rollout over whole controllers that crash: how many nodes are out of the workload manager at once."""

from __future__ import annotations

import asyncio

import pytest

from simulation.network import Weather
from simulation.world import Plot, World
from strata.virtual import timewarp
from strata.virtual.fleet.faults import NO_FAULTS


class Rollout(World):
    """252 nodes with work to do get another image, while controllers crash and come back."""

    most_out = 0

    async def _safety(self) -> None:
        await self._all_at_goal()
        self.every_second.append(self._count)
        nodes = self._edits().registry.select("*")
        await self._edits().set_desires(nodes, {"image": ["v2"]}, (), "operator")
        self.wanted = dict.fromkeys(self.sim.names, "v2")
        watch = asyncio.create_task(self._watch())
        for member in self.members:
            await asyncio.sleep(20)
            await member.crash()
            await asyncio.sleep(15)
            await member.start()
        await self._all_at_goal()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    async def _liveness(self) -> None:
        """All are there."""

    async def _all_at_goal(self) -> None:
        deadline = asyncio.get_running_loop().time() + 7200
        while not self.at_goal():
            assert asyncio.get_running_loop().time() < deadline, "not all came to their goal"
            await asyncio.sleep(1.0)

    def _count(self) -> None:
        inside = self.sim.truth("workload", self.sim.all, asyncio.get_running_loop().time()).values()
        out = sum(value != "in" for value in inside)
        self.most_out = max(self.most_out, out)
        if out > self.plot.nodes // 10:
            self.broken(5, f"{out} nodes are out of service, {self.plot.nodes // 10} may")


@pytest.mark.slow
def test_a_rollout_keeps_its_budget_from_draining_to_joining_while_controllers_crash() -> None:
    plot = Plot(
        nodes=252,
        controllers=2,
        weather=Weather(),
        faults=NO_FAULTS,
        crashes=0,
        pauses=0,
        job_share=0.0,
        site_nodes=252,
    )
    world = Rollout(1, plot=plot)
    timewarp.run(world.run((), ()))
    assert world.violations == []
    assert world.most_out > 12, "it used what it may"
