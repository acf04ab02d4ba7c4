"""Nodes that fail their checks: drained, repaired by policy, returned; and a bad check that drains nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.alarm import Alarm
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.platform.health import service as health
from strata.platform.health.records import CheckSpec, HealthPolicy
from strata.platform.health.service import HealthService
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Exchange
from strata.store.memory import MemoryStore
from strata.store.open import open_store
from strata.store.protocol import Store
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.pure_fleet import BUILT_IN, READY
from support.rooms import OpenFleet

WORKING = {**READY, "minos": "default", "identity": "issued"}
WANTED = {"health": "ok", "workload": "in", "image": "v1", "personality": "active", "config": "r1"}


class Site:
    """A controller over simulated nodes; ``hub``: their agents are the test's own."""

    def __init__(self, directory: Path, count: int, hub: Hub | None = None, store: Store | None = None) -> None:
        self.later = 0.0
        """Seconds that the clock on the wall is ahead."""
        settings = Settings(state_dir=directory / "state", controller_id="c1")
        settings.state_dir.mkdir(exist_ok=True)
        self.sim = SimNodes(count, timing=Timing(scale=0))
        self.sim.put(self.sim.all, now=0.0, **WORKING)
        self.store = store or open_store("memory:")
        quick = EngineSettings(first_poll=0.05, longest_poll=0.2, backoff=0.1, blind_look=0.1, longest_backoff=0.5)
        self.controller = Controller(
            self.store,
            BUILT_IN,
            sim_drivers(self.sim, time.monotonic),
            name="c1",
            history=settings.history_file,
            engine=quick,
            leadership=LeadershipSettings(shards=1),
            clock=Clock(wall=lambda: time.time() + self.later),
        )
        self.fleet = OpenFleet(self.controller, settings)
        self.alarms: list[Alarm] = []
        self.fleet.alarms.append(self.alarms.append)
        if hub is not None:
            self.fleet.put(hub)
        self.health = self.fleet.put(HealthService(self.fleet))

    async def start(self) -> None:
        await self.fleet.keep(self.health)
        await self.fleet.start()
        await self.until(lambda: bool(self.controller.leadership.epochs))
        if not len(self.fleet.registry):
            await self.fleet.edits.create_nodes(simulated_nodes(self.sim.count), "test")
            await self.fleet.settled(await self.store.revision())

    async def stop(self) -> None:
        await self.fleet.stop()
        await self.store.close()

    async def until(self, condition: Callable[[], Any], what: Callable[[], object] = lambda: "") -> Any:
        deadline = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < deadline, what()
            await asyncio.sleep(0.02)
        return found

    def fact(self, node: int, variable: str) -> str:
        column = self.controller.engine.table.columns[variable]
        return column.words[column.fact[node]]

    def took(self, node: int) -> list[str]:
        """What a simulated node was told, in order."""
        return [mutation for _, _, mutation in self.sim.effects.of(node)]

    async def want(self, *nodes: int, **wanted: str) -> None:
        where = np.array(nodes or range(self.sim.count), dtype=np.int64)
        await self.fleet.edits.set_desires(where, wanted, (), "test")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "EVERY", 0.05)
    monkeypatch.setattr(health, "SETTLES", 0.1)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found = Site(tmp_path, 20)
    await found.start()
    await found.health.set_policy(LOCAL_ADMIN, HealthPolicy(steady=60))
    yield found
    await found.stop()


@pytest.mark.slow
async def test_a_failing_node_is_drained_repaired_by_policy_and_returned(site: Site) -> None:
    await site.want(**WANTED)
    await site.until(lambda: site.fact(3, "health") == "ok" and site.fact(3, "workload") == "in")
    site.sim.put(np.array([3]), now=time.monotonic(), health="failing")
    site.controller.look_soon(["n00004"])
    await site.until(lambda: site.fact(3, "health") == "repaired", lambda: site.controller.engine.way(3))
    assert site.took(3)[:2] == ["leave-workload", "stop-personality"], "drained first, then restarted"
    site.later += 61  # it still fails: a restart does not help
    await site.until(lambda: "power-off" in site.took(3), lambda: site.took(3))
    assert "join-workload" not in site.took(3), "not before it is well"
    await site.until(lambda: site.fact(3, "health") == "repaired")
    site.later += 61
    await site.until(lambda: "has to be well for" in site.health.judged("n00004")[1], lambda: site.took(3))
    assert "join-workload" not in site.took(3), "not before it was well for a while"
    site.later += 61
    await site.until(lambda: site.fact(3, "health") == "ok" and site.fact(3, "workload") == "in", lambda: site.took(3))
    assert site.took(3)[-1] == "join-workload"
    assert all(site.took(node) == [] for node in range(20) if node != 3), "nobody else was touched"
    (seen,) = await site.health.nodes(LOCAL_ADMIN, "n00004")
    assert seen.repairs == ("restart", "power-cycle")
    repairs = [entry for entry in await site.fleet.ledger.latest(50) if entry.action == "health-repair.do"]
    assert [entry.detail["action"] for entry in reversed(repairs)] == ["restart", "power-cycle"]


