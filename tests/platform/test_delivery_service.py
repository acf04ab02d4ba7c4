"""Delivery in a running controller: from a repository to what agents hold, and back as facts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from strata.cli import main
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Model, Mutation
from strata.core.state import Outcome
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.alarm import Alarm
from strata.fleet.controller.controller import Controller
from strata.fleet.groups.records import GroupSpec
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.settings import LeadershipSettings
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.config.records import ConfigPlan
from strata.platform.config.repository import Repository
from strata.platform.config.service import ConfigService
from strata.platform.delivery.service import DeliveryService
from strata.platform.model import LAYER as PLATFORM
from strata.platform.no_workload import NoWorkload
from strata.provisioning.agents.hub import Hub
from strata.provisioning.model import LAYER as PROVISIONING
from strata.provisioning.personalities.records import Member, Personality
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, http_over
from support.rooms import OpenFleet

pytestmark = pytest.mark.slow

SET = "compute"
GROUPS = "kind: group\nname: compute\nmembers: n0000[1-2]\n"
DESIRE = """kind: desire
name: all
select: "*"
set: {power: on, os: up, image: compute, personality: active, config: current}
"""
OVERLAY = """kind: overlay
name: base
vars: {greeting: hello}
files:
  - {path: /etc/motd, source: motd.j2}
  - {path: /etc/static.conf, content: "same\\n", drift: correct}
"""
MOTD = "{{ vars.greeting }} from {{ node.name }}\n"


class ConfiguredAgent(FakeAgent):
    """An agent that fetches what it is told to have, and holds it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.config: dict[str, Any] = {"revision": "", "digest": "", "drift": []}
        self.files: dict[str, str] = {}
        self.wait = 0.2
        self._due = False

    def body(self) -> dict[str, Any]:
        found = super().body()
        found["state"]["config"] = self.config
        return found

    def _configure(self, _: dict[str, Any], __: dict[str, Any]) -> None:
        self._due = True

    async def exchange(self) -> tuple[int, dict[str, Any]]:
        found = await super().exchange()
        if self._due:
            self._due = False
            await self.fetch()
        return found

    async def fetch(self) -> int:
        status, told = await self.post("overlay", {})
        if status == 200:
            entries = json.loads(told["manifest"])["files"]
            self.files = {one["path"]: base64.b64decode(told["contents"][one["sha"]]).decode() for one in entries}
            self.config = {**self.config, "revision": told["revision"], "digest": told["digest"]}
        return status


