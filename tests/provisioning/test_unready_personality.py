"""A whole controller, and a personality that stops doing its work: the node is not ready, and is mended with brakes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from strata.core.driver import Batch
from strata.fleet.access.principal import LOCAL_ADMIN
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, http_over, running
from support.one_node import NAME, put_set, state, until, want

pytestmark = pytest.mark.slow

WHY = "system: it runs, and is not ready any more: nobody listens at port 22"


async def become_ready(site: AgentSite) -> None:
    await put_set(site, "one", 100)
    await want(site, power="on", os="up", image="one", personality="active")
    await until(lambda: state(site) == "ready")


async def test_a_node_whose_personality_does_not_work_is_not_ready_and_is_ready_when_it_does(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0.05
        agent.refuse = lambda command: "" if agent.set["state"] == "idle" or command["kind"] != "start" else WHY
        async with running(agent):
            await become_ready(site)
            agent.set |= {"state": "error", "reason": WHY}
            await until(lambda: state(site) != "ready")
            assert site.fact(NAME, "personality") == "error"
            agent.set |= {"state": "active", "reason": ""}
            await until(lambda: state(site) == "ready")
            assert "stop" not in [command["kind"] for command in agent.took], "what works again was never touched"


async def test_a_personality_that_was_given_up_is_started_anew_once_no_job_would_be_hurt(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0.05
        async with running(agent):
            await become_ready(site)
            workload = site.service.driver("workload")
            assert workload is not None
            permits, asked = workload.permits, asyncio.Event()

            async def busy(guard: str, batch: Batch) -> Sequence[str]:
                asked.set()
                return ["job 7 runs there"] * len(batch)

            workload.permits = busy  # type: ignore[method-assign]
            agent.set |= {"state": "fatal", "reason": WHY}
            async with asyncio.timeout(60):
                await asked.wait()
            await until(lambda: state(site) == "waiting")
            why = await site.service.why(LOCAL_ADMIN, NAME)
            assert "job 7 runs there" in " ".join((why.summary, *why.lines))
            assert "stop" not in [command["kind"] for command in agent.took]
            workload.permits = permits  # type: ignore[method-assign]
            await until(lambda: state(site) == "ready")
            assert [command["kind"] for command in agent.took][-2:] == ["stop", "start"]
