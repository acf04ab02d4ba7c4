"""A rollout over whole controllers that crash: how many nodes are out of the workload manager at once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from simulation.network import Weather
from simulation.world import Plot, World
from strata.core import intset
from strata.core.node import Limit, LimitBucket
from strata.store.protocol import Put
from strata.virtual import timewarp
from strata.virtual.fleet.faults import NO_FAULTS


class Rollout(World):
    """252 nodes with work to do get another image, while controllers crash and come back."""

    most_out = 0
    may_be_out = 25

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
        if out > self.may_be_out:
            self.broken(5, f"{out} nodes are out of service, {self.may_be_out} may")


class Limited(Rollout):
    """The same with fewer nodes, of which a rollout lets fewer be out of service than the fleet's own budget."""

    may_be_out = 4

    async def _all_at_goal(self) -> None:
        service = self.service()
        assert service is not None
        everyone = intset.pack(service.registry.uids[service.registry.select("*")])
        bucket = LimitBucket(name="all", members=everyone, most=self.may_be_out)
        await self.store.txn([Put("limit/rollout:x", msgspec.msgpack.encode(Limit(buckets=(bucket,))))])
        await super()._all_at_goal()


def plot(nodes: int) -> Plot:
    """Good weather for two controllers."""
    return Plot(
        nodes=nodes,
        controllers=2,
        weather=Weather(),
        faults=NO_FAULTS,
        crashes=0,
        pauses=0,
        job_share=0.0,
        site_nodes=nodes,
    )


@pytest.mark.slow
def test_a_limit_that_is_set_while_they_run_is_kept_by_two_controllers_that_crash() -> None:
    world = Limited(1, plot=plot(60))
    timewarp.run(world.run((), ()))
    assert world.violations == []
    assert world.most_out == 4, "they used what they may"


@pytest.mark.slow
def test_a_rollout_keeps_its_budget_from_draining_to_joining_while_controllers_crash() -> None:
    world = Rollout(1, plot=plot(252))
    timewarp.run(world.run((), ()))
    assert world.violations == []
    assert world.most_out > 12, "it used what it may"
