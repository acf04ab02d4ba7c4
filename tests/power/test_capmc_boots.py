"""Which nodes are taken to have booted, by what was seen of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import DeviceError, Unavailable
from strata.core.model import Layer, Model, Mutation
from strata.daemon.settings import Settings
from strata.fleet.access.sealing import Seal
from strata.fleet.controller.controller import Controller
from strata.fleet.history.transitions import Change, Transition, encode, key_of
from strata.fleet.settings import LeadershipSettings
from strata.hardware.bmc.operations import BmcOperations, BmcOrder
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.power.capmc.boots import CapmcBoots
from strata.power.telemetry.columns import Uids
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from strata.store.protocol import Put
from strata.virtual.fleet.names import simulated_nodes
from support.rooms import OpenFleet

EVERYTHING = (HARDWARE, PROVISIONING, PLATFORM)
ELSEWHERE = "another controller, which sees to it itself"


class Boots:
    """What follows the boots of eight nodes, and whom it told of."""

    def __init__(self, service: OpenFleet) -> None:
        self.service = service
        self.told: list[int] = []
        self.deaf = 0
        """How many times it will fail to hear."""
        self._written = 0

    async def hear(self, uids: Uids) -> None:
        if self.deaf:
            self.deaf -= 1
            raise Unavailable("try again")
        self.told += uids.tolist()

    async def saw(self, *signs: tuple[str, str, str, int], by: str = "test") -> None:
        """The log says that a variable went from a value to another."""
        self._written += 1
        changes = tuple(Change(variable, old, new, "", "", ((uid, uid),)) for variable, old, new, uid in signs)
        row = Put(key_of(self._written), encode(Transition(0.0, by, changes)))
        await self.service.controller.store.txn([row])

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 (it is told, and tells nobody)
                await asyncio.sleep(0.01)


class Blind:
    """Implements ``strata.core.driver.Driver``: it sees nothing, so that the log holds what a test says, no more."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        raise NotImplementedError

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        raise NotImplementedError


@asynccontextmanager
async def boots_of(directory: Path, *layers: Layer) -> AsyncIterator[Boots]:
    drivers = {name: Blind(name) for name in ("bmc", "node", "workload")}
    settings = LeadershipSettings(shards=1)
    controller = Controller(MemoryStore(), Model.of(*layers), drivers, name="test", leadership=settings)
    service = OpenFleet(controller, Settings(state_dir=directory))
    await controller.start()
    await service.edits.create_nodes(simulated_nodes(8, bmc_base="http://bmcs"), "test")
    await service.considered(await controller.store.revision())
    found = Boots(service)
    boots = CapmcBoots(service, found.hear)
    await boots.start()
    try:
        yield found
    finally:
        await boots.stop()
        await service.operations.close()
        await controller.stop()


async def test_a_node_has_booted_when_it_was_down_and_is_up_again(tmp_path: Path) -> None:
    async with boots_of(tmp_path, *EVERYTHING) as boots:
        await boots.saw(("os", "unknown", "up", 1))  # nobody heard of it for a while
        await boots.saw(("os", "hung", "up", 2))  # its agent hung
        await boots.saw(("power", "on", "off", 3), ("os", "up", "unknown", 3))
        await boots.saw(("power", "off", "on", 3))  # not there yet
        await boots.saw(("image", "v1", "absent", 4), ("os", "up", "down", 4))
        await boots.saw(("os", "up", "down", 5), by=ELSEWHERE)
        await boots.saw(("os", "down", "up", 5), by=ELSEWHERE)
        await boots.saw(("os", "down", "up", 4))
        await boots.saw(("power", "on", "off", 7), by=ELSEWHERE)
        await boots.saw(("os", "unknown", "up", 7))  # which came to be this one's meanwhile
        await boots.saw(("image", "unknown", "absent", 4))  # it has not loaded one yet
        await boots.saw(("os", "unknown", "up", 3))
        await boots.saw(("image", "v1", "absent", 6))  # faster than anybody looked
        await boots.until(lambda: 6 in boots.told)
        assert sorted(boots.told) == [3, 4, 6, 7]


async def test_where_nobody_tells_of_systems_power_that_comes_back_says_so(tmp_path: Path) -> None:
    async with boots_of(tmp_path, HARDWARE) as boots:
        await boots.saw(("power", "unknown", "on", 1))
        await boots.saw(("power", "on", "off", 2))
        await boots.saw(("power", "off", "on", 2))
        await boots.until(lambda: 2 in boots.told)
        assert boots.told == [2]


class Bmc:
    """A node's controller, which restarts it or does not."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def set_power(self, action: str, **_: Any) -> None:
        if self._address.endswith("n00002"):
            raise DeviceError("out of order", node=self._address)


@pytest.mark.parametrize(("layers", "told"), [((HARDWARE,), [1, 3]), (EVERYTHING, [])])
async def test_a_restart_by_a_controller_counts_where_nothing_else_would_show_it(
    tmp_path: Path, layers: tuple[Layer, ...], told: list[int]
) -> None:
    async with boots_of(tmp_path, *layers) as boots:
        jobs = BmcOperations(boots.service, Bmc, Seal([b"k" * 32]))  # type: ignore[arg-type]
        nodes = boots.service.registry.select("n[00001-00003]")
        failed = await jobs.carry_out(BmcOrder(what="power", action="cycle", force=True), nodes)
        assert list(failed) == ["n00002"]
        await jobs.carry_out(BmcOrder(what="power", action="off", force=True), boots.service.registry.select("n00004"))
        await boots.saw(("power", "on", "off", 8), ("os", "up", "down", 8))
        await boots.saw(("power", "off", "on", 8), ("os", "down", "up", 8))
        await boots.until(lambda: 8 in boots.told)
        assert sorted(boots.told) == [*told, 8]


async def test_who_could_not_be_told_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata.power.capmc.boots._AGAIN", 0.01)
    async with boots_of(tmp_path, *EVERYTHING) as boots:
        boots.deaf = 3
        await boots.saw(("os", "up", "down", 1), ("os", "up", "down", 2))
        await boots.saw(("os", "down", "up", 1))
        await boots.saw(("os", "down", "up", 2))
        await boots.until(lambda: len(boots.told) >= 2)
        assert sorted(boots.told) == [1, 2]
