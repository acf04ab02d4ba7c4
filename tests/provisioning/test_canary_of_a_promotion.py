"""A whole controller, and agents to whom a bad image is promoted: one of them gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.provisioning.personalities.records import Member, PersonalitySpec
from strata.provisioning.personalities.service import PersonalityService
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, http_over, running

pytestmark = pytest.mark.slow

NAMES = ("n00001", "n00002", "n00003", "n00004")
SCOPED = Principal(name="eve", role="operator", scope=("mine",))


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 (what the engine believes has no event)
            await asyncio.sleep(0.02)


def states(site: AgentSite) -> list[str]:
    return [site.service.view.state(site.service.registry.index_of(name)) for name in NAMES]


async def test_a_bad_image_that_is_promoted_reaches_one_node_and_going_back_reaches_all_at_once(
    tmp_path: Path,
) -> None:
    async with agent_site(tmp_path / "s", nodes=4) as site, http_over(site.socket) as http:
        agents = [FakeAgent(http, name) for name in NAMES]
        async with running(*agents):
            service = site.service
            site.releases.move("demo:1", 100)
            spec = PersonalitySpec(members=(Member(name="system", release="demo:1"),))
            await site.services.get(PersonalityService).put(LOCAL_ADMIN, "demo", spec, None)
            goal = {"power": "on", "os": "up", "image": "demo", "personality": "active"}
            await service.edits.set_desires(service.registry.select("*"), goal, (), "test")
            await until(lambda: states(site) == ["ready"] * 4)
            for agent in agents:
                agent.refuse = lambda command: "it does not start" if command["kind"] == "switch" else ""

            site.releases.move("demo:1", 200)
            await until(lambda: sorted(states(site)) == ["faulted", "waiting", "waiting", "waiting"])
            bad = next(agent.name for agent in agents if "switch" in [command["kind"] for command in agent.took])
            assert sum("switch" in [command["kind"] for command in agent.took] for agent in agents) == 1
            other = next(name for name in NAMES if name != bad)
            why = await service.why(LOCAL_ADMIN, other)
            assert f"it waits for canary {bad}" in why.summary
            assert "it does not start" in why.blocked_by[0].detail
            status = await service.status(LOCAL_ADMIN)
            assert [(canary.node, canary.waiting) for canary in status.canaries] == [(bad, 3)]

            mine = service.registry.select(other)
            await service.settled(await service.edits.put_group("mine", mine, "test", description=""))
            told = await service.why(SCOPED, other)
            assert bad not in str(told) and "outside your groups" in told.summary
            assert bad not in str((await service.status(SCOPED)).canaries)

            begun = [len(agent.took) for agent in agents]
            site.releases.move("demo:1", 100)
            await until(lambda: states(site) == ["ready"] * 4)
            assert [len(agent.took) for agent in agents] == begun, "they have it still"
