"""The simulated twin of a cluster: its nodes, groups, budgets and states, in virtual time, under a whole controller.

A simulation runs the code that runs a rollout (``RolloutService``, the engine, the store's records) on nodes that are
not there. Runs in the process of whoever asks: a service never spends its time on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from strata.core.driver import Batch, Driver, Outcomes
from strata.core.errors import BadRequest, Refused
from strata.core.intset import contains, unpack
from strata.core.model import Model, Mutation
from strata.core.state import Outcome
from strata.core.texts import Out
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.controller import Controller
from strata.fleet.fleet import Fleet
from strata.fleet.settings import FleetSettings, LeadershipSettings
from strata.fleet.tasks import cancelled
from strata.hardware.feeds.driver import FeedDriver
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.platform.rollouts.likeness import Twin
from strata.platform.rollouts.records import ENDED, RolloutCounts, RolloutEvent, RolloutSpec, State
from strata.platform.rollouts.service import RolloutService
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from strata.virtual import timewarp
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import SECONDS, Timing
from strata.virtual.fleet.model import SEEN_BY, VARIABLES
from strata.virtual.fleet.nodes import SimNodes

LAYERS = (HARDWARE, PROVISIONING, PLATFORM)
NAME = "simulation"
LONGEST = 14 * 86400.0
"""Virtual seconds after which a simulation is given up."""
_SETTLE = 600.0
"""Virtual seconds in which the twin becomes what the cluster is."""
_LOOK = 0.5
_NOWHERE = Path("/nonexistent")
_BATCH = 5000


class BucketPeak(Out, frozen=True, kw_only=True):
    """One limit, and the most that were out of service at once."""

    name: str
    most: int
    peak: int


class Simulation(Out, frozen=True, kw_only=True):
    """How a rollout went on the twin."""

    state: State
    reason: str
    seconds: float
    """Virtual seconds from start to end."""
    counts: RolloutCounts
    waves: tuple[float, ...]
    """When each wave began, in seconds after the start."""
    buckets: tuple[BucketPeak, ...]
    events: tuple[RolloutEvent, ...]
    """With times in seconds after the start."""
    failure_rate: float
    left_out: tuple[str, ...]
    seed: int


class Breaking:
    """A driver whose nodes refuse the change where they are bad; what was before, they take back."""

    def __init__(self, real: Driver, world: SimulatedCluster) -> None:
        self.name = real.name
        self._real = real
        self._world = world
        self.observe = real.observe
        self.permits = real.permits

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Do it on the good ones."""
        hit = self._hit(mutation, batch)
        if not hit.any():
            return await self._real.act(mutation, batch)
        codes = np.full(len(batch), Outcome.FAILED, dtype=np.int8)
        reasons = dict.fromkeys(np.flatnonzero(hit).tolist(), "the change fails on this node")
        good = np.flatnonzero(~hit)
        if len(good):
            done = await self._real.act(mutation, batch.take(good))
            codes[good] = done.codes
            reasons |= {int(good[at]): why for at, why in done.reasons.items()}
        return Outcomes(codes, reasons)

    def _hit(self, mutation: Mutation, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        hit = np.zeros(len(batch), dtype=np.bool_)
        for variable, values in self._world.change.items():
            goals = batch.goals.get(variable)
            if variable != mutation.variable or goals is None:
                continue
            wants = np.isin(goals.codes, [code for code, word in enumerate(goals.words, 1) if word in values])
            bad = (name in self._world.bad for name in batch.names)
            hit |= wants & np.fromiter(bad, dtype=np.bool_, count=len(batch))
        return hit


def simulate(twin: Twin, *, failure_rate: float | None = None, seed: int = 1) -> Simulation:
    """Run the rollout on the twin, in virtual time. The same seed gives the same."""
    if not twin.spec.set:
        raise BadRequest("simulated nodes have none of these variables", where="set")
    rate = twin.failure_rate if failure_rate is None else failure_rate
    return timewarp.run(SimulatedCluster(twin, seed).run(twin.spec, rate))


class SimulatedCluster:
    """A cluster in virtual time. Made within ``timewarp.run``, or before it; its parts start with ``open``."""

    def __init__(self, twin: Twin, seed: int, *, step_gap: float = 0.25) -> None:
        self.twin = twin
        self.seed = seed
        self.names = [node.name for node in twin.nodes]
        self.sim = SimNodes(
            len(self.names),
            seed=seed,
            names=self.names,
            timing=Timing(seconds={**SECONDS, **twin.seconds}),
        )
        layers = [msgspec.structs.replace(layer, budgets=()) for layer in LAYERS]
        layers[0] = msgspec.structs.replace(layers[0], budgets=twin.budgets)
        self.model = Model.of(*layers)
        self.bad: frozenset[str] = frozenset()
        """Nodes that do not take ``change``."""
        self.change: Mapping[str, tuple[str, ...]] = {}
        self.fleet: Fleet
        self.rollouts: RolloutService
        self._step_gap = step_gap
        self._starts = 0
        self._telling: asyncio.Task[None]

    async def run(self, spec: RolloutSpec, rate: float) -> Simulation:
        """Build the twin, roll it out, see how it ends."""
        store = MemoryStore()
        try:
            await self.open(store)
            await self.describe()
            await self.settled()
            chosen = np.random.default_rng(self.seed).random(len(self.names)) < rate
            self.bad = frozenset(name for name, broken in zip(self.names, chosen.tolist(), strict=True) if broken)
            return await self._roll(spec, rate)
        finally:
            await self.close()
            await store.close()

    async def open(self, store: MemoryStore) -> None:
        """Start a controller on the store."""
        loop = asyncio.get_running_loop()
        self._starts += 1
        real: dict[str, Driver] = dict(sim_drivers(self.sim, loop.time))
        controller = Controller(
            store,
            self.model,
            {name: Breaking(driver, self) for name, driver in real.items()},
            name="twin",
            engine=EngineSettings(),
            leadership=LeadershipSettings(shards=1),
            clock=Clock(loop.time, loop.time),
            seed=self.seed * 1000 + self._starts,
            step_gap=self._step_gap,
        )
        controller.driver_calls.add(FeedDriver(controller.registry, controller.engine, controller.clock.now))
        self.fleet = Fleet(controller, FleetSettings(state_dir=_NOWHERE))
        self.rollouts = RolloutService(self.fleet)
        await self.rollouts.start()
        await controller.start()
        await self.rollouts.conductor.start()
        self._telling = asyncio.create_task(self._tell(), name="agents")
        await self.until(lambda: self.rollouts.conductor.duty.here, 3600)

    async def close(self) -> None:
        """Stop it."""
        await cancelled(self._telling)
        await self.rollouts.stop()
        await self.fleet.operations.close()
        await self.fleet.controller.stop()

    async def describe(self) -> None:
        """Nodes, groups and desires of the cluster, and nodes that are what they are there."""
        edits, registry, store = self.fleet.edits, self.fleet.registry, self.fleet.store
        for at in range(0, len(self.twin.nodes), _BATCH):
            results = await edits.create_nodes(list(self.twin.nodes[at : at + _BATCH]), NAME)
            wrong = next((one for one in results if not one.ok), None)
            if wrong is not None:
                raise Refused(f"the twin cannot be made: {wrong}", by="twin", where=NAME)
        await self.fleet.settled(await store.revision())
        place = np.array([registry.find(name) for name in self.names], dtype=np.int64)
        for name, members in self.twin.groups.items():
            await edits.put_group(name, np.sort(place[unpack(members)]), NAME)
        for one in self.twin.classes:
            members_ = unpack(one.members)
            goals = {variable: values for variable, values in one.goals.items() if variable in VARIABLES}
            now = {variable: values[0] for variable, values in goals.items()}
            now |= {variable: value for variable, value in one.facts.items() if variable in VARIABLES}
            self.sim.put(members_, now=asyncio.get_running_loop().time(), **now)
            if goals:
                await edits.set_desires(np.sort(place[members_]), goals, (), NAME)
        await self.fleet.settled(await store.revision())

    async def settled(self) -> None:
        """Wait until nothing moves by itself, or for a while."""
        counts = self.fleet.controller.counts
        await self.until(lambda: not (counts()["converging"] or counts()["unknown"]), _SETTLE)

    def out(self) -> Mapping[str, int]:
        """How many nodes are out of service in each limit that is set, as the engine counts."""
        taken = self.fleet.registry.uids[self.fleet.controller.engine.places.out()]
        limits = self.fleet.registry.brakes.limits.values()
        return {b.name: int(contains(b.members, taken).sum()) for limit in limits for b in limit.buckets}

    async def _tell(self) -> None:
        """What agents report by themselves when it changes."""
        controller, registry = self.fleet.controller, self.fleet.registry
        told: dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]] = {}
        place, count = np.full(1, -1, dtype=np.int64), -1
        while True:
            if len(registry) != count:
                place, count = np.array([registry.find(name) for name in self.names], dtype=np.int64), len(registry)
            for variable in SEEN_BY["node"] if (place >= 0).all() and self.rollouts.conductor.duty.here else ():
                seen = self.sim.observe(variable, self.sim.all, asyncio.get_running_loop().time())
                news = np.flatnonzero((seen.codes != told.get(variable, 0)) & (seen.codes != 0))
                if len(news):
                    controller.tell(place[news], {variable: seen.take(news)}, "agent")
                told[variable] = seen.codes.copy()
            await asyncio.sleep(_LOOK)

    async def _roll(self, spec: RolloutSpec, rate: float) -> Simulation:
        began = asyncio.get_running_loop().time()
        self.change = self.rollouts.prepare(LOCAL_ADMIN, spec).set
        await self.rollouts.begin(LOCAL_ADMIN, NAME, spec)
        peaks: dict[str, int] = {}
        waves: list[float] = []

        def look() -> bool:
            rollout = self.rollouts.kept(NAME)
            now = asyncio.get_running_loop().time() - began
            waves.extend([now] * (rollout.wave + 1 - len(waves)))
            for name, count in self.out().items():
                peaks[name] = max(count, peaks.get(name, 0))
            return rollout.state in ENDED or rollout.state == "stopped"

        await self.until(look, LONGEST)
        seconds = asyncio.get_running_loop().time() - began
        view = await self.rollouts.one(LOCAL_ADMIN, NAME)
        return Simulation.of(
            view,
            seconds=seconds,
            waves=tuple(waves),
            buckets=tuple(
                BucketPeak(name=b.name, most=b.most, peak=peaks.get(b.name, 0))
                for b in self.rollouts.kept(NAME).buckets
            ),
            events=tuple(msgspec.structs.replace(event, time=event.time - began) for event in view.events),
            failure_rate=rate,
            left_out=self.twin.left_out,
            seed=self.seed,
        )

    async def until(self, condition: Callable[[], bool], limit: float) -> None:
        """Let time pass until it holds, or so many seconds have."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while not condition() and loop.time() < end:  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(_LOOK)
