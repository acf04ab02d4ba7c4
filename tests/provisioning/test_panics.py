"""What a console and a boot request say of a node that died is used at once, and checked against its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.provisioning.agents import hub
from strata.provisioning.agents.panics import Panics
from strata.provisioning.boot.peers import BootElsewhere
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, http_over, running

pytestmark = pytest.mark.slow

NAME = "n00001"
GOAL = {"power": "on", "os": "up"}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ANSWERS_WITHIN", 0.5)


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not check():  # noqa: ASYNC110 (what the engine believes has no event)
            await asyncio.sleep(0.02)


async def ready(site: AgentSite) -> None:
    await site.service.edits.set_desires(site.service.registry.select("*"), GOAL, (), "test")
    await until(lambda: site.service.view.state(0) == "ready")


async def events(site: AgentSite) -> list[str]:
    found = await site.service.history(LOCAL_ADMIN, NAME, None, None, 50, "")
    return [item.new for item in found.items if item.variable == "event"]


async def in_history(site: AgentSite, event: str) -> None:
    """Until it is there: the history is written beside everything else."""
    async with asyncio.timeout(120):
        while event not in await events(site):  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.02)


async def test_a_node_whose_kernel_panics_is_not_ready_any_more_and_is_left_to_start_anew(tmp_path: Path) -> None:
    def cycled(address: str) -> Any:
        raise AssertionError("its BMC was told something while it may write down why it died")

    async with agent_site(tmp_path / "s", nodes=1, bmc=cycled) as site, http_over(site.socket) as http:
        panics = Panics(site.service.controller, site.driver)
        async with running(FakeAgent(http, NAME)):
            await ready(site)
        panics.take(NAME, "Kernel panic - not syncing: Fatal exception")
        await until(lambda: site.fact(NAME, "os") == "down")
        await until(lambda: site.service.view.state(0) == "converging")
        await in_history(site, "its kernel died: Kernel panic - not syncing: Fatal exception")
        async with running(FakeAgent(http, NAME, generation=1)):
            await until(lambda: site.service.view.state(0) == "ready")
        await panics.close()


async def test_a_console_that_says_so_of_a_node_whose_agent_speaks_is_not_believed(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        panics = Panics(site.service.controller, site.driver)
        async with running(agent := FakeAgent(http, NAME)):
            await ready(site)
            before = agent.seq
            panics.take(NAME, "Kernel panic - not syncing: said somebody")
            await until(lambda: agent.seq > before)
            await until(lambda: not panics._tasks)
            assert site.fact(NAME, "os") == "up"
            assert site.service.view.state(0) == "ready"
            assert not [event for event in await events(site) if "died" in event]
        await panics.close()


class NoPower:
    """Knows nothing of anybody's power."""

    def off(self, name: str) -> bool:
        return False


class Alone:
    """The only controller."""

    def leader(self, name: str) -> None:
        return None


async def test_a_node_that_boots_while_it_is_believed_up_is_down_as_soon_as_its_agent_is_asked(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        elsewhere = BootElsewhere(
            site.hub,
            Alone(),
            NoPower(),
            led_for=lambda name: 1e6,
            arrived=lambda name: True,  # type: ignore[arg-type]
        )
        async with running(FakeAgent(http, NAME)):
            await ready(site)
            assert await elsewhere.speaks(NAME) is True
        assert elsewhere.attached(NAME) is True, "nobody has missed it yet"
        site.asked[NAME] = site.now()
        assert await elsewhere.speaks(NAME) is False
        await until(lambda: site.fact(NAME, "os") == "down")
        await until(lambda: site.service.view.state(0) == "converging")
        await elsewhere.close()
