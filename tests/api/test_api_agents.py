"""Agents over the service's own socket: who may speak, what reaches the engine, what is told, what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.provisioning.agents.service import AgentService
from strata.provisioning.personalities.records import File, Member, PersonalitySpec
from strata.provisioning.personalities.service import PersonalityService
from strata.store.memory import MemoryStore
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, crowd, http_over, node_headers, running

pytestmark = pytest.mark.slow

N1, N2, N3 = "n00001", "n00002", "n00003"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[AgentSite]:
    async with agent_site(tmp_path / "s") as made:
        yield made


@pytest.fixture
async def http(site: AgentSite) -> AsyncIterator[aiohttp.ClientSession]:
    async with http_over(site.socket) as session:
        yield session


async def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that other tasks bring about."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.02)


async def want(site: AgentSite, select: str, **wanted: str) -> None:
    nodes = site.service.registry.select(select)
    done = await site.service.edits.set_desires(nodes, {k: [v] for k, v in wanted.items()}, (), "test")
    await site.service.settled(done.revision)


async def put_set(site: AgentSite, name: str = "compute", **member: Any) -> str:
    spec = PersonalitySpec(members=(Member(name="system", release="debian:12", **member),))
    return (await site.services.get(PersonalityService).put(LOCAL_ADMIN, name, spec, None)).digest


async def exec_on(site: AgentSite, select: str, *argv: str, timeout: float = 60.0) -> dict[str, Any]:
    async with http_over(site.admin) as http:
        body = {"select": select, "argv": list(argv), "timeout": timeout}
        async with http.post("http://strata/v1/exec", json=body) as reply:
            run = await reply.json()
            assert reply.status == 201, run
        items: list[Any] = []
        while True:
            url = f"http://strata/v1/exec/{run['id']}?after={len(items)}&wait=5"
            async with http.get(url) as reply:
                page = await reply.json()
            items += page["items"]
            if page["state"] != "running" and len(items) == page["done"]:
                return {item["node"]: item for item in items}


async def failure(site: AgentSite, node: str) -> str:
    """Why the last command to it failed."""
    return (await site.services.get(AgentService).agent(LOCAL_ADMIN, node)).failure


async def told(site: AgentSite, node: str) -> str:
    """What the history tells of it."""
    page = await site.service.history(LOCAL_ADMIN, node, None, None, 100, "")
    return "\n".join(row.new for row in page.items)


# who may speak


async def test_only_a_node_with_its_present_certificate_speaks(site: AgentSite, http: aiohttp.ClientSession) -> None:
    body = FakeAgent(http, N1).body()

    async def status(**headers: str) -> int:
        async with http.post("http://strata/agent/v1/exchange", json=body | {"wait": 0}, headers=headers) as reply:
            return reply.status

    assert await status() == 401
    assert await status(**{**node_headers(N1, "A1"), "X-Strata-Client-Verify": "FAILED:expired"}) == 401
    admin = {**node_headers("root", "A1"), "X-Strata-Client-DN": "OU=role:admin,CN=root,O=Strata"}
    assert await status(**admin) == 403
    assert await status(**node_headers(N1, "B2")) == 403
    assert site.identity.alarms == [(N1, "B2")], "a certificate of an earlier boot raises the alarm"
    assert await status(**node_headers("n99999", "A1")) == 403
    assert not len(site.hub)
    assert await status(**node_headers(N1, "A1")) == 200
    assert site.hub.attached(N1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"generation": 1}',
        b'{"generation": -1, "boot_id": "b", "seq": 1, "state": {}}',
        b'{"generation": 1, "boot_id": "", "seq": 1, "state": {}}',
        b'{"generation": 1, "boot_id": "b", "seq": 1, "state": {"loaded": [' + b'"x",' * 100 + b'"x"]}}',
        b'{"generation": 1, "boot_id": "b", "seq": 1, "state": {}, "results": [{"id": "", "ok": 1}]}',
        b"[" * 100_000,
        b" " * (3 * 2**20),
    ],
)
async def test_what_makes_no_sense_is_refused(site: AgentSite, http: aiohttp.ClientSession, body: bytes) -> None:
    async with http.post(
        "http://strata/agent/v1/exchange", data=io.BytesIO(body), headers=node_headers(N1, "A1")
    ) as reply:
        assert reply.status == 400
        assert reply.content_type == "application/problem+json"
    assert site.hub.get(N1) is None


@pytest.mark.parametrize("odd", [b"\xae", rb"\udcae"])
async def test_a_report_with_bytes_that_are_not_utf_8_counts_all_the_same(
    site: AgentSite, http: aiohttp.ClientSession, odd: bytes
) -> None:
    # A name that is not UTF-8 on a node comes as a half of a surrogate pair: that is how Python writes it.
    body = b'{"generation": 1, "boot_id": "b' + odd + b'", "seq": 1, "state": {"personality": "", "images": []}}'
    async with http.post(
        "http://strata/agent/v1/exchange", data=io.BytesIO(body), headers=node_headers(N1, "A1")
    ) as reply:
        assert reply.status == 200, await reply.text()
    assert site.hub.attached(N1)


async def test_other_methods_and_paths_are_refused(site: AgentSite, http: aiohttp.ClientSession) -> None:
    async with http.get("http://strata/agent/v1/exchange", headers=node_headers(N1, "A1")) as reply:
        assert reply.status == 400
    async with http.post("http://strata/agent/v1/nothing", json={}, headers=node_headers(N1, "A1")) as reply:
        assert reply.status == 404


# what reaches the engine


async def test_a_node_that_attaches_is_up_and_its_set_is_brought_to_it(
    site: AgentSite, http: aiohttp.ClientSession
) -> None:
    site.releases.move("debian:12", 1)
    digest = await put_set(site)
    await want(site, "*", power="on", os="up", image="compute", personality="active")
    agents = [FakeAgent(http, name) for name in (N1, N2, N3)]
    async with running(*agents):
        await until(lambda: all(site.fact(name, "personality") == "active" for name in (N1, N2, N3)))
    for agent in agents:
        assert [command["kind"] for command in agent.took] == ["load", "start"]
        assert agent.took[0]["set"]["digest"] == agent.took[1]["digest"] == digest
        assert agent.took[0]["epoch"] > 0
    assert [site.fact(N1, name) for name in ("os", "identity", "image")] == ["up", "issued", "compute"]


async def test_a_promoted_tag_changes_the_nodes_over_and_a_failure_is_told(
    site: AgentSite, http: aiohttp.ClientSession
) -> None:
    site.releases.move("debian:12", 1)
    old = await put_set(site)
    await want(site, N1, power="on", os="up", image="compute", personality="active")
    agent = FakeAgent(http, N1)
    async with running(agent):
        await until(lambda: site.fact(N1, "personality") == "active")
        agent.refuse = lambda command: "system: not ready within 60 s; the set before it runs again"
        site.releases.move("debian:12", 2)
        await until(lambda: any(command["kind"] == "switch" for command in agent.took))
        await until(lambda: site.fact(N1, "image") == f"compute@{old[7:19]}")
        async with asyncio.timeout(60):
            while "not ready within 60 s" not in await failure(site, N1):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        agent.refuse = lambda command: ""
        await until(lambda: site.fact(N1, "image") == "compute")
        async with asyncio.timeout(60):  # the history is written after the fact
            while "not ready within 60 s" not in await told(site, N1):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_each_node_gets_its_own_words_in_files(site: AgentSite, http: aiohttp.ClientSession) -> None:
    site.releases.move("debian:12", 1)
    await put_set(site, files=(File(path="/etc/hostname", content="{node} {role} {label:none}{{unknown}}\n"),))
    await want(site, "*", power="on", os="up", image="compute")
    agents = [FakeAgent(http, name) for name in (N1, N2)]
    async with running(*agents):
        await until(lambda: all(site.fact(name, "image") == "compute" for name in (N1, N2)))
    files = [agent.took[0]["set"]["members"][0]["files"] for agent in agents]
    texts = [base64.b64decode(found[0]["content"]).decode() for found in files]
    roles = [site.service.registry.node(name).role for name in (N1, N2)]
    assert texts == [f"{N1} {roles[0]} {{unknown}}\n", f"{N2} {roles[1]} {{unknown}}\n"]
    assert agents[0].took[0]["set"]["digest"] == agents[1].took[0]["set"]["digest"]


async def test_a_controller_that_starts_anew_disturbs_no_running_node(tmp_path: Path) -> None:
    store = MemoryStore()
    async with agent_site(tmp_path / "s", store=store) as before:
        before.releases.move("debian:12", 1)
        await put_set(before)
        await want(before, "*", power="on", os="up", image="compute", personality="active")
        async with http_over(before.socket) as http:
            agents = [FakeAgent(http, name) for name in (N1, N2, N3)]
            async with running(*agents):
                await until(lambda: all(before.fact(name, "personality") == "active" for name in (N1, N2, N3)))
    done, switched = [len(agent.took) for agent in agents], len(before.sim.effects)
    async with agent_site(
        tmp_path / "s", store=store, identity=before.identity, releases=before.releases, sim=before.sim
    ) as after:
        assert after.fact(N1, "os") in ("up", "unknown")
        async with http_over(after.socket) as http:
            for agent in agents:
                agent.http = http
            async with running(*agents):
                await until(lambda: all(after.fact(name, "personality") == "active" for name in (N1, N2, N3)))
                await until(lambda: after.service.controller.counts()["ready"] == 3)
        assert [len(agent.took) for agent in agents] == done, "nobody was told anything"
        assert len(after.sim.effects) == switched, "nobody's power was touched"
    await store.close()


# what is told


async def test_a_command_runs_on_every_node_and_its_outputs_come_back(
    site: AgentSite, http: aiohttp.ClientSession
) -> None:
    agents = [FakeAgent(http, name) for name in (N1, N2)]
    agents[1].refuse = lambda command: "no such member: x"
    async with running(*agents):
        await until(lambda: site.hub.attached_count == 2)
        found = await exec_on(site, "*", "uname", "-a")
    assert found[N1]["output"] == "hello\n" and found[N1]["exit"] == 0
    assert found[N2]["error"] == "no such member: x"
    assert "not attached" in found[N3]["error"]
    assert agents[0].took[0]["argv"] == ["uname", "-a"]
    entries = await site.service.ledger.entries()
    assert any(entry.action == "exec.run" and entry.detail["argv"] == "uname -a" for entry in entries)


async def test_a_reply_that_is_lost_is_made_good_and_nothing_runs_twice(
    site: AgentSite, http: aiohttp.ClientSession
) -> None:
    agent = FakeAgent(http, N1)
    agent.lose_replies = 1
    async with running(agent):
        await until(lambda: site.hub.attached(N1))
        found = await exec_on(site, N1, "true")
    assert found[N1]["exit"] == 0
    assert len(agent.took) == 1


async def test_an_agent_that_never_answers_is_told_to_stop(site: AgentSite, http: aiohttp.ClientSession) -> None:
    agent = FakeAgent(http, N1)
    agent.silent = True
    async with running(agent):
        await until(lambda: site.hub.attached(N1))
        async with http_over(site.admin) as admin:
            body = {"select": N1, "argv": ["sleep", "100"], "timeout": 100}
            async with admin.post("http://strata/v1/exec", json=body) as reply:
                run = await reply.json()
            await until(lambda: len(agent.took) == 1)
            async with admin.delete(f"http://strata/v1/exec/{run['id']}") as reply:
                assert reply.status == 204
            async with admin.get(f"http://strata/v1/exec/{run['id']}?wait=5") as reply:
                page = await reply.json()
        await until(lambda: agent.took[-1]["kind"] == "cancel")
    assert page["state"] == "cancelled" and page["items"][0]["error"] == "cancelled"
    assert agent.took[-1]["of"] == agent.took[0]["id"]


async def test_what_agents_say_of_themselves_is_shown(site: AgentSite, http: aiohttp.ClientSession) -> None:
    agent = FakeAgent(http, N1)
    agent.wait = 0
    agent.set = {
        "name": "compute",
        "digest": "sha256:" + "0" * 64,
        "state": "error",
        "reason": "system ended with 1",
        "members": [{"name": "system", "state": "error", "ready": False, "restarts": 2, "reason": "ended with 1"}],
    }
    await agent.exchange()
    status, _ = await agent.post("inventory", {"cpus": 4, "nics": [{"mac": "52:54:00:00:00:01"}]})
    assert status == 200
    status, _ = await agent.post("log", {"lines": [[1.0, "system", "started"]]})
    assert status == 200
    async with http_over(site.admin) as admin:
        async with admin.get(f"http://strata/v1/nodes/{N1}/agent") as reply:
            view = await reply.json()
        async with admin.get(f"http://strata/v1/nodes/{N1}/agent/inventory") as reply:
            inventory = await reply.json()
        async with admin.get(f"http://strata/v1/nodes/{N2}/agent/inventory") as reply:
            assert reply.status == 404
    assert view["attached"] and view["reason"] == "system ended with 1" and view["members"][0]["restarts"] == 2
    assert inventory["inventory"]["cpus"] == 4


# machines that nobody knows


async def test_a_machine_that_nobody_knows_says_hello_is_adopted_and_told(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s") as site, http_over(site.socket) as http:
        hello = {"macs": ["52:54:00:00:00:09"], "serial": "S9", "inventory": {"cpus": 2}}

        async def say() -> dict[str, Any]:
            async with http.post("http://strata/agent/v1/hello", json=hello) as reply:
                assert reply.status == 200
                return dict(await reply.json())

        assert (await say())["adopted"] is False
        async with http_over(site.admin) as admin:
            async with admin.get("http://strata/v1/boot/unknown") as reply:
                listed = await reply.json()
            assert [item["serial"] for item in listed["items"]] == ["S9"]
            body = {"name": "new1", "address": "10.0.0.9"}
            async with admin.post("http://strata/v1/boot/unknown/52:54:00:00:00:09", json=body) as reply:
                assert reply.status == 201, await reply.text()
            node = site.service.registry.node("new1")
            assert [(one.mac, one.address) for one in node.interfaces] == [("52:54:00:00:00:09", "10.0.0.9")]
            site.owners["52:54:00:00:00:09"] = "new1"
            assert (await say())["adopted"] is True
            async with admin.delete("http://strata/v1/boot/unknown/52:54:00:00:00:09") as reply:
                assert reply.status == 404


async def test_many_hellos_are_bounded(site: AgentSite, http: aiohttp.ClientSession) -> None:
    refused = 0
    now = time.time()
    site.now = lambda: now
    for number in range(80):
        hello = {"macs": [f"52:54:00:00:{number // 256:02x}:{number % 256:02x}"]}
        async with http.post("http://strata/agent/v1/hello", json=hello) as reply:
            refused += reply.status == 503
    assert refused == 30, "those of a second are listened to"


# many


async def test_five_thousand_agents_attach_and_run_a_command(tmp_path: Path) -> None:
    count = 5000
    async with agent_site(tmp_path / "s", nodes=count, hold_most=count) as site:
        names = list(site.service.view.names(site.service.registry.select("*")))
        async with crowd(site.socket, names) as agents:
            await until(lambda: site.hub.held == count, 200)
            assert site.hub.attached_count == count
            found = await exec_on(site, "*", "hostname", timeout=200)
            assert all(agent.done == 1 for agent in agents)
        assert len(found) == count and all(item["exit"] == 0 for item in found.values())