@pytest.mark.slow
async def test_a_node_that_fails_again_and_again_is_left_to_a_person_and_stays_drained(site: Site) -> None:
    await site.health.set_policy(LOCAL_ADMIN, HealthPolicy(repairs=("restart",), per_day=1, steady=10))
    await site.want(3, **WANTED)
    await site.until(lambda: site.fact(3, "workload") == "in")
    site.sim.put(np.array([3]), now=time.monotonic(), health="failing")
    site.controller.look_soon(["n00004"])
    await site.until(lambda: site.fact(3, "health") == "repaired")
    site.later += 11
    alarm = await site.until(lambda: [one for one in site.alarms if one.kind == "health-repair"])
    assert alarm[0].node == "n00004" and "repaired 1 times within a day (restart)" in alarm[0].message
    assert site.took(3).count("stop-personality") == 1
    assert "join-workload" not in site.took(3)


@pytest.mark.slow
async def test_a_failing_node_with_a_job_is_drained_and_not_repaired_before_the_job_ends(site: Site) -> None:
    await site.want(3, **WANTED)
    await site.until(lambda: site.fact(3, "workload") == "in")
    ends = time.monotonic() + 3600
    site.sim.jobs.run(np.array([3]), until=ends)
    site.sim.put(np.array([3]), now=time.monotonic(), health="failing")
    site.controller.look_soon(["n00004"])
    await site.until(lambda: site.took(3) == ["leave-workload"], lambda: site.took(3))
    for _ in range(20):
        await site.controller.stepped()
    assert site.took(3) == ["leave-workload"], "the job runs"
    assert site.sim.jobs.lost.sum() == 0


@pytest.fixture
def weighed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows how often simulated nodes run their check, so a failure counts at once, before all are heard."""
    monkeypatch.setattr(HealthService, "_settles", lambda *_: 5.0)


@pytest.mark.slow
async def test_a_check_that_fails_everywhere_drains_nobody_and_is_told_of(weighed_late: None, site: Site) -> None:
    await site.want(**WANTED)
    await site.until(lambda: all(site.fact(node, "health") == "ok" for node in range(20)))
    site.sim.put(site.sim.all, now=time.monotonic(), health="failing")
    site.controller.look_soon([f"n{number:05}" for number in range(1, 21)])
    told = await site.until(lambda: [one for one in site.alarms if one.kind == "health-check" and not one.node])
    assert "it is not trusted, and no further node counts as failing it" in told[0].message
    for _ in range(20):
        await site.controller.stepped()
    assert not any(site.took(node) for node in range(20)), "nobody is drained"
    assert {site.fact(node, "health") for node in range(20)} <= {"unknown", "ok"}
    site.sim.put(site.sim.all, now=time.monotonic(), health="ok")
    site.controller.look_soon([f"n{number:05}" for number in range(1, 21)])
    await site.until(lambda: any(one.severity == "ok" and not one.node for one in site.alarms), lambda: site.alarms)


# -- real agents' words


class Agent:
    """Speaks to the hub as an agent does."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name, self.seq = hub, name, 0
        self.checks: dict[str, Any] = {"digest": "", "ran": True, "failing": {}}
        self.told: list[Any] = []

    async def speak(self) -> None:
        """One exchange; what it is told to run it runs, and all of it passes."""
        self.seq += 1
        state = {"agent": {"started": 1.0}, "checks": self.checks}
        said: dict[str, Any] = {"generation": 1, "boot_id": "b", "seq": self.seq, "wait": 0, "state": state}
        said["results"] = [{"id": command["id"], "ok": True} for command in self.told]
        reply = await self.hub.exchange(self.name, msgspec.json.decode(msgspec.json.encode(said), type=Exchange))
        self.told = list(reply.commands)
        for command in self.told:
            if command["kind"] == "checks":
                self.checks = {"digest": command["digest"], "ran": True, "failing": {}}


@pytest.fixture
async def spoken(tmp_path: Path) -> AsyncIterator[tuple[Site, list[Agent]]]:
    hub = Hub()
    found = Site(tmp_path, 4, hub)
    await found.start()
    yield found, [Agent(hub, f"n{number:05}") for number in range(1, 5)]
    await found.stop()