class Delivering:
    """A controller with configuration and delivery, and an agent on every node."""

    def __init__(self, site: AgentSite, agents: Mapping[str, ConfiguredAgent]) -> None:
        self.site = site
        self.agents = agents
        self.config = site.service.of(ConfigService)
        self.delivery = site.service.of(DeliveryService)
        self.alarms: list[Alarm] = []
        site.service.alarms.append(self.alarms.append)
        self._running: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str) -> None:
        """Its agent speaks."""
        self._running[name] = asyncio.create_task(self.agents[name].run())

    async def describe(self, name: str, **fields: Any) -> None:
        """Say something else of a node, by hand."""
        await self.site.service.replace_node(LOCAL_ADMIN, name, NodeSpec(name=name, **fields), None)

    async def end(self) -> None:
        """All are silent."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def plan(self, files: Mapping[str, str]) -> ConfigPlan:
        """What applying a repository would do."""
        found = Repository({path: text.encode() for path, text in files.items()}).configuration()
        return await self.config.plan(LOCAL_ADMIN, found)

    async def apply(self, files: Mapping[str, str]) -> str:
        """Apply a repository; the revision."""
        found = Repository({path: text.encode() for path, text in files.items()}).configuration()
        await self.config.apply(LOCAL_ADMIN, found)
        return self.config.applied.overlays

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.02)

    async def until_facts(self, revision: str) -> None:
        await self.until(lambda: all(self.site.fact(name, "config") == revision for name in self.agents))

    def told(self) -> dict[str, int]:
        """How often each agent was told to configure."""
        return {
            name: sum(command["kind"] == "configure" for command in agent.took) for name, agent in self.agents.items()
        }


@contextlib.asynccontextmanager
async def delivering(directory: Path, nodes: int = 3, away: str = "") -> AsyncIterator[Delivering]:
    """``away``: the node whose agent is silent until the test begins it."""
    model = Model.of(HARDWARE, PROVISIONING, PLATFORM)
    async with agent_site(directory, nodes=nodes, model=model) as site, http_over(site.socket) as http:
        site.releases.move("a:1", 1)
        await site.sets.records.put("test", SET, Personality(name=SET, members=(Member(name="a", release="a:1"),)))
        await site.sets.settled()
        site.service.put(site.sets)
        site.service.put(site.hub, Hub)
        delivery = site.service.put(DeliveryService(site.service))
        config = site.service.put(ConfigService(site.service))
        for part in (delivery, config):
            await part.start()
        for begin in site.service._begins:
            await begin()
        names = [name for name in site.service.registry.names if name]
        agents = {name: ConfiguredAgent(http, name) for name in names}
        found = Delivering(site, agents)
        for name in names:
            if name != away:
                found.begin(name)
        try:
            yield found
        finally:
            await found.end()
            await config.stop()
            await delivery.stop()


def repository(**changes: str) -> dict[str, str]:
    nodes = "kind: nodes\nnodes: n0000[1-3]\n"
    return {
        "nodes.yaml": nodes,
        "groups.yaml": GROUPS,
        "desire.yaml": DESIRE,
        "o.yaml": OVERLAY,
        "files/motd.j2": MOTD,
    } | {name.replace("__", "/").replace("_", "."): text for name, text in changes.items()}


async def test_nodes_converge_to_what_the_repository_says_and_only_those_that_it_changes_are_told_again(
    tmp_path: Path,
) -> None:
    async with delivering(tmp_path / "s") as found:
        first = await found.apply(repository())
        await found.until_facts(first)
        assert {name: agent.files["/etc/motd"] for name, agent in found.agents.items()} == {
            name: f"hello from {name}\n" for name in found.agents
        }
        assert found.told() == dict.fromkeys(found.agents, 1)

        one = 'kind: overlay\nname: one\nselect: n00003\nfiles: [{path: /etc/motd, content: "special\\n"}]\n'
        assert (await found.plan(repository(one_yaml=one))).totals == {"configure": 1}
        second = await found.apply(repository(one_yaml=one))
        assert second != first
        await found.until_facts(second)
        assert found.agents["n00003"].files["/etc/motd"] == "special\n"
        assert found.told() == {"n00001": 1, "n00002": 1, "n00003": 2}, "the others have what they should have"

        assert await found.apply(repository()) == first, "a revert is the revision that it was"
        await found.until_facts(first)
        assert found.agents["n00003"].files["/etc/motd"] == "hello from n00003\n"


async def test_a_node_that_was_away_catches_up_when_it_returns(tmp_path: Path) -> None:
    async with delivering(tmp_path / "s", away="n00001") as found:
        old = await found.apply(repository())
        await found.until(lambda: found.site.fact("n00002", "config") == old)
        late, other = found.agents["n00001"], found.agents["n00002"]
        late.set, late.loaded, late.config = dict(other.set), list(other.loaded), dict(other.config)
        revision = await found.apply(repository(files__motd_j2="changed for {{ node.name }}\n"))
        await found.until(lambda: found.site.fact("n00002", "config") == revision)
        assert found.told()["n00001"] == 0
        found.begin("n00001")
        await found.until_facts(revision)
        assert late.files["/etc/motd"] == "changed for n00001\n"
        assert found.told()["n00001"] == 1, "by revision: what it missed in between is not played after"


async def test_a_node_that_is_described_anew_gets_what_its_templates_make_of_it(tmp_path: Path) -> None:
    async with delivering(tmp_path / "s") as found:
        wanted = repository(files__motd_j2="{{ node.role }}\n")
        revision = await found.apply(wanted)
        await found.until_facts(revision)
        await found.describe("n00002", role="login")
        await found.until(lambda: found.agents["n00002"].files["/etc/motd"] == "login\n")
        await found.until_facts(revision)
        assert found.told() == {"n00001": 1, "n00002": 2, "n00003": 1}


async def test_what_cannot_be_rendered_is_refused_with_its_line_and_the_last_good_configuration_stays(
    tmp_path: Path,
) -> None:
    async with delivering(tmp_path / "s") as found:
        good = await found.apply(repository(files__motd_j2="{{ node.labels.rack | default('none') }}\n"))
        await found.until_facts(good)
        with pytest.raises(BadRequest) as refused:
            await found.apply(repository(files__motd_j2="one\n{{ node.labels.rack }}\n"))
        assert refused.value.where == "files/motd.j2, line 2"
        assert "'dict object' has no attribute 'rack'" in refused.value.detail
        assert found.config.applied.overlays == good
        assert found.agents["n00001"].files["/etc/motd"] == "none\n"


async def test_a_label_that_goes_later_leaves_its_node_what_it_has_and_the_others_go_on(tmp_path: Path) -> None:
    async with delivering(tmp_path / "s") as found:
        nodes = "kind: nodes\nlabels: {rack: r1}\nnodes: n0000[1-3]\n"
        revision = await found.apply(repository(files__motd_j2="{{ node.labels.rack }}\n", nodes_yaml=nodes))
        await found.until_facts(revision)
        await found.describe("n00001", labels={})
        await found.until(lambda: any(alarm.kind == "config-refused" for alarm in found.alarms))
        assert "files/motd.j2, line 1" in found.alarms[-1].message and "n00001" in found.alarms[-1].message
        group = await found.site.service.put_group(LOCAL_ADMIN, "more", GroupSpec(members="n0000[1-3]"), None)
        assert group.count == 3  # all are rendered for anew, as groups are among what templates can ask for
        await found.describe("n00002", labels={"rack": "r2"})
        await found.until(lambda: found.agents["n00002"].files["/etc/motd"] == "r2\n")
        assert found.agents["n00001"].files["/etc/motd"] == "r1\n"
        assert found.site.fact("n00001", "config") == revision
        await found.describe("n00001", labels={"rack": "r3"})
        await found.until(lambda: found.agents["n00001"].files["/etc/motd"] == "r3\n")
        assert [alarm.severity for alarm in found.alarms if alarm.kind == "config-refused"] == ["warning", "ok"]


async def test_drift_is_listed_and_an_alert_until_it_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with delivering(tmp_path / "s") as found:
        await found.until_facts(await found.apply(repository()))
        agent = found.agents["n00002"]
        told = {"what": "file", "where": "/etc/motd", "how": "has another content", "member": "a", "since": 5.0}
        agent.config = {**agent.config, "drift": [told, {**told, "where": "/etc/static.conf", "corrected": True}]}
        await found.until(lambda: any(alarm.kind == "config-drift" for alarm in found.alarms))
        listed = await found.delivery.drift(LOCAL_ADMIN, "@compute")
        assert [(one.node, one.where, one.corrected) for one in listed.items] == [
            ("n00002", "/etc/motd", False),
            ("n00002", "/etc/static.conf", True),
        ]
        assert found.alarms[-1].message == "a: file /etc/motd: has another content"
        url = f"unix:{found.site.admin}"
        assert await asyncio.to_thread(main.run, ["--url", url, "config", "drift", "n00002", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert [(one["where"], one["corrected"]) for one in said] == [("/etc/motd", False), ("/etc/static.conf", True)]
        words = ["--url", url, "config", "render", "n00002", "--applied", "--file", "/etc/motd"]
        assert await asyncio.to_thread(main.run, words) == 0
        assert capsys.readouterr().out == "hello from n00002\n"
        agent.config = {**agent.config, "drift": []}
        await found.until(lambda: found.alarms[-1].severity == "ok")
        assert not (await found.delivery.drift(LOCAL_ADMIN, "")).items


async def test_a_node_of_which_no_configuration_is_wanted_gets_none_and_may_have_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def act(self: NoWorkload, mutation: Mutation, batch: Batch) -> Outcomes:
        asked.append(mutation.name)
        return Outcomes.all(Outcome.DONE, len(batch))

    monkeypatch.setattr(NoWorkload, "act", act)
    async with delivering(tmp_path / "s") as found:
        await found.apply(repository(desire_yaml=DESIRE.replace(", config: current", "").replace('"*"', '"*"')))
        await found.until(lambda: found.site.fact("n00001", "personality") == "active")
        assert await found.agents["n00001"].fetch() == 404
        assert found.told() == dict.fromkeys(found.agents, 0)
        assert found.site.fact("n00001", "config") == "none"
        service = found.site.service
        await service.edits.set_desires(service.registry.select("n00001"), {"workload": "in"}, (), "test")
        await found.until(lambda: bool(asked))
        assert asked[0] == "join-workload"
        kinds = {command["kind"] for command in found.agents["n00001"].took}
        assert not kinds & {"stop", "configure"}, "nothing is started anew for it"


async def test_a_simulated_fleet_of_a_thousand_nodes_converges_to_a_configuration_and_to_the_next(
    tmp_path: Path,
) -> None:
    settings = Settings(state_dir=tmp_path, controller_id="c1")
    store = MemoryStore()
    sim = SimNodes(1000, timing=Timing(scale=0))
    controller = Controller(
        store,
        Model.of(HARDWARE, PROVISIONING, PLATFORM),
        {**sim_drivers(sim, time.monotonic)},
        name="c1",
        history=settings.history_file,
        leadership=LeadershipSettings(shards=1),
    )
    fleet = OpenFleet(controller, settings)
    fleet.parts.push_async_callback(store.close)
    await fleet.keep(fleet.put(DeliveryService(fleet)))
    config = await fleet.keep(fleet.put(ConfigService(fleet)))
    await fleet.start()
    try:
        files = repository() | {"nodes.yaml": "kind: nodes\nnodes: n[00001-01000]\n"}
        for text in ("one {{ node.name }}", "two {{ node.name }}"):
            found = Repository({path: given.encode() for path, given in (files | {"files/motd.j2": text}).items()})
            planned = await config.plan(LOCAL_ADMIN, found.configuration())
            if len(fleet.registry):
                assert planned.totals == {"configure": 1000}, "a plan says so before, and that nothing else is done"
            await config.apply(LOCAL_ADMIN, found.configuration())
            async with asyncio.timeout(120):
                while int(fleet.view.fact_mask("config", config.applied.overlays).sum()) < 1000:
                    await controller.stepped()
    finally:
        await fleet.stop()
