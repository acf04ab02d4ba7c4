"""What becomes of nodes whose certificate was revoked or whose personality cannot be run, and of machines that shall be
nodes at an address that is none of theirs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.provisioning.addresses import misplaced
from strata.provisioning.boot.requests import BootControl
from strata.provisioning.identity.records import BootRecord
from strata.provisioning.networks import parse
from strata.provisioning.personalities.records import Member, PersonalitySpec
from strata.provisioning.personalities.service import PersonalityService
from support.agent_site import AgentSite, FakeIdentity, agent_site
from support.fake_agents import FakeAgent, http_over, running

pytestmark = pytest.mark.slow

COUNT = 12
NAMES = [f"n{number:05}" for number in range(1, COUNT + 1)]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[AgentSite]:
    async with agent_site(tmp_path / "s", nodes=COUNT) as made:
        yield made


async def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that other tasks bring about."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.02)


class Revocable(FakeIdentity):
    """Takes certificates away."""

    async def revoke(self, node: str, by: str) -> None:
        self.serials[node] = ""
        self.records[node] = BootRecord(generation=1, redeemed=1.0, revoked=("A1",), revoked_by=by)


async def test_a_revoked_certificate_is_a_fact_at_once_and_not_when_the_node_is_missed(tmp_path: Path) -> None:
    name = NAMES[0]
    identity = Revocable()
    async with agent_site(tmp_path / "s", nodes=1, identity=identity) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, name)
        async with running(agent):
            await until(lambda: site.fact(name, "identity") == "issued")
            boot = SimpleNamespace(
                asked=lambda name: SimpleNamespace(script=0.0),
                questions=SimpleNamespace(
                    attached=site.hub.attached, held=lambda name: False, begun=site.hub.begins_anew
                ),
            )
            control = BootControl(site.service, cast("Any", boot), cast("Any", None), cast("Any", identity))
            status = await control.revoke(LOCAL_ADMIN, name)
            assert not status.attached
            await until(lambda: site.fact(name, "identity") == "none")
            assert site.fact(name, "os") == "up", "its silence has not been noticed yet"
            assert identity.records[name].revoked_by == LOCAL_ADMIN.name


async def test_an_personality_that_cannot_be_resolved_fails_on_nobody_and_runs_when_it_can(site: AgentSite) -> None:
    site.releases.move("debian:12", 1)
    spec = PersonalitySpec(members=(Member(name="system", release="debian:12"),))
    await site.services.get(PersonalityService).put(LOCAL_ADMIN, "compute", spec, None)
    release = site.releases.remove("debian:12")
    await site.sets.settled()
    assert "no such image" in site.sets.problem("compute")
    work, courses = site.service.controller.engine.progress, site.service.controller.engine.in_flight
    async with http_over(site.socket) as http:
        agents = [FakeAgent(http, name) for name in NAMES]
        async with running(*agents):
            await until(lambda: all(site.fact(name, "os") == "up" for name in NAMES))
            nodes = site.service.registry.select(",".join(NAMES))
            wanted = {"image": ["compute"], "personality": ["active"]}
            await site.service.edits.set_desires(nodes, wanted, (), "test")
            await until(lambda: len([r for r in work.reasons.values() if "was not tried" in r]) == COUNT)
            assert not work.failures.any() and not work.fault.any()
            assert courses.breakers[courses.numbers["load-image"]].stopped_since is None
            assert not any(agent.took for agent in agents)
            site.releases.put("debian:12", release)
            await until(lambda: all(site.fact(name, "personality") == "active" for name in NAMES))


async def test_an_unknown_machine_is_adopted_at_an_address_of_a_boot_network_and_at_no_other(tmp_path: Path) -> None:
    networks = parse("subnets: [{network: 10.77.0.0/24, interface: br0, server: 10.77.0.1}]", source="f")
    async with (
        agent_site(tmp_path / "s", nodes=1) as site,
        http_over(site.socket) as http,
        http_over(site.admin) as admin,
    ):
        site.service.edits.misplaced = misplaced(networks)
        for mac in ("52:54:00:00:00:09", "52:54:00:00:00:0a"):
            async with http.post("http://strata/agent/v1/hello", json={"macs": [mac]}) as reply:
                assert reply.status == 200

        async def adopt(mac: str, name: str, address: str) -> tuple[int, str]:
            url, body = f"http://strata/v1/boot/unknown/{mac}", {"name": name, "address": address}
            async with admin.post(url, json=body) as reply:
                return reply.status, await reply.text()

        status, said = await adopt("52:54:00:00:00:09", "new1", "192.168.1.9")
        assert (status, "192.168.1.9 is in none of the boot networks: 10.77.0.0/24" in said) == (400, True)
        status, said = await adopt("52:54:00:00:00:09", "new1", "10.77.0.9")
        assert status == 201, said
        status, said = await adopt("52:54:00:00:00:0a", "new2", "10.77.0.9")
        assert (status, "address 10.77.0.9 is that of new1" in said) == (409, True)
