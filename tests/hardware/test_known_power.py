"""What a whole controller knows of a node's power: by looks, and never by what it believed a while ago."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Model, Mutation
from strata.core.state import Outcome
from strata.engine.progress import Phase
from strata.engine.settings import EngineSettings
from strata.fleet.controller import known_power
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.controller import Controller
from strata.fleet.controller.known_power import FRESH, KnownPower
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.registry.edits import Edits
from strata.fleet.settings import LeadershipSettings
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.no_workload import NoWorkload
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from support.rooms import fed

NODE = "n1"


class Bmcs:
    """One node's BMC: it can be blind, and slow to do what it is told."""

    name = "bmc"

    def __init__(self) -> None:
        self.power: str | None = "off"
        self.looks = 0
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        self.looks += 1
        return {"power": Column.of([self.power or "unknown"] * len(batch))}

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        self.begun.set()
        await self.may_go_on.wait()
        return Outcomes.all(Outcome.DONE, len(batch))

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return [""] * len(batch)


class Site:
    """A controller of one node, with a clock that can be put forward."""

    def __init__(self, controller: Controller, bmcs: Bmcs, edits: Edits) -> None:
        self.controller = controller
        self.bmcs = bmcs
        self.edits = edits
        self.power = KnownPower(controller)
        self.ahead = 0.0

    @property
    def index(self) -> int:
        return self.controller.registry.find(NODE)

    def fact(self) -> str:
        column = self.controller.engine.table.columns["power"]
        return column.words[column.fact[self.index]]

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not check():
                await self.controller.stepped()


@contextlib.asynccontextmanager
async def site_of(bmcs: Bmcs) -> AsyncIterator[Site]:
    store = MemoryStore()
    found: list[Site] = []
    clock = Clock(now=lambda: time.monotonic() + (found[0].ahead if found else 0.0))
    controller = Controller(
        store,
        Model.of(HARDWARE),
        {"bmc": bmcs, "workload": NoWorkload()},
        name="test",
        engine=EngineSettings(first_poll=0.05, longest_poll=0.1, blind_look=0.05),
        leadership=LeadershipSettings(shards=1, lease=1000.0),
        clock=clock,
    )
    site = Site(controller, bmcs, Edits(controller.registry, Ledger(store)))
    found.append(site)
    await fed(controller).start()
    try:
        await site.edits.create_nodes([NodeSpec(name=NODE)], "test")
        await controller.registry.reached(await store.revision())
        await site.until(lambda: bmcs.looks > 0)
        yield site
    finally:
        bmcs.may_go_on.set()
        await controller.stop()
        await store.close()


async def test_a_node_that_was_just_seen_without_power_is_known_to_be_off() -> None:
    async with site_of(Bmcs()) as site:
        await site.until(lambda: site.fact() == "off")
        assert site.power.off(NODE) is True
        site.ahead += FRESH + 1
        assert site.power.off(NODE) is None, "that was a while ago"
        assert await site.power.looked(NODE) is True
        assert site.power.off("nobody") is False


async def test_a_node_that_somebody_switched_on_by_hand_is_not_taken_for_one_that_is_off() -> None:
    async with site_of(Bmcs()) as site:
        await site.until(lambda: site.fact() == "off")
        site.bmcs.power = "on"
        site.ahead += FRESH + 1
        assert site.fact() == "off", "nobody has looked since"
        assert await site.power.looked(NODE) is False


async def test_a_node_that_is_being_switched_on_is_not_off_however_long_it_seems_so() -> None:
    async with site_of(Bmcs()) as site:
        await site.until(lambda: site.fact() == "off")
        await site.edits.set_desires(site.controller.registry.select(NODE), {"power": "on"}, (), "test")
        await asyncio.wait_for(site.bmcs.begun.wait(), 60)
        assert (site.fact(), site.power.off(NODE)) == ("off", False), "the order is under way"
        site.bmcs.may_go_on.set()
        await site.until(lambda: site.controller.engine.progress.phase[site.index] == Phase.SETTLING)
        looks = site.bmcs.looks
        await site.until(lambda: site.bmcs.looks > looks + 1)
        assert (site.fact(), site.power.off(NODE)) == ("off", False), "it was ordered, and does not show yet"


@pytest.mark.slow
async def test_what_nobody_knows_is_not_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_power, "PATIENCE", 0.2)
    blind = Bmcs()
    blind.power = None
    async with site_of(blind) as site:
        assert site.power.off(NODE) is False
        blind.power = "off"
        await site.until(lambda: site.fact() == "off")
        blind.power = None
        site.ahead += FRESH + 1
        assert await site.power.looked(NODE) is None, "it was off, and nobody can look now"
        site.ahead += 90
        await site.until(lambda: site.fact() == "unknown")
        assert await site.power.looked(NODE) is False, "a fact that is too old keeps no node from booting"


async def test_who_asks_again_and_again_has_the_bmc_asked_no_more_often() -> None:
    async with site_of(Bmcs()) as site:
        await site.until(lambda: site.fact() == "off")
        looks = site.bmcs.looks
        site.ahead += FRESH + 1
        answers: list[Any] = await asyncio.gather(*(site.power.looked(NODE) for _ in range(200)))
        assert answers == [True] * 200
        assert site.bmcs.looks == looks + 1
