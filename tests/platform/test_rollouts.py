"""Rollouts on whole clusters in virtual time: controller, records, engine and nodes; some nodes bad, some killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest, Conflict, Denied, NotFound
from strata.core.model import Mutation
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.alarm import OCCURRENCES, Alarm
from strata.fleet.desires.documents import DesireDocument
from strata.platform.rollouts import conductor
from strata.platform.rollouts.checks import run_check
from strata.platform.rollouts.records import ENDED, AbortRequest, RolloutSpec, RolloutView
from strata.platform.rollouts.simulation import simulate
from strata.platform.settings import PlatformSettings
from strata.virtual import timewarp
from support.simulated_cluster import Cluster, twin

NAME = "december"
LONG = 6 * 3600.0
STANDS = (*ENDED, "stopped")

pytestmark = pytest.mark.slow


def spec(**fields: Any) -> RolloutSpec:
    return RolloutSpec(**{"select": "*", "set": {"image": "v2"}, "soak": 5.0, "max_unavailable": "25%", **fields})


def on(
    count: int, story: Callable[[Cluster], Awaitable[None]], *, racks: int = 1, seed: int = 1, jobs: float = 0.0
) -> Cluster:
    """Let a story happen to a cluster of so many nodes that all do their work."""

    async def told() -> Cluster:
        cluster = Cluster(twin(count, racks=racks), seed, job_share=jobs)
        await cluster.open(cluster.store)
        await cluster.describe()
        await cluster.settled()
        cluster.change = {"image": ("v2",)}
        try:
            await story(cluster)
        finally:
            await cluster.close()
            await cluster.store.close()
        return cluster

    return timewarp.run(told())


async def start(cluster: Cluster, how: RolloutSpec) -> RolloutView:
    view = await cluster.rollouts.begin(LOCAL_ADMIN, NAME, how)
    cluster.most = {bucket.name: bucket.most for bucket in view.buckets if bucket.name in cluster.twin.groups}
    return view


async def to(cluster: Cluster, *states: str) -> RolloutView:
    """Let time pass until the rollout is in one of these states."""
    await cluster.watch(lambda: cluster.rollouts.kept(NAME).state in (states or STANDS), LONG)
    return await cluster.rollouts.one(LOCAL_ADMIN, NAME)


def images(cluster: Cluster) -> dict[str, int]:
    """How many nodes really have each image."""
    found = cluster.sim.truth("image", cluster.sim.all, asyncio.get_running_loop().time()).values()
    return {image: found.count(image) for image in set(found) if image is not None}


def told(cluster: Cluster, mutation: str) -> int:
    """How many nodes were ever told to do something."""
    rows = cluster.sim.effects.rows
    numbers = [cluster.sim.effects.mutations[row["mutation"]] for row in rows]
    return len({int(row["node"]) for row, name in zip(rows, numbers, strict=True) if name == mutation})


def test_a_rollout_with_bad_nodes_completes_within_its_limits_though_its_controller_is_killed_again_and_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.bad = frozenset(("n00017", "n00043"))
        await start(cluster, spec(groups=("rack0", "rack1", "rack2"), max_unavailable="10%", max_failures="10%"))
        for seconds in (3.0, 11.0, 40.0, 60.0, 80.0):
            until = asyncio.get_running_loop().time() + seconds
            await cluster.watch(lambda until=until: asyncio.get_running_loop().time() >= until, LONG)  # type: ignore[misc]
            await cluster.crash()
            await cluster.open(cluster.store)
        view = await to(cluster)
        assert view.state == "done", view
        assert (view.counts.ready, view.counts.failed) == (58, 2)
        assert view.counts.failed_nodes == "n[00017,00043]"
        assert images(cluster) == {"v2": 58, "v1": 2}
        assert cluster.fleet.registry.brakes.limits == {}, "its limits end with it"

    cluster = on(60, story, racks=3)
    assert cluster.exceeded == []
    assert set(cluster.peaks.values()) == {2}, "it used what it may"
    assert not cluster.sim.effects.twice()


def test_a_change_that_breaks_nodes_stops_at_the_canary_and_is_taken_back_and_somebody_is_told() -> None:
    alarms: list[Alarm] = []

    async def story(cluster: Cluster) -> None:
        cluster.fleet.alarms.append(alarms.append)
        cluster.bad = frozenset(cluster.names)
        await start(cluster, spec())
        view = await to(cluster)
        assert view.state == "rolled-back"
        assert "1 of 1 nodes failed" in view.reason
        assert images(cluster) == {"v1": 12}
        assert cluster.fleet.controller.counts()["ready"] == 12
        assert cluster.fleet.registry.desires.of(0)[3].values == ("v1",)

    cluster = on(12, story)
    assert told(cluster, "leave-workload") == 1, "nobody but the canary was disturbed"
    told_of = [(alarm.kind, alarm.severity, alarm.about) for alarm in alarms if alarm.severity != "ok"]
    assert told_of == [("rollout-failed", "critical", NAME)]
    assert "rollout-failed" in OCCURRENCES, "or it would never be over: nothing follows that could say so"


def test_other_changes_to_the_nodes_of_a_group_stay_within_the_limit_of_its_rollout() -> None:
    async def story(cluster: Cluster) -> None:
        registry = cluster.fleet.registry
        await start(cluster, spec(select="n[00000-00019]", groups=("rack0",), max_unavailable="3", waves=("1", "100%")))
        await cluster.watch(lambda: cluster.rollouts.kept(NAME).wave == 1, LONG)
        others = registry.select("n[00020-00039]")
        await cluster.fleet.edits.set_desires(others, {"image": ["v2"]}, (), "somebody")
        assert (await to(cluster)).state == "done"
        cluster.most = {}  # from here on only the fleet's own budget holds
        await cluster.watch(lambda: images(cluster) == {"v2": 40}, LONG)

    cluster = on(40, story)
    # The fleet's own budget of disruption lets 4 of 40 go.
    assert cluster.exceeded == []
    assert cluster.peaks == {"rack0": 3}


def test_what_has_not_begun_when_it_is_paused_wants_what_it_wanted_before_and_goes_on_when_it_is_resumed() -> None:
    async def story(cluster: Cluster) -> None:
        await start(cluster, spec(waves=("1", "100%"), max_unavailable="2"))
        await cluster.watch(lambda: images(cluster).get("v2", 0) >= 4, LONG)
        await cluster.rollouts.pause(LOCAL_ADMIN, NAME, "lunch")
        registry = cluster.fleet.registry
        await cluster.until(lambda: int(registry.wanted("image", "v2").sum()) < 10, LONG)
        begun = int(registry.wanted("image", "v2").sum())
        assert begun <= 7
        await cluster.until(lambda: images(cluster) == {"v2": begun, "v1": 20 - begun}, LONG)
        view = await cluster.rollouts.one(LOCAL_ADMIN, NAME)
        assert (view.state, view.reason, view.counts.left) == ("paused", "lunch", 0)
        with pytest.raises(Conflict):
            await cluster.rollouts.pause(LOCAL_ADMIN, NAME, "again")
        await cluster.rollouts.resume(LOCAL_ADMIN, NAME)
        view = await to(cluster)
        assert (view.state, view.counts.ready) == ("done", 20)
        said = [(event.author, event.text) for event in view.events]
        assert ("local-admin", "pause: lunch") in said

    on(20, story)


@pytest.mark.parametrize("rollback", [False, True])
def test_an_aborted_rollout_leaves_what_has_begun_or_takes_that_back_too(rollback: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await start(cluster, spec(waves=("1", "100%"), max_unavailable="2"))
        await cluster.watch(lambda: images(cluster).get("v2", 0) >= 4, LONG)
        await cluster.rollouts.abort(LOCAL_ADMIN, NAME, AbortRequest(reason="slow", rollback=rollback))
        view = await to(cluster)
        assert view.state == ("rolled-back" if rollback else "aborted")
        await cluster.until(lambda: cluster.fleet.controller.counts()["ready"] == 20, LONG)
        now = images(cluster)
        assert (now == {"v1": 20}) if rollback else (4 <= now["v2"] <= 7)
        assert cluster.fleet.registry.brakes.limits == {}

    on(20, story)


def test_a_node_of_which_somebody_wants_something_else_meanwhile_is_left_alone_also_when_all_goes_back() -> None:
    async def story(cluster: Cluster) -> None:
        registry = cluster.fleet.registry
        await start(cluster, spec(waves=("1", "100%")))
        mine = registry.select("n[00008-00009]")
        await cluster.fleet.edits.set_desires(mine, {"image": ["v3"]}, (), "alice")
        view = await to(cluster)
        assert (view.state, view.counts.ready, view.counts.left) == ("done", 8, 2)
        await cluster.until(lambda: images(cluster) == {"v2": 8, "v3": 2}, LONG)

    on(10, story)


def test_a_node_that_a_person_has_is_not_waited_for_and_catches_up_when_it_is_given_back() -> None:
    async def story(cluster: Cluster) -> None:
        fleet = cluster.fleet
        mine = fleet.registry.select("n00000")
        await fleet.settled((await fleet.edits.hold(mine, "DIMM", "alice")).revision)
        await start(cluster, spec())
        view = await to(cluster)
        assert (view.state, view.counts.ready, view.counts.excused) == ("done", 5, 1)
        assert images(cluster) == {"v1": 1, "v2": 5}
        await fleet.edits.release(mine, "alice")
        await cluster.until(lambda: images(cluster) == {"v2": 6}, LONG)

    on(6, story)


def test_nodes_that_somebody_has_switched_off_are_no_failures_and_catch_up_when_they_are_switched_on() -> None:
    async def story(cluster: Cluster) -> None:
        fleet = cluster.fleet
        mine = fleet.registry.select("n[00000,00004]")  # the canary is one of them
        await fleet.settled((await fleet.edits.set_desires(mine, {"power": ["off"]}, (), "alice")).revision)
        await cluster.until(lambda: bool(fleet.view.fact_mask("power", "off")[mine].all()), LONG)
        await start(cluster, spec(max_failures="0"))
        view = await to(cluster)
        assert (view.state, view.counts.ready, view.counts.failed, view.counts.excused) == ("done", 4, 0, 2)
        assert fleet.controller.counts()["off"] == 2, "what they are to have waits until they are wanted on"
        await fleet.edits.set_desires(mine, {}, ("power",), "alice")
        await cluster.until(lambda: images(cluster) == {"v2": 6}, LONG)

    on(6, story)


@pytest.mark.parametrize("spoken", ["by the nodes", "by a document"])
def test_nodes_that_a_document_wants_off_stay_off_and_catch_up_when_it_is_gone(spoken: str) -> None:
    async def story(cluster: Cluster) -> None:
        fleet = cluster.fleet
        how = spec(max_failures="0")
        off = fleet.registry.select("n[00000,00004]")
        await fleet.edits.set_desires(off, {}, ["power", "image"], "alice")
        if spoken == "by a document":
            await fleet.edits.set_desires(fleet.registry.select("*"), {}, ["image"], "alice")
            compute = DesireDocument(name="compute", select="*", set={"image": ("v1",), "minos": ("default",)})
            await fleet.settled(await fleet.edits.put_document(compute, "alice"))
            how = msgspec.structs.replace(spec(max_failures="0", document="compute"), select=None)
        saving = DesireDocument(name="saving", select="n[00000,00004]", set={"power": ("off",)})
        await fleet.settled(await fleet.edits.put_document(saving, "alice"))
        await cluster.until(lambda: fleet.controller.counts()["off"] == 2, LONG)
        assert bool(fleet.view.fact_mask("power", "off")[off].all())
        await start(cluster, how)
        view = await to(cluster)
        assert (view.state, view.counts.ready, view.counts.failed, view.counts.excused) == ("done", 4, 0, 2)
        now = fleet.controller.counts()
        assert (now["off"], now["unreachable"]) == (2, 0)
        await fleet.edits.delete_document("saving", "alice")
        await fleet.edits.set_desires(off, {"power": ["on"]}, (), "alice")
        await cluster.until(lambda: images(cluster) == {"v2": 6}, LONG)

    on(6, story)


def test_a_node_that_is_switched_off_in_the_middle_of_its_wave_needs_no_fact_of_one_that_runs() -> None:
    async def story(cluster: Cluster) -> None:
        fleet = cluster.fleet
        await start(cluster, spec(waves=("100%",), require={"os": "up"}, max_failures="0"))
        await cluster.until(lambda: images(cluster).get("v2", 0) >= 1, LONG)
        mine = fleet.registry.select("n00005")
        await fleet.settled((await fleet.edits.set_desires(mine, {"power": ["off"]}, (), "alice")).revision)
        view = await to(cluster)
        assert (view.state, view.counts.ready, view.counts.failed) == ("done", 5, 0)
        assert fleet.controller.counts()["off"] == 1

    on(6, story)


@pytest.mark.parametrize("how", ["pause", "go back"])
def test_a_node_that_was_switched_off_meanwhile_stays_off_when_the_change_is_taken_back(how: str) -> None:
    async def story(cluster: Cluster) -> None:
        fleet = cluster.fleet
        await fleet.edits.set_desires(fleet.registry.select("*"), {"image": ["v1"]}, (), "alice")
        await start(cluster, spec(waves=("100%",), soak=3600.0))
        await cluster.until(lambda: images(cluster).get("v2", 0) >= 2, LONG)
        mine = fleet.registry.select("*")
        await fleet.settled((await fleet.edits.set_desires(mine, {"power": ["off"]}, (), "alice")).revision)
        if how == "pause":
            await cluster.rollouts.pause(LOCAL_ADMIN, NAME, "lunch")
        else:
            await cluster.rollouts.abort(LOCAL_ADMIN, NAME, AbortRequest(reason="no", rollback=True))
            assert (await to(cluster)).state == "rolled-back"
        await cluster.until(lambda: fleet.controller.counts()["off"] == 6, LONG)
        assert fleet.controller.counts()["unreachable"] == 0

    on(6, story)


@pytest.mark.parametrize(
    "how", [{"on_failure": "stop"}, {"waves": ("4", "100%"), "max_failures": "1"}], ids=["too many", "the canary"]
)
def test_one_that_stopped_goes_on_without_counting_what_failed_and_the_alert_is_over(how: dict[str, Any]) -> None:
    alarms: list[Alarm] = []

    async def story(cluster: Cluster) -> None:
        cluster.fleet.alarms.append(alarms.append)
        cluster.bad = frozenset(("n00000",))
        await start(cluster, spec(**how))
        assert (await to(cluster)).state == "stopped"
        await cluster.rollouts.resume(LOCAL_ADMIN, NAME)
        view = await to(cluster, *ENDED)
        assert (view.state, view.counts.ready, view.counts.excused) == ("done", 11, 1)

    on(12, story)
    assert [alarm.severity for alarm in alarms] == ["critical", "ok"]


@pytest.mark.parametrize("stopped", [False, True])
def test_one_that_a_person_takes_back_leaves_no_alert(stopped: bool) -> None:
    alarms: list[Alarm] = []

    async def story(cluster: Cluster) -> None:
        cluster.fleet.alarms.append(alarms.append)
        cluster.bad = frozenset(("n00000",) if stopped else ())
        await start(cluster, spec(on_failure="stop", soak=LONG))
        if stopped:
            assert (await to(cluster)).state == "stopped"
        await cluster.rollouts.abort(LOCAL_ADMIN, NAME, AbortRequest(reason="slow", rollback=True))
        assert (await to(cluster, *ENDED)).state == "rolled-back"

    on(12, story)
    assert {(alarm.kind, alarm.about) for alarm in alarms} == {("rollout", NAME)}
    assert [alarm.severity for alarm in alarms] == (["critical", "ok"] if stopped else ["ok"])


def test_a_document_says_in_the_end_what_its_nodes_said_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        fleet = cluster.fleet
        everyone = fleet.registry.select("*")
        await fleet.edits.set_desires(everyone, {}, ["image"], "alice")
        document = DesireDocument(name="compute", select="*", set={"image": ("v1",), "minos": ("default",)})
        await fleet.settled(await fleet.edits.put_document(document, "alice"))
        how = msgspec.structs.replace(spec(document="compute"), select=None)
        await start(cluster, how)
        assert (await to(cluster)).state == "done"
        assert fleet.registry.desires.documents["compute"].document.set["image"] == ("v2",)
        assert "image" not in fleet.registry.desires.overrides.of(int(fleet.registry.uids[everyone[0]]))
        assert images(cluster) == {"v2": 8}
        assert fleet.controller.counts()["ready"] == 8

    on(8, story)


def test_a_change_for_the_next_reboot_waits_until_a_node_is_down() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        await start(cluster, spec(when="next-reboot", waves=("100%",)))
        begun = loop.time()
        await cluster.watch(lambda: loop.time() > begun + 300, LONG)
        assert images(cluster) == {"v1": 6}
        cluster.sim.restart(np.arange(3), now=loop.time(), cycle=True)
        await cluster.until(lambda: images(cluster) == {"v1": 3, "v2": 3}, LONG)
        cluster.sim.restart(np.arange(3, 6), now=loop.time(), cycle=True)
        assert (await to(cluster)).state == "done"

    cluster = on(6, story)
    assert told(cluster, "leave-workload") == 0, "nobody was drained for it"


def test_a_change_at_the_end_of_jobs_drains_nobody_on_whom_a_job_runs() -> None:
    drained_with_a_job: list[str] = []

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        real = cluster.fleet.driver("workload")
        assert real is not None
        act = real.act

        async def watched(mutation: Mutation, batch: Batch) -> Outcomes:
            if mutation.name == "leave-workload":
                index = np.array([cluster.sim.index[name] for name in batch.names])
                busy = cluster.sim.job_running(index, loop.time())
                drained_with_a_job.extend(name for name, job in zip(batch.names, busy.tolist(), strict=True) if job)
            return await act(mutation, batch)

        real.act = watched  # type: ignore[method-assign]
        await start(cluster, spec(when="job-end", waves=("100%",), max_unavailable="2"))
        assert (await to(cluster)).state == "done"
        assert images(cluster) == {"v2": 8}

    on(8, story, jobs=0.5)
    assert drained_with_a_job == []


def test_a_node_that_is_never_without_a_job_is_drained_in_the_end_and_gets_its_turn() -> None:
    """The scheduler gives each node its next job at once, for as long as the node is not drained."""
    drained: dict[str, float] = {}

    async def story(cluster: Cluster) -> None:
        controller, real = cluster.fleet.controller, cluster.fleet.driver("workload")
        assert real is not None
        act, permits = real.act, real.permits

        async def acts(mutation: Mutation, batch: Batch) -> Outcomes:
            if mutation.name == "leave-workload":
                drained.update(dict.fromkeys(batch.names, controller.clock.wall()))
            return await act(mutation, batch)

        async def answers(guard: str, batch: Batch) -> Sequence[str]:
            said = await permits(guard, batch)
            return ["" if name in drained else "the next job runs" for name in batch.names] if not any(said) else said

        real.act, real.permits = acts, answers  # type: ignore[method-assign]
        began = controller.clock.wall()
        await start(cluster, spec(when="job-end", waves=("1", "100%"), max_unavailable="2", drain_after=600.0))
        await cluster.watch(lambda: controller.clock.wall() > began + 300, LONG)
        waiting = await cluster.rollouts.one(LOCAL_ADMIN, NAME)
        assert waiting.waits_for.startswith("the jobs on 1 node of wave 1 to end; those that are never without one")
        assert drained == {}
        view = await to(cluster)
        assert (view.state, images(cluster)) == ("done", {"v2": 8})
        assert min(drained.values()) >= began + 600
        told = [event.text for event in view.events if "never without a job" in event.text]
        assert told[0] == "1 node of wave 1 never without a job in 10m: drained"
        assert any("of wave 2" in text for text in told), "each wave has its own time"

    cluster = on(8, story)
    assert cluster.exceeded == []
    assert len(drained) == 8


def test_a_check_of_the_site_that_says_no_takes_the_change_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, str]] = []

    async def check(command: Sequence[str], rollout: str, wave: int, nodes: str) -> str:
        asked.append((rollout, wave, nodes))
        await asyncio.sleep(30)  # virtual: it takes its time
        return "MPI is slow" if wave == 2 else ""

    monkeypatch.setattr(conductor, "run_check", check)

    async def story(cluster: Cluster) -> None:
        settings = PlatformSettings(rollout_checks={"mpi": ("check-mpi",)})
        monkeypatch.setattr(type(cluster.fleet), "section", lambda fleet, kind: settings)
        cluster.rollouts.conductor._settings = settings
        await start(cluster, spec(checks=("mpi",), waves=("1", "2", "100%")))
        view = await to(cluster)
        assert (view.state, view.reason) == ("rolled-back", "check mpi failed for wave 2: MPI is slow")
        assert images(cluster) == {"v1": 8}

    on(8, story)
    assert asked == [(NAME, 1, "n00000"), (NAME, 2, "n[00001-00002]")]


async def test_a_check_is_told_the_nodes_of_the_wave_and_its_words_are_the_reason() -> None:
    good = (sys.executable, "-c", "import sys, os; sys.exit(sys.stdin.read().strip() != os.environ['STRATA_NODES'])")
    assert await run_check(good, NAME, 2, "n[1-4]") == ""
    bad = (sys.executable, "-c", "import sys; sys.exit('the fabric is slow')")
    assert await run_check(bad, NAME, 2, "n[1-4]") == "status 1: the fabric is slow"
    assert "could not be started" in await run_check(("/nonexistent/check",), NAME, 1, "n1")


def test_groups_come_one_after_the_other() -> None:
    async def story(cluster: Cluster) -> None:
        registry = cluster.fleet.registry
        first, second = (registry.groups.mask(name) for name in ("rack1", "rack0"))
        await start(cluster, spec(order=(("rack1", "rack0"),)))
        begun: list[int] = []

        def looked() -> bool:
            wants = registry.wanted("image", "v2")
            if (wants & second).any() and not begun:
                ready = cluster.fleet.view.state_mask("ready") & cluster.fleet.view.fact_mask("image", "v2")
                begun.append(int((ready & first).sum()))
            return cluster.rollouts.kept(NAME).state in STANDS

        await cluster.watch(looked, LONG)
        assert begun == [6]
        assert cluster.rollouts.kept(NAME).state == "done"

    on(12, story, racks=2)


def test_what_cannot_be_rolled_out_is_refused_with_a_reason_and_changes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        service = cluster.rollouts
        for wrong, how in (
            ("nothing to do", spec(set={"image": "v1"})),
            ("no such check: mpi", spec(checks=("mpi",))),
            ("at least one node", spec(max_unavailable="0")),
            ("waves: a wave must have at least one node", spec(waves=("0", "50%"))),
            ("waves: a wave must have at least one node", spec(waves=("1", "0%"))),
            ("circle", spec(order=(("rack0", "rack1"), ("rack1", "rack0")))),
            ("no such state variable", spec(require={"mood": "good"})),
        ):
            with pytest.raises(BadRequest, match=wrong):
                await service.begin(LOCAL_ADMIN, NAME, how)
        with pytest.raises(NotFound):
            await service.begin(LOCAL_ADMIN, NAME, spec(groups=("rack7",)))
        scoped = Principal(name="bob", role="operator", scope=("rack0",))
        with pytest.raises(Denied):
            await service.begin(scoped, NAME, spec(select="*"))
        await service.begin(LOCAL_ADMIN, NAME, spec(select="@rack1"))
        with pytest.raises(Conflict, match="december is changing image"):
            await service.begin(LOCAL_ADMIN, "another", spec())
        with pytest.raises(NotFound):
            await service.one(scoped, NAME)
        await service.begin(scoped, "mine", spec(select="@rack0"))
        assert [view.name for view in await service.all(scoped)] == ["mine"]

    on(8, story, racks=2)


def test_a_simulation_says_how_long_it_takes_and_what_breaks_and_says_the_same_again() -> None:
    good = msgspec.structs.replace(twin(16), spec=spec(max_failures="15%"))
    found = simulate(good, failure_rate=0.1, seed=6)
    assert found.state == "done", found
    assert found.counts.failed == 2
    assert found.seconds > 60
    assert [bucket.peak <= bucket.most for bucket in found.buckets] == [True]
    assert simulate(good, failure_rate=0.1, seed=6) == found
    bad = simulate(good, failure_rate=1.0)
    assert (bad.state, bad.counts.ready) == ("rolled-back", 0)


def test_the_twin_of_a_cluster_is_what_the_cluster_is_and_takes_the_time_that_it_took() -> None:
    async def story(cluster: Cluster) -> None:
        await start(cluster, spec(select="n[00000-00005]"))
        assert (await to(cluster)).state == "done"
        found = await cluster.rollouts.twin(LOCAL_ADMIN, spec(set={"image": "v3"}))
        assert len(found.nodes) == 8
        by_image = {one.facts["image"]: one.members for one in found.classes}
        assert by_image == {"v2": ((0, 5),), "v1": ((6, 7),)}
        assert found.seconds["switch-image"] == pytest.approx(14, abs=6)
        assert found.spec.select == "n[00000-00007]"
        assert found.failure_rate == 0.0

    on(8, story)