@pytest.mark.slow
async def test_agents_are_told_their_checks_and_what_fails_is_the_fact_its_reason_and_an_alert_that_ends(
    spoken: tuple[Site, list[Agent]],
) -> None:
    site, agents = spoken
    first = agents[0]
    await first.speak()
    await site.until(lambda: site.fact(0, "health") == "ok")  # nothing is checked
    spec = CheckSpec(kind="filesystem", path="/scratch", select="n00001", every=5, timeout=5)
    await site.health.put(LOCAL_ADMIN, "scratch", spec)
    for _ in range(200):
        await first.speak()
        if first.checks["digest"]:
            break
        await asyncio.sleep(0.05)
    assert first.told[0]["checks"] == [
        {"name": "scratch", "kind": "filesystem", "every": 5.0, "timeout": 5.0, "tries": 2, "passes": 2,
         "path": "/scratch", "mounted": True, "writable": True, "least_free": 2.0, "where": ""}
    ]  # fmt: skip
    await agents[1].speak()
    await site.until(lambda: site.fact(1, "health") == "ok")
    assert not agents[1].checks["digest"], "it is not for this one"
    first.checks = {**first.checks, "failing": {"scratch": "/scratch is not mounted\x1b[2J"}}
    await first.speak()
    await site.until(lambda: site.fact(0, "health") == "failing", lambda: site.health.judged("n00001"))
    node = site.fleet.registry.node("n00001")
    assert site.health.reasons(LOCAL_ADMIN, node) == ["check scratch (critical) fails: /scratch is not mounted\\x1b[2J"]
    (alarm,) = [one for one in site.alarms if one.kind == "health-check"]
    assert (alarm.node, alarm.about, alarm.severity) == ("n00001", "scratch", "critical")
    detail = await site.health.one(LOCAL_ADMIN, "scratch")
    assert (detail.nodes, detail.failing, detail.items[0].node) == (1, 1, "n00001")
    first.checks = {**first.checks, "failing": {}}
    await first.speak()
    await site.until(lambda: site.fact(0, "health") == "ok")
    assert [one.severity for one in site.alarms if one.kind == "health-check"] == ["critical", "ok"]


@pytest.mark.slow
async def test_a_warning_is_an_alert_and_the_node_is_well(spoken: tuple[Site, list[Agent]]) -> None:
    site, (agent, *_) = spoken
    spec = CheckSpec(kind="script", script="false", severity="warning", every=5, timeout=5)
    await site.health.put(LOCAL_ADMIN, "fans", spec)
    for _ in range(200):
        await agent.speak()
        if agent.checks["digest"]:
            break
        await asyncio.sleep(0.05)
    agent.checks = {**agent.checks, "failing": {"fans": "fan 3 rattles"}}
    await agent.speak()
    await site.until(lambda: any(one.severity == "warning" and one.about == "fans" for one in site.alarms))
    await site.until(lambda: site.fact(0, "health") == "ok")
    await site.health.delete(LOCAL_ADMIN, "fans")
    await site.until(lambda: any(one.severity == "ok" and one.about == "fans" for one in site.alarms))


async def test_a_check_that_makes_no_sense_is_refused_with_what_it_takes(spoken: tuple[Site, list[Agent]]) -> None:
    site, _ = spoken
    with pytest.raises(BadRequest, match="a time check has no path"):
        await site.health.put(LOCAL_ADMIN, "clock", CheckSpec(kind="time", path="/scratch"))
    with pytest.raises(BadRequest, match="either a script or a command"):
        await site.health.put(LOCAL_ADMIN, "nothing", CheckSpec(kind="script"))
    with pytest.raises(BadRequest, match="longer than every"):
        await site.health.put(LOCAL_ADMIN, "slow", CheckSpec(kind="machine", every=10, timeout=20))
    with pytest.raises(BadRequest, match="cannot select by state"):
        await site.health.put(LOCAL_ADMIN, "loop", CheckSpec(kind="machine", select="fact:health=failing"))
    assert await site.health.checks(LOCAL_ADMIN) == []


@pytest.mark.slow
async def test_repairs_are_counted_also_after_a_restart_of_the_controller(tmp_path: Path) -> None:
    store = MemoryStore()
    first = Site(tmp_path, 2, store=store)
    await first.start()
    await first.health._note({"restart": ["n00001"]})
    await first.fleet.stop()
    again = Site(tmp_path, 2, store=store)
    await again.start()
    (seen,) = await again.health.nodes(LOCAL_ADMIN, "n00001")
    assert seen.repairs == ("restart",)
    await again.stop()
