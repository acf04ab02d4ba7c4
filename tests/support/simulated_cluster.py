"""A cluster in virtual time whose controller is killed: for rollouts that have to survive it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from strata.core.intset import pack, unpack
from strata.core.node import Node
from strata.platform.rollouts.likeness import Twin, TwinClass
from strata.platform.rollouts.records import RolloutSpec
from strata.platform.rollouts.simulation import LAYERS, SimulatedCluster
from strata.store.memory import MemoryStore
from strata.virtual.fleet.nodes import SimNodes

READY = {
    "power": ("on",),
    "os": ("up",),
    "identity": ("issued",),
    "image": ("v1",),
    "personality": ("active",),
    "config": ("r1",),
    "workload": ("in",),
}


def twin(count: int, *, racks: int = 1, failure_rate: float = 0.0) -> Twin:
    """Nodes that all do their work, in racks: ``rack0`` has the first, the second is in ``rack1``..."""
    at = np.arange(count)
    return Twin(
        spec=RolloutSpec(select="*", set={"image": "v2"}),
        nodes=tuple(Node(name=f"n{number:05d}", uid=0) for number in range(count)),
        groups={f"rack{rack}": pack(at[at % racks == rack]) for rack in range(racks)},
        classes=(
            TwinClass(members=pack(at), facts={name: values[0] for name, values in READY.items()}, goals=dict(READY)),
        ),
        budgets=tuple(budget for layer in LAYERS for budget in layer.budgets),
        seconds={},
        failure_rate=failure_rate,
        left_out=(),
    )


class Cluster(SimulatedCluster):
    """Whose controller can be killed. ``exceeded`` says when more nodes were really out of service than may be."""

    def __init__(self, of: Twin, seed: int, *, step_gap: float = 0.25, job_share: float = 0.0) -> None:
        super().__init__(of, seed, step_gap=step_gap)
        timing = msgspec.structs.replace(self.sim.timing, job_share=job_share, job_length=120)
        self.sim = SimNodes(len(self.names), seed=seed, names=self.names, timing=timing)
        self.store = MemoryStore()
        self.exceeded: list[str] = []
        self.peaks: dict[str, int] = {}
        self.most: Mapping[str, int] = {}
        """Group → how many of its nodes may be out of service."""

    async def crash(self) -> None:
        """kill -9: all that was not written is lost."""
        controller = self.fleet.controller
        rollouts = self.rollouts
        tasks = [*controller._tasks, *controller._dispatcher._beginning, *controller.driver_calls._tasks]
        tasks += [self._telling, *rollouts.conductor._turns.values()]
        controller.driver_calls._queues.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await rollouts.stop()
        await self.fleet.operations.close()

    def look(self) -> None:
        """Count who is really out of service, whatever anybody believes."""
        now = asyncio.get_running_loop().time()
        codes = self.sim.truth("workload", self.sim.all, now)
        out = np.array(codes.codes) != codes.words.index("in") + 1
        for group, most in self.most.items():
            count = int(out[unpack(self.twin.groups[group])].sum())
            self.peaks[group] = max(count, self.peaks.get(group, 0))
            if count > most:
                self.exceeded.append(f"at {now:.1f} s {count} nodes of {group} are out, {most} may")

    async def watch(self, until: Callable[[], bool], limit: float) -> None:
        """Let time pass and look all the while."""

        def looked() -> bool:
            self.look()
            return until()

        await self.until(looked, limit)
