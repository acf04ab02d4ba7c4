"""A whole controller whose node loses its power in the middle of a boot: noticed, told, and mended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.bmc.protocol import Boot
from strata.provisioning.identity.records import BootRecord
from support.agent_site import AgentSite, FakeIdentity, agent_site
from support.fake_agents import FakeAgent, http_over, running

pytestmark = pytest.mark.slow

NAME = "n00001"
LOST = "boot failed: power went off while it waited for os to be up"


class StartsNodes:
    """Takes orders to boot, and notes how often."""

    def __init__(self) -> None:
        self.cycles = 0

    async def set_boot(self, boot: Boot) -> None:
        pass

    async def set_power(self, action: str, **_: Any) -> None:
        self.cycles += 1


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 (what the engine believes has no event)
            await asyncio.sleep(0.02)


async def told(site: AgentSite) -> list[str]:
    """What history says befell the node, newest first."""
    page = await site.service.history(LOCAL_ADMIN, NAME, None, None, 100, "")
    return [item.new for item in page.items if item.variable == "event"]


async def test_power_lost_in_the_middle_of_a_boot_is_told_as_that_and_the_node_is_started_again(tmp_path: Path) -> None:
    bmc, identity = StartsNodes(), FakeIdentity()
    identity.records[NAME] = BootRecord()  # it has never booted
    async with (
        agent_site(tmp_path / "s", nodes=1, identity=identity, bmc=lambda _: bmc) as site,
        http_over(site.socket) as http,
    ):
        service = site.service
        node = service.registry.select(NAME)
        await until(lambda: site.fact(NAME, "os") == "down")
        await service.edits.set_desires(node, {"power": "on", "os": "up"}, (), "test")
        await until(lambda: bmc.cycles == 1)
        # What it says next is to be read at leisure: nothing new is begun for now.
        await service.hold(LOCAL_ADMIN, NAME, "somebody looks at it")
        site.sim.power_loss(node, now=time.monotonic())
        service.controller.look_soon([NAME])  # as its controller's event has it

        await until(lambda: service.view.node(int(node[0])).doing is None)  # a boot may take 300 s
        why = await service.why(LOCAL_ADMIN, NAME)
        assert why.state == "held"
        assert f"last trouble: {LOST}" in why.lines
        async with asyncio.timeout(60):
            while await told(site) != [LOST]:  # noqa: ASYNC110 (it is written down by way of the store)
                await asyncio.sleep(0.02)

        await service.release(LOCAL_ADMIN, NAME)
        await until(lambda: site.fact(NAME, "power") == "on" and service.view.node(int(node[0])).doing is not None)
        identity.records[NAME] = identity.default
        async with running(FakeAgent(http, NAME)):
            await until(lambda: service.view.state(int(node[0])) == "ready")
        assert (await told(site))[-1] == LOST
