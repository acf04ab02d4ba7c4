"""Flows over simulated nodes: in order, verified, resumed after a controller's death; and systems made of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strata.core.errors import BadRequest, Conflict, Denied, Refused
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.platform.flows import runner
from strata.platform.flows.files import read_flows, read_system
from strata.platform.flows.records import FlowRun, FlowSpec, FlowStep, RevokeRequest, Stage, SystemRun, SystemSpec
from strata.platform.flows.service import FlowService
from strata.platform.flows.system import SystemFlows, ordered
from strata.platform.settings import PlatformSettings
from strata.provisioning.boot.requests import BootControl
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet


class Site:
    """A controller over simulated nodes, which a later one may take over."""

    def __init__(
        self, directory: Path, before: Site | None = None, name: str = "c1", **commands: tuple[str, ...]
    ) -> None:
        settings = Settings(
            state_dir=directory / name, controller_id=name, platform=PlatformSettings(commands=commands)
        )
        settings.state_dir.mkdir(exist_ok=True)
        self.store = before.store if before else MemoryStore()
        self.sim = before.sim if before else SimNodes(12, timing=Timing(scale=0))
        quick = EngineSettings(first_poll=0.05, longest_poll=0.2, backoff=0.1, blind_look=0.1)
        self.controller = Controller(
            self.store,
            BUILT_IN,
            sim_drivers(self.sim, time.monotonic),
            name=name,
            history=settings.history_file,
            engine=quick,
            leadership=LeadershipSettings(shards=1),
        )
        self.fleet = OpenFleet(self.controller, settings)
        self.flows = self.fleet.put(FlowService(self.fleet))
        self.system = self.fleet.put(SystemFlows(self.fleet))

    async def start(self) -> None:
        await self.fleet.keep(self.flows)
        await self.fleet.keep(self.system)
        await self.fleet.start()
        await self.until(lambda: bool(self.controller.leadership.epochs))
        if not len(self.fleet.registry):
            await self.fleet.edits.create_nodes(simulated_nodes(12), "test")
            await self.fleet.settled(await self.store.revision())
            for group, members in (("services", range(2)), ("storage", range(2, 4)), ("compute", range(4, 12))):
                await self.fleet.edits.put_group(group, np.array(members, dtype=np.int64), "test")
            await self.fleet.settled(await self.store.revision())

    async def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        return found

    async def put(self, *steps: FlowStep, name: str = "it") -> None:
        await self.flows.put(LOCAL_ADMIN, name, FlowSpec(steps=steps))

    async def run(self, name: str = "it", **more: Any) -> Any:
        """To the end; the operation."""
        begun = await self.flows.run(LOCAL_ADMIN, name, FlowRun(**more))
        async with asyncio.timeout(60):
            return await self.fleet.operations.wait(begun.id)

    def power(self, nodes: slice = slice(None)) -> list[str]:
        return self.sim.truth("power", self.sim.all, time.monotonic()).values()[nodes]

    def order(self, mutation: str) -> list[int]:
        """The nodes that took it, in order."""
        wanted = self.sim.effects.mutations.index(mutation)
        rows = self.sim.effects.rows
        return [int(row["node"]) for row in rows if row["mutation"] == wanted]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOOK_EVERY", 0.02)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found = Site(tmp_path)
    await found.start()
    yield found
    await found.fleet.stop()


SYSTEM = SystemSpec(
    stages=(
        Stage(name="compute", nodes="@compute", after=("storage",)),
        Stage(name="storage", nodes="@storage", after=("services",)),
        Stage(name="services", nodes="@services"),
    )
)


@pytest.mark.slow
async def test_each_step_is_seen_to_be_so_before_the_next_begins(site: Site) -> None:
    await site.put(
        FlowStep(name="first", nodes="@storage", set={"power": "on"}),
        FlowStep(name="second", nodes="@compute", when="fact:power=off", set={"power": "on"}),
        FlowStep(name="nobody", nodes="@compute", when="fact:power=off", set={"power": "off"}),
    )
    done = await site.run()
    assert (done.state, done.done, done.failed) == ("done", 10, 0)
    assert site.order("power-on")[:2] == [2, 3] and set(site.order("power-on")[2:]) == set(range(4, 12))
    status = await site.flows.status(LOCAL_ADMIN, done.id)
    assert [(step.name, step.state, step.nodes) for step in status.steps] == [
        ("first", "done", 2),
        ("second", "done", 8),
        ("nobody", "skipped", 0),
    ]


@pytest.mark.slow
async def test_a_step_with_too_many_failures_ends_the_flow_and_says_who_and_how_to_go_on(site: Site) -> None:
    site.sim.bmc_dead[5] = True
    others = np.array([4, *range(6, 12)], dtype=np.int64)
    await site.fleet.edits.set_desires(others, {"power": "on"}, (), "test")
    await site.until(lambda: site.fleet.view.fact_mask("power", "on")[others].all())
    slow = FlowStep(name="on", nodes="@compute", set={"power": "on"}, timeout=2)
    await site.put(slow, FlowStep(name="after", nodes="@storage", set={"power": "on"}))
    failed = await site.run()
    assert failed.state == "failed" and failed.failed == 1
    assert failed.errors[0].node == "n00006" and failed.errors[0].detail.startswith("on: power is ")
    assert "1 of 8 nodes failed" in failed.errors[-1].detail
    assert "strata flow run it --from on" in failed.errors[-1].detail
    assert site.power(slice(2, 4)) == ["off", "off"], "the step after it was not begun"
    allowed = FlowStep(name="on", nodes="@compute", set={"power": "on"}, timeout=2, allow="15%")
    await site.put(allowed, FlowStep(name="after", nodes="@storage", set={"power": "on"}))
    assert (await site.run()).state == "done"
    assert site.power(slice(2, 4)) == ["on", "on"]


@pytest.mark.slow
async def test_a_run_is_gone_on_with_by_another_controller_where_the_first_one_died(tmp_path: Path) -> None:
    first = Site(tmp_path)
    await first.start()
    first.sim.bmc_dead[2:4] = True  # it does not get beyond the second step
    await first.put(
        FlowStep(name="services", nodes="@services", set={"power": "on"}),
        FlowStep(name="storage", nodes="@storage", set={"power": "on"}),
        FlowStep(name="compute", nodes="@compute", set={"power": "on"}),
    )
    begun = await first.flows.run(LOCAL_ADMIN, "it", FlowRun())

    async def running(where: Site) -> list[str]:
        return [step.state for step in (await where.flows.status(LOCAL_ADMIN, begun.id)).steps]

    for _ in range(3000):
        if await running(first) == ["done", "running", "pending"]:
            break
        await asyncio.sleep(0.02)
    await first.fleet.stop()
    on = first.order("power-on")
    second = Site(tmp_path, first, "c2")
    await second.start()
    second.sim.bmc_dead[:] = False
    assert await second.fleet.operations.recover() == [begun.id]
    async with asyncio.timeout(60):
        done = await second.fleet.operations.wait(begun.id)
    assert done.state == "done" and set(second.power()) == {"on"}
    assert second.order("power-on")[: len(on)] == on and second.order("power-on").count(0) == 1, "nothing is done twice"
    assert await running(second) == ["done", "done", "done"]
    await second.fleet.stop()


@pytest.mark.slow
async def test_a_cancelled_run_stops_and_leaves_what_is_done(site: Site) -> None:
    site.sim.bmc_dead[2] = True
    await site.put(
        FlowStep(name="storage", nodes="@storage", set={"power": "on"}),
        FlowStep(name="compute", nodes="@compute", set={"power": "on"}),
    )
    begun = await site.flows.run(LOCAL_ADMIN, "it", FlowRun())
    await site.until(lambda: site.power(slice(3, 4)) == ["on"])
    await site.fleet.operations.cancel(begun.id, "test")
    async with asyncio.timeout(60):
        assert (await site.fleet.operations.wait(begun.id)).state == "cancelled"
    assert set(site.power(slice(4, 12))) == {"off"} and site.power(slice(3, 4)) == ["on"]


@pytest.mark.slow
async def test_a_command_that_is_under_way_ends_when_its_run_is_cancelled(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    site = Site(tmp_path, waits=("/bin/sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600"))
    await site.start()
    await site.put(FlowStep(name="waits", run="waits"))
    begun = await site.flows.run(LOCAL_ADMIN, "it", FlowRun())
    await site.until(pid.exists)
    process = Path(f"/proc/{pid.read_text().strip()}")
    assert process.exists()
    await site.fleet.operations.cancel(begun.id, "test")
    async with asyncio.timeout(60):
        assert (await site.fleet.operations.wait(begun.id)).state == "cancelled"
    await site.until(lambda: not process.exists())
    await site.fleet.stop()


async def test_a_dry_run_tells_what_each_step_would_do_and_changes_nothing(site: Site) -> None:
    await site.put(
        FlowStep(name="on", nodes="@storage", set={"power": "on"}), FlowStep(name="wait", until={"os": "up"})
    )
    before = await site.store.revision()
    await site.until(lambda: site.fleet.view.fact_mask("power", "off").sum() == 12)
    plan = await site.flows.plan(LOCAL_ADMIN, "it", FlowRun())
    assert [(step.name, step.does, step.nodes) for step in plan.steps] == [
        ("on", "set power=on", 2),
        ("wait", "wait for os=up", 12),
    ]
    assert plan.steps[0].totals == {"power-on": 2} and plan.steps[0].nodeset == "n[00003-00004]"
    assert not [entry for entry in await site.fleet.ledger.latest(5) if entry.action == "flow.run"]
    assert await site.store.revision() >= before and set(site.power()) == {"off"}


@pytest.mark.slow
async def test_a_run_without_waiting_needs_the_right_words_and_a_reason_and_waits_for_nothing(site: Site) -> None:
    site.sim.bmc_dead[:] = True  # nothing will ever be reached
    await site.put(
        FlowStep(name="one", nodes="@storage", set={"power": "on"}),
        FlowStep(name="two", nodes="@compute", set={"power": "on"}),
    )
    with pytest.raises(Refused) as no:
        await site.flows.run(LOCAL_ADMIN, "it", FlowRun(now=True, reason="x"))
    assert no.value.hint == "if you mean it, confirm with: run it now on 8 nodes"
    with pytest.raises(BadRequest, match="needs a reason"):
        await site.flows.run(LOCAL_ADMIN, "it", FlowRun(now=True, confirm="run it now on 8 nodes"))
    done = await site.run(now=True, reason="CVE-2026-1", confirm="run it now on 8 nodes")
    assert done.state == "done"
    (entry,) = [entry for entry in await site.fleet.ledger.latest(30) if entry.action == "flow.run"]
    assert entry.detail["reason"] == "CVE-2026-1" and entry.detail["now"]


@pytest.mark.slow
async def test_a_command_of_the_site_gets_the_names_of_the_nodes_and_its_failure_ends_the_flow(tmp_path: Path) -> None:
    said = tmp_path / "said"
    site = Site(
        tmp_path,
        tell=("/bin/sh", "-c", f'cat > {said}; echo "$STRATA_FLOW $STRATA_STEP" >> {said}'),
        fails=("/bin/sh", "-c", "echo no mail today >&2; exit 3"),
    )
    await site.start()
    await site.put(FlowStep(name="tell", nodes="@storage", run="tell"), FlowStep(name="fails", run="fails"))
    failed = await site.run()
    assert said.read_text() == "n00003\nn00004it tell\n"
    assert failed.state == "failed" and "exit status 3: no mail today" in failed.errors[0].detail
    with pytest.raises(BadRequest, match="the site has no command 'rm'"):
        await site.put(FlowStep(name="rm", run="rm"))
    await site.fleet.stop()


@pytest.mark.slow
async def test_a_command_that_may_have_been_sent_before_a_crash_is_not_sent_again(tmp_path: Path) -> None:
    site = Site(tmp_path, tell=("/bin/sh", "-c", "true"))
    await site.start()
    again = FlowStep(name="again", nodes="@storage", run="tell", repeatable=True)
    steps = (FlowStep(name="once", nodes="@storage", run="tell", allow="2"), again)
    arguments = {"flow": "it", "steps": [{"name": step.name, "nodes": step.nodes, "run": step.run, "allow": step.allow,
                 "repeatable": step.repeatable} for step in steps], "author": "x"}  # fmt: skip
    uids = [[int(uid), int(uid)] for uid in site.fleet.registry.uids[2:3]]
    position = {"step": 0, "began": time.time(), "uids": uids, "sent": True}
    found = [step async for step in site.flows.runner.work(arguments, position)]
    failed = [one for step in found for one in step.failed]
    assert failed == [("n00003", "once: not known whether it was run: the controller was restarted meanwhile")]
    assert found[-1].position.log[-1].state == "done", "what may be repeated was run"
    await site.fleet.stop()


@pytest.mark.slow
async def test_a_system_starts_and_stops_in_the_order_of_what_its_stages_need(site: Site) -> None:
    await site.system.put(LOCAL_ADMIN, SYSTEM)
    plan = await site.system.plan_start(LOCAL_ADMIN, SystemRun())
    assert [step.name for step in plan.steps] == ["start-services", "start-storage", "start-compute"]
    begun = await site.system.start_stages(LOCAL_ADMIN, SystemRun())
    with pytest.raises(Conflict, match="is starting or stopping the system"):
        await site.system.start_stages(LOCAL_ADMIN, SystemRun())
    async with asyncio.timeout(60):
        assert (await site.fleet.operations.wait(begun.id)).state == "done"
    on = site.order("power-on")
    assert set(on[:2]) == {0, 1} and set(on[2:4]) == {2, 3} and set(on[4:]) == set(range(4, 12))
    status = await site.system.status(LOCAL_ADMIN)
    assert [(stage.name, stage.nodes, stage.up, stage.down) for stage in status.stages] == [
        ("services", 2, 2, 0),
        ("storage", 2, 2, 0),
        ("compute", 8, 8, 0),
    ]
    with pytest.raises(Refused) as no:
        await site.system.stop_stages(LOCAL_ADMIN, SystemRun())
    assert no.value.hint == "if you mean it, confirm with: stop 12 nodes"
    some = await site.system.plan_stop(LOCAL_ADMIN, SystemRun(stages=("storage",)))
    assert [step.name for step in some.steps] == ["stop-compute", "stop-storage"], "what needs it is stopped first"
    assert some.confirm == "stop 10 nodes"


def test_stages_that_need_each_other_or_nothing_that_is_there_are_refused() -> None:
    with pytest.raises(BadRequest, match="in a circle: a, b"):
        ordered([Stage(name="a", nodes="*", after=("b",)), Stage(name="b", nodes="*", after=("a",))])
    with pytest.raises(BadRequest, match="there is no stage c"):
        ordered([Stage(name="a", nodes="*", after=("c",))])


async def test_who_has_some_groups_runs_flows_within_them_and_no_others(site: Site) -> None:
    await site.put(FlowStep(name="on", nodes="@storage", set={"power": "on"}))
    operator = Principal(name="o", role="operator", scope=("compute",))
    with pytest.raises(Denied):
        await site.flows.run(operator, "it", FlowRun())
    with pytest.raises(Denied):
        await site.flows.put(
            operator, "mine", FlowSpec(steps=(FlowStep(name="a", nodes="@compute", set={"power": "on"}),))
        )


class Boots:
    """Stands in for who gives nodes their certificates."""

    def __init__(self) -> None:
        self.revoked: list[str] = []

    async def revoke(self, who: Principal, name: str) -> None:
        assert who.name == LOCAL_ADMIN.name
        self.revoked.append(name)


async def test_credentials_are_revoked_only_with_the_right_words(site: Site) -> None:
    boots = Boots()
    site.fleet.put(boots, BootControl)  # type: ignore[arg-type]
    with pytest.raises(Refused) as no:
        await site.flows.revoke(LOCAL_ADMIN, RevokeRequest(select="@storage", reason="lost"))
    assert no.value.hint == "if you mean it, confirm with: revoke 2 nodes"
    with pytest.raises(Refused):
        await site.flows.revoke(LOCAL_ADMIN, RevokeRequest(select="@storage", reason="lost", confirm="revoke 3 nodes"))
    assert boots.revoked == []
    request = RevokeRequest(select="@storage", reason="a key was lost", confirm="revoke 2 nodes")
    begun = await site.flows.revoke(LOCAL_ADMIN, request)
    async with asyncio.timeout(60):
        done = await site.fleet.operations.wait(begun.id)
    assert (done.state, sorted(boots.revoked)) == ("done", ["n00003", "n00004"])
    (told,) = [entry for entry in await site.fleet.ledger.latest(20) if entry.action == "flow.run"]
    assert (told.author, told.detail["reason"]) == (LOCAL_ADMIN.name, "a key was lost")


async def test_where_nobody_gives_certificates_revoking_is_refused_and_nothing_begins(site: Site) -> None:
    before = len(await site.fleet.ledger.latest(100))
    request = RevokeRequest(select="@storage", reason="lost", confirm="revoke 2 nodes")
    with pytest.raises(Conflict, match="no boots are known here"):
        await site.flows.revoke(LOCAL_ADMIN, request)
    assert len(await site.fleet.ledger.latest(100)) == before


def test_what_is_wrong_with_a_file_is_told_with_its_line() -> None:
    text = "name: night\nsteps:\n- name: drain\n  nodes: '@compute'\n  set: {workload: out}\n  timeout: 2h\n"
    assert read_flows(text, "night.yaml")["night"].steps[0].timeout == 7200
    with pytest.raises(BadRequest) as wrong:
        read_flows(text + "- name: nothing\n", "night.yaml")
    assert (
        wrong.value.where == "night.yaml, line 7, column 3" and wrong.value.detail == "a step must do exactly one thing"
    )
    with pytest.raises(BadRequest) as wrong:
        read_flows(text.replace("timeout: 2h", "timeout: soon"), "night.yaml")
    assert "line 6" in wrong.value.where
    with pytest.raises(BadRequest) as wrong:
        read_flows(text.replace("timeout: 2h", "timeout: 99d"), "night.yaml")
    assert "line 6" in wrong.value.where
    with pytest.raises(BadRequest) as wrong:
        read_flows(text.replace("  set:", "  sets:"), "night.yaml")
    assert "line 5" in wrong.value.where
    assert read_system("stages:\n- {name: a, nodes: '*', timeout: 10m}\n", "s.yaml").stages[0].timeout == 600
