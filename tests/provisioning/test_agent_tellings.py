"""What agents report is what the engine believes: nobody has to look."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, http_over

pytestmark = pytest.mark.slow

NAME = "n00001"


class Looks:
    """Counts looks through the node driver; holds them while told to."""

    def __init__(self, site: AgentSite) -> None:
        self._observe = site.driver.observe
        self.made = 0
        self.first = asyncio.Event()
        self.held: asyncio.Event | None = None
        site.driver.observe = self.observe  # type: ignore[method-assign]

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        self.made += 1
        self.first.set()
        columns = await self._observe(variables, batch)
        if self.held is not None:
            await self.held.wait()
        return columns


async def until_fact(site: AgentSite, variable: str, value: str) -> None:
    async with asyncio.timeout(120):
        while site.fact(NAME, variable) != value:
            await site.service.controller.stepped()


async def test_a_report_becomes_a_fact_without_a_look(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0.0
        await agent.exchange()
        await until_fact(site, "os", "up")
        await until_fact(site, "power", "on")
        await asyncio.sleep(0.5)  # what its coming had looked at anew
        looks = Looks(site)
        agent.set |= {"state": "error", "reason": "member a: it ended"}
        await agent.exchange()
        await until_fact(site, "personality", "error")
        view = site.service.view.node(site.service.registry.index_of(NAME))
        assert view.facts["personality"].source == "agent"
        assert looks.made == 0


async def test_a_look_in_flight_does_not_undo_a_report(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0.0
        await agent.exchange()
        await until_fact(site, "personality", "idle")
        looks = Looks(site)
        looks.held = asyncio.Event()
        site.service.controller.look_at(np.array([site.service.registry.index_of(NAME)]))
        async with asyncio.timeout(120):
            await looks.first.wait()
        agent.set |= {"state": "active"}
        await agent.exchange()
        await until_fact(site, "personality", "active")
        looks.held.set()
        looks.held = None
        for _ in range(5):
            site.service.controller.wake()
            await site.service.controller.stepped()
            assert site.fact(NAME, "personality") == "active"


async def test_who_says_nothing_any_more_is_looked_at(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0.0
        await agent.exchange()
        await until_fact(site, "os", "up")
        looks = Looks(site)
        site.driver.lost_power([NAME])
        async with asyncio.timeout(120):
            await looks.first.wait()
