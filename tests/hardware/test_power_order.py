"""Power goes in order, because no step starts before its guards say yes: a whole controller over a small world."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Model, Mutation
from strata.core.node import Node
from strata.core.state import Outcome
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller.controller import Controller
from strata.fleet.desires.records import DesireChange
from strata.fleet.nodes.batches import batch_of
from strata.fleet.settings import LeadershipSettings
from strata.hardware.feeds.driver import FeedDriver
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from support.rooms import OpenFleet
from support.work import counted

NODES = [f"n{number}" for number in range(1, 9)]
CHASSIS = ["c0", "c1"]
OUTLETS = ["outlet-a", "outlet-b", "outlet-c"]


def described() -> list[Node]:
    """Two chassis of four nodes; the first has two feeds."""
    outlets = [
        Node(name=name, uid=0, role="pdu-outlet", location=f"x1000m0p0j{place}", bmc=f"bmc://{name}")
        for place, name in enumerate(OUTLETS, 1)
    ]
    feeds = ("outlet-a/outlet-b", "outlet-c")
    chassis = [
        Node(name=name, uid=0, role="chassis", location=f"x1000c{place}", labels={"fed-by": feeds[place]}, bmc="b")
        for place, name in enumerate(CHASSIS)
    ]
    nodes = [
        Node(name=name, uid=0, location=f"x1000c{place // 4}s{place % 4}b0n0", bmc="b")
        for place, name in enumerate(NODES)
    ]
    return [*outlets, *chassis, *nodes]


class World:
    """What is on. Physics: what loses its last feed is off, and what has none cannot be switched on."""

    name = "bmc"

    def __init__(self) -> None:
        self.on: set[str] = set()
        self.silent: set[str] = set()
        self.log: list[tuple[str, str]] = []
        self.violations: list[str] = []
        self.jobs: set[str] = set()

    def feeders(self, name: str) -> list[str]:
        if name in NODES:
            return ["c0" if NODES.index(name) < 4 else "c1"]
        return {"c0": ["outlet-a", "outlet-b"], "c1": ["outlet-c"]}.get(name, [])

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        for name in batch.names:
            self.log.append((mutation.to, name))
            if mutation.to == "on":
                if self.feeders(name) and not self.on.intersection(self.feeders(name)):
                    self.violations.append(f"{name} was switched on without power")
                    continue
                self.on.add(name)
            else:
                self.on.discard(name)
                hurt = [n for n in self.on if name in self.feeders(n) and not self.on.intersection(self.feeders(n))]
                self.violations += [f"{n} lost power" for n in hurt]
                self.on.difference_update(hurt)
        return Outcomes.all(Outcome.DONE, len(batch))

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        seen = [None if n in self.silent else "on" if n in self.on else "off" for n in batch.names]
        return {"power": Column.of(seen)}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        raise NotImplementedError


class Workload:
    """A workload manager that has heard of no node."""

    name = "workload"

    def __init__(self, world: World) -> None:
        self.world = world

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        return Outcomes.all(Outcome.DONE, len(batch))

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return {"workload": Column.same("out", len(batch))}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return [f"a job runs on {name}" if name in self.world.jobs else "" for name in batch.names]


@contextlib.asynccontextmanager
async def running(world: World, directory: Path, store: MemoryStore | None = None) -> AsyncIterator[OpenFleet]:
    """A controller that does not wait long before it asks or looks again."""
    guards = tuple(msgspec.structs.replace(guard, ask_again_after=0.05) for guard in HARDWARE.guards)
    # All of the fleet may be taken down at once: it is the order that is tried here.
    hardware = msgspec.structs.replace(HARDWARE, guards=guards, budgets=())
    controller = Controller(
        store or MemoryStore(),
        Model.of(hardware, PROVISIONING, PLATFORM),
        {"bmc": world, "workload": Workload(world), "node": Blind()},
        name="test",
        history=directory / "history.db",
        leadership=LeadershipSettings(shards=2),
        engine=EngineSettings(first_poll=0.01, blind_look=0.05),
    )
    service = OpenFleet(controller, Settings(state_dir=directory))
    await controller.start()
    try:
        if not len(service.registry):
            await service.edits.create_nodes(described(), "test")
            await service.settled(await controller.store.revision())
        yield service
    finally:
        await service.operations.close()
        await controller.stop()


class Blind(Workload):
    """No agents answer."""

    name = "node"

    def __init__(self) -> None:
        super().__init__(World())

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return {}


async def want(service: OpenFleet, select: str, power: str) -> None:
    await service.set_desires(LOCAL_ADMIN, DesireChange(select=select, set={"power": power}), False)


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.01)


EVERYTHING = ",".join((*OUTLETS, *CHASSIS, *NODES))


@pytest.mark.slow
async def test_everything_on_goes_from_the_outlet_to_the_node_and_everything_off_goes_back(tmp_path: Path) -> None:
    world = World()
    async with running(world, tmp_path) as service:
        await want(service, EVERYTHING, "on")
        await until(lambda: len(world.on) == 13)
        assert [("on", name) for name in NODES if ("on", name) in world.log], "they were switched, not only fed"
        for chassis, members in (("c0", NODES[:4]), ("c1", NODES[4:])):
            at = world.log.index(("on", chassis))
            assert min(world.log.index(("on", name)) for name in members) > at
            assert min(world.log.index(("on", feed)) for feed in world.feeders(chassis)) < at
        world.log.clear()
        await want(service, EVERYTHING, "off")
        await until(lambda: not world.on)
        for chassis, members in (("c0", NODES[:4]), ("c1", NODES[4:])):
            at = world.log.index(("off", chassis))
            assert max(world.log.index(("off", name)) for name in members) < at
            assert min(world.log.index(("off", feed)) for feed in world.feeders(chassis)) > at
    assert world.violations == []


@pytest.mark.slow
async def test_a_chassis_stays_on_for_a_node_that_is_on_and_says_so(tmp_path: Path) -> None:
    world = World()
    world.on = {*OUTLETS, *CHASSIS, "n2", "n3"}
    async with running(world, tmp_path) as service:
        await want(service, "c0", "off")
        index = service.registry.find("c0")
        await until(lambda: "n[2-3] are on" in service.controller.engine.progress.reasons.get(index, ""))
        await want(service, "n2,n3", "off")
        await until(lambda: "c0" not in world.on)
    assert world.violations == []
    assert world.log[-1] == ("off", "c0")


@pytest.mark.slow
async def test_what_is_not_known_to_be_off_keeps_its_chassis_on(tmp_path: Path) -> None:
    world = World()
    world.on = {*OUTLETS, *CHASSIS}
    world.silent = {"n7"}
    async with running(world, tmp_path) as service:
        await want(service, "c1", "off")
        index = service.registry.find("c1")
        await until(lambda: "n7 is not known to be off" in service.controller.engine.progress.reasons.get(index, ""))
        assert "c1" in world.on


@pytest.mark.slow
async def test_a_node_waits_for_its_chassis_and_says_so(tmp_path: Path) -> None:
    world = World()
    async with running(world, tmp_path) as service:
        await want(service, "n1", "on")
        index = service.registry.find("n1")
        await until(lambda: "power from c0, which is off" in service.controller.engine.progress.reasons.get(index, ""))
        await want(service, "c0,outlet-b", "on")
        await until(lambda: "n1" in world.on)
    assert world.violations == [], "one of two feeds is enough"


@pytest.mark.slow
async def test_the_order_holds_over_a_restart_in_the_middle(tmp_path: Path) -> None:
    world, store = World(), MemoryStore()
    async with running(world, tmp_path, store) as service:
        await want(service, EVERYTHING, "on")
        await until(lambda: bool(world.on.intersection(OUTLETS)))
    async with running(world, tmp_path, store):
        await until(lambda: len(world.on) == 13)
    assert world.violations == []


@pytest.mark.slow
async def test_a_job_downstream_keeps_everything_above_it_on(tmp_path: Path) -> None:
    world = World()
    world.on = {*OUTLETS, *CHASSIS, *NODES}
    world.jobs = {"n1"}
    async with running(world, tmp_path) as service:
        await want(service, EVERYTHING, "off")
        await until(lambda: world.on == {"n1", "c0", "outlet-a", "outlet-b"})
        world.jobs.clear()
        await until(lambda: not world.on)
    assert world.violations == []


@pytest.mark.slow
async def test_a_hundred_thousand_nodes_are_answered_at_a_bounded_cost_for_each(tmp_path: Path) -> None:
    world = World()
    async with running(world, tmp_path) as service:
        many = [Node(name=f"m{i}", uid=0, location=f"x{i // 512}c{i // 64 % 8}s{i % 64}b0n0") for i in range(100_000)]
        chassis = [Node(name=f"cc{i}", uid=0, role="chassis", location=f"x{i // 8}c{i % 8}") for i in range(1563)]
        await service.edits.create_nodes([*chassis, *many], "test")
        await service.settled(await service.controller.store.revision())
        driver = FeedDriver(service.registry, service.controller.engine, time.monotonic)
        nodes = np.flatnonzero(service.registry.alive)
        batch = batch_of(service.registry, nodes)
        await driver.permits("fed", batch)
        for guard in ("fed", "feeds-nothing"):
            with counted() as work:
                answers = await driver.permits(guard, batch)
            assert len(answers) == len(nodes)
            assert work.calls < 60 * len(nodes), guard
