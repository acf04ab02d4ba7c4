"""What the machine draws and what jobs used, as callers see it: within their scope, honest about what is not known."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from strata.api.app import create_app
from strata.core.errors import BadRequest, Denied, NotFound
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.records import JobEvent, JobsTaken, JobsTold, Run, Summary
from strata.power.accounting.service import PowerJobs
from strata.power.policies.policy import parse
from strata.power.policies.service import PolicyService
from strata.power.queue.service import PowerQueue
from strata.power.series.records import Samples
from strata.power.series.series import Series
from strata.power.telemetry.service import PowerService
from strata.store.audit import Ledger
from support.power_bench import PowerBench
from support.registry_support import a_fleet, spec
from support.rooms import api_services

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "how-to" / "examples").glob("*.yaml"))
NOW = 1_800_000_000.0
SCOPED = Principal(name="slurm", role="workload-manager", scope=("mine",))


class Bench(PowerBench):
    """n1 and n2 are in the cabinet x1000 and in the group ``mine``; n3 is in x1001; n4 is nowhere."""

    async def steady(self, start: float, end: float, **watts: float) -> None:
        """Each node draws so much, measured every 10 s, its counter with it."""
        by_uid = sorted((self.uid(name), value) for name, value in watts.items())
        uids = np.array([uid for uid, _ in by_uid], dtype=np.int64)
        values = np.array([value for _, value in by_uid], dtype=np.float64)
        times = np.arange(start, end + 1, 10.0)
        batch = []
        for time in times.tolist():
            batch.append(Samples(metric="power", time=time, uids=uids, values=values))
            batch.append(Samples(metric="energy", time=time, uids=uids, values=1000.0 + values * (time - start)))
        await self.series.append(batch)

    def client(self) -> httpx.AsyncClient:
        store = self.fleet.store
        services = api_services(
            authenticator=Authenticator(store, Ledger(store)),
            rooms={
                PowerService: self.power,
                PowerJobs: self.jobs,
                PolicyService: self.policies,
                PowerQueue: self.queue,
            },
        )
        transport = httpx.ASGITransport(app=create_app(services, "admin"))
        return httpx.AsyncClient(transport=transport, base_url="http://strata")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes(
            [
                spec("n1", location="x1000c0s0b0n0"),
                spec("n2", location="x1000c0s0b0n1"),
                spec("n3", location="x1001c0s0b0n0"),
                spec("n4"),
            ],
            "t",
        )
        await fleet.settled()
        await fleet.edits.put_group("mine", fleet.registry.select("n[1-2]"), "t", description="")
        await fleet.settled()
        series = Series.in_file(tmp_path / "telemetry.db", clock=lambda: NOW, lateness=1e6)
        await series.start()
        intervals = Intervals(tmp_path / "jobs.db")
        await intervals.start()
        yield Bench(fleet, series, intervals, lambda: NOW)
        await intervals.stop()
        await series.close()


async def told(bench: Bench, *events: JobEvent, who: Principal = LOCAL_ADMIN) -> JobsTaken:
    return await bench.jobs.tell(who, JobsTold(events=events))


def event(what: Any, time: float, job: str = "7", **more: Any) -> JobEvent:
    return JobEvent(what=what, job=job, time=time, **more)


async def ran(bench: Bench, start: float, end: float, job: str = "7", nodes: str = "n[1-2]", **more: Any) -> None:
    more = {"user": "ada", "name": "cfd", **more}
    taken = await told(bench, event("start", start, job, nodes=nodes, **more), event("end", end, job))
    assert taken.taken == 2 and not taken.refused


# -- what is drawn


async def test_nodes_show_what_was_measured_and_nothing_where_it_was_not(bench: Bench) -> None:
    await bench.steady(NOW - 60, NOW - 2, n1=100, n3=300)
    page = await bench.power.nodes(LOCAL_ADMIN, "*", "", 10, "")
    assert [(one.node, one.power) for one in page.items] == [("n1", 100), ("n2", None), ("n3", 300), ("n4", None)]
    assert page.items[0].time == NOW - 10 and page.items[0].temperature is None


async def test_what_is_too_old_says_nothing_of_now(bench: Bench) -> None:
    await bench.steady(NOW - 300, NOW - 100, n1=100)
    (one,) = (await bench.power.nodes(LOCAL_ADMIN, "n1", "", 10, "")).items
    assert (one.power, one.time) == (None, None)


async def test_nodes_come_in_pages_by_name_and_by_value_at_once(bench: Bench) -> None:
    await bench.steady(NOW - 60, NOW, n1=100, n2=400, n3=300)
    first = await bench.power.nodes(LOCAL_ADMIN, "*", "", 3, "")
    rest = await bench.power.nodes(LOCAL_ADMIN, "*", "", 3, first.next)
    assert [one.node for one in (*first.items, *rest.items)] == ["n1", "n2", "n3", "n4"] and not rest.next
    most = await bench.power.nodes(LOCAL_ADMIN, "*", "-power", 2, "")
    assert [one.node for one in most.items] == ["n2", "n3"]
    least = await bench.power.nodes(LOCAL_ADMIN, "*", "power", 9, "")
    assert [one.node for one in least.items] == ["n1", "n3", "n2"], "who was not measured is in no order"
    with pytest.raises(BadRequest, match="is no order"):
        await bench.power.nodes(LOCAL_ADMIN, "*", "-beauty", 2, "")
    with pytest.raises(BadRequest, match="only a list by name has a next page"):
        await bench.power.nodes(LOCAL_ADMIN, "*", "-power", 2, "n2")


async def test_a_history_is_the_sum_and_says_of_how_many(bench: Bench) -> None:
    await bench.steady(NOW - 600, NOW - 300, n1=100, n2=200)
    await bench.steady(NOW - 290, NOW, n1=100)
    found = await bench.power.history(LOCAL_ADMIN, "n[1-2]", "power", NOW - 600, NOW, 60.0)
    assert (found.values[0], found.counts[0]) == (300, 2)
    assert (found.values[-1], found.counts[-1]) == (100, 1)
    assert (found.nodes, found.unit, found.step) == (2, "W", 60)


async def test_a_history_of_each_keeps_gaps(bench: Bench) -> None:
    await bench.steady(NOW - 600, NOW - 400, n1=100)
    await bench.steady(NOW - 100, NOW - 10, n1=100)
    found = await bench.power.history(LOCAL_ADMIN, "n[1-2]", "power", NOW - 600, NOW, 50.0, each=True)
    one, two = found.each
    assert one.node == "n1" and None in one.values and one.values[0] == 100 and one.trouble.gaps == 1
    assert two.node == "n2" and set(two.values) == {None}


async def test_what_makes_no_sense_is_refused(bench: Bench) -> None:
    for more, why in (
        ({"start": NOW, "end": NOW - 1}, "ends before it begins"),
        ({"start": 0.0, "end": NOW, "step": 1.0}, "more than 100000 points"),
        ({"metric": "energy"}, "cannot be added up"),
    ):
        given = {"select": "*", "metric": "power", "start": None, "end": None, "step": 0.0} | more
        with pytest.raises(BadRequest, match=why):
            await bench.power.history(LOCAL_ADMIN, **given)  # type: ignore[arg-type]


async def test_the_system_is_summed_over_what_is_known_and_says_how_much_that_is(bench: Bench) -> None:
    await bench.steady(NOW - 310, NOW, n1=100, n2=200, n3=300)
    found = await bench.power.system(LOCAL_ADMIN, None, None, 0.0)
    system = found.system
    assert (system.now, system.nodes, system.measured) == (600, 4, 3)
    assert (system.least, system.average, system.most) == (600, 600, 600)
    assert found.joules == pytest.approx(600 * 300, rel=0.05)
    assert found.known == pytest.approx(0.75, abs=0.05)


async def test_a_scope_sees_its_own_part_of_the_system(bench: Bench) -> None:
    await bench.steady(NOW - 310, NOW, n1=100, n2=200, n3=300)
    found = await bench.power.system(SCOPED, None, None, 0.0)
    assert (found.system.now, found.system.nodes) == (300, 2)
    assert [one.name for one in (await bench.power.cabinets(SCOPED, None, None, 0.0)).items] == ["x1000"]
    assert len((await bench.power.nodes(SCOPED, "*", "", 10, "")).items) == 2
    with pytest.raises(NotFound):
        await bench.power.history(SCOPED, "n3", "power", None, None, 0.0)


async def test_cabinets_are_summed_by_place(bench: Bench) -> None:
    await bench.steady(NOW - 310, NOW, n1=100, n2=200, n3=300, n4=50)
    found = await bench.power.cabinets(LOCAL_ADMIN, None, None, 0.0)
    assert [(one.name, one.nodes, one.now, one.average) for one in found.items] == [
        ("", 1, 50, 50),
        ("x1000", 2, 300, 300),
        ("x1001", 1, 300, 300),
    ]


async def test_what_the_caps_of_a_cabinet_add_up_to_is_told_where_each_of_its_nodes_has_one(bench: Bench) -> None:
    await bench.steady(NOW - 60, NOW, n1=100, n2=200, n3=300)
    capped = {bench.uid(name): watts for name, watts in (("n1", 250.0), ("n2", 350.0), ("n3", 0.0))}  # 0: it has none
    uids = np.array(sorted(capped), dtype=np.int64)
    values = np.array([capped[uid] for uid in uids.tolist()])
    await bench.series.append([Samples(metric="cap", time=NOW - 10, uids=uids, values=values)])
    found = await bench.power.cabinets(LOCAL_ADMIN, None, None, 0.0)
    assert {one.name: one.caps for one in found.items} == {"": None, "x1000": 600, "x1001": None}
    assert (await bench.power.system(SCOPED, None, None, 0.0)).system.caps == 600
    assert (await bench.power.system(LOCAL_ADMIN, None, None, 0.0)).system.caps is None


async def test_the_history_of_counters_is_that_of_each_node(bench: Bench) -> None:
    await bench.steady(NOW - 600, NOW, n1=100, n2=300)
    found = await bench.power.history(LOCAL_ADMIN, "n[1-3]", "energy", NOW - 300, NOW, 60.0, each=True)
    assert [one.node for one in found.each] == ["n1", "n2", "n3"]
    first, second, none = (one.values for one in found.each)
    for values, joules in ((first, 6000), (second, 18_000)):
        rises = [b - a for a, b in pairwise(values) if a is not None and b is not None]
        assert len(rises) >= 3 and rises == [joules] * len(rises)
    assert set(none) == {None} == set(found.values), "counters of different nodes add up to nothing"
    assert max(found.counts) == 2
    with pytest.raises(BadRequest, match="cannot be added up"):
        await bench.power.history(LOCAL_ADMIN, "n1", "energy", None, None, 0.0)


async def test_nothing_measured_is_not_zero(bench: Bench) -> None:
    found = await bench.power.system(LOCAL_ADMIN, None, None, 0.0)
    assert (found.system.now, found.system.average, found.known) == (None, None, 0.0)
    assert all(one.now is None for one in (await bench.power.cabinets(LOCAL_ADMIN, None, None, 0.0)).items)


# -- jobs


async def test_a_job_used_what_its_nodes_used_while_it_ran(bench: Bench) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100, n2=300, n3=999)
    await ran(bench, NOW - 3000, NOW - 2000)
    found = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    assert found.joules == pytest.approx(400 * 1000, rel=0.02)
    assert found.average == pytest.approx(400, rel=0.02)
    assert found.peak == pytest.approx(400, rel=0.02)
    assert found.known == pytest.approx(1.0, abs=0.02)
    assert (found.nodeset, found.nodes, found.user, found.seconds) == ("n[1-2]", 2, "ada", 1000)
    assert (found.power.least_node, found.power.most_node) == ("n1", "n2")
    assert found.highest.most == pytest.approx(300)
    assert [one.node for one in found.each] == ["n2", "n1"]


async def test_a_scheduler_sees_the_least_and_the_most_of_a_jobs_last_minutes(bench: Bench) -> None:
    start = NOW - 7200
    for begin, watts in ((start, 100.0), (NOW - 2400, 200.0), (NOW - 1200, 400.0), (NOW - 600, 300.0)):
        await bench.steady(begin + 10, NOW, n1=watts, n2=watts)
    await ran(bench, start, NOW - 5)
    found = (await bench.jobs.job(LOCAL_ADMIN, "7", "")).drawn
    assert [(one.minutes, one.least, one.most) for one in found] == [
        (0, 200.0, 800.0),
        (60, 200.0, 800.0),
        (30, 400.0, 800.0),
        (15, 600.0, 800.0),
        (1, 600.0, 600.0),
    ]
    assert found[-1].average == 600.0
    assert found[1].average == pytest.approx(433, rel=0.02)


@pytest.mark.slow
async def test_a_job_is_charged_for_the_power_that_was_set_aside_for_it(bench: Bench) -> None:
    uids = np.array(sorted(bench.uid(name) for name in ("n1", "n2", "n3")), dtype=np.int64)
    bench.columns.put(uids, most=1000.0)
    start, end = NOW - 1800.0, NOW - 600.0
    for time in np.arange(start - 60, end + 60, 10.0).tolist():
        caps = np.where(uids == bench.uid("n1"), 300.0, 0.0)
        await bench.series.append([Samples(metric="cap", time=time, uids=uids, values=caps)])
    await bench.steady(start - 10, end + 10, n1=200.0, n2=200.0, n3=200.0)
    await ran(bench, start, end, job="capped", nodes="n1")
    await ran(bench, start, end, job="free", nodes="n2")
    await ran(bench, start, end, job="unknown", nodes="n4")
    capped, free, unknown = [(await bench.jobs.job(LOCAL_ADMIN, job, "")) for job in ("capped", "free", "unknown")]
    assert capped.joules == pytest.approx(free.joules), "they drew the same"
    assert (capped.allocated, free.allocated) == (pytest.approx(300 * 1200), pytest.approx(1000 * 1200))
    assert unknown.allocated is None


async def test_the_time_that_a_job_was_suspended_is_not_its_own(bench: Bench) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100, n2=100)
    await told(
        bench,
        event("start", NOW - 3000, nodes="n[1-2]"),
        event("suspend", NOW - 2800),
        event("resume", NOW - 2200),
        event("end", NOW - 2000),
    )
    found = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    assert (found.seconds, found.suspended) == (400, 600)
    assert found.joules == pytest.approx(200 * 400, rel=0.05)


async def test_nodes_of_which_nothing_is_known_are_counted_and_not_guessed(bench: Bench) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100)
    await ran(bench, NOW - 3000, NOW - 2000)
    found = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    assert found.unmeasured == 1 and found.known == pytest.approx(0.5, abs=0.02)
    assert found.joules == pytest.approx(100 * 1000, rel=0.02)


async def test_a_run_is_compared_with_earlier_ones_of_the_same_user_and_name(bench: Bench) -> None:
    await bench.steady(NOW - 9000, NOW - 6000, n1=100, n2=100)
    await bench.steady(NOW - 5990, NOW - 1000, n1=150, n2=150)
    await ran(bench, NOW - 8500, NOW - 7500, "1")
    await ran(bench, NOW - 7400, NOW - 6400, "2")
    await ran(bench, NOW - 7400, NOW - 6400, "3", name="other")
    await ran(bench, NOW - 5000, NOW - 3000, "9")
    earlier = (await bench.jobs.job(LOCAL_ADMIN, "9", "")).earlier
    assert earlier.runs == 2
    assert earlier.average_change == pytest.approx(0.5, abs=0.03)
    assert earlier.seconds_change == pytest.approx(1.0)
    assert earlier.joules_change == pytest.approx(2.0, abs=0.1)
    assert (await bench.jobs.job(LOCAL_ADMIN, "1", "")).earlier.runs == 0


async def test_what_a_run_came_to_is_kept_with_it(bench: Bench) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100, n2=100)
    await ran(bench, NOW - 3000, NOW - 2000)
    assert (await bench.jobs.jobs(LOCAL_ADMIN))[0].joules is None
    await bench.jobs.job(LOCAL_ADMIN, "7", "")
    (one,) = await bench.jobs.jobs(LOCAL_ADMIN, "ada")
    assert one.joules == pytest.approx(200_000, rel=0.02) and one.average == pytest.approx(100, rel=0.02)
    assert await bench.jobs.jobs(LOCAL_ADMIN, "eve") == []


async def test_the_figures_that_were_kept_outlive_the_samples(bench: Bench, tmp_path: Path) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100, n2=300)
    await ran(bench, NOW - 3000, NOW - 2000)
    before = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    other = Series.in_file(tmp_path / "other.db", clock=lambda: NOW)
    await other.start()
    after = await Bench(bench.fleet, other, bench.intervals, lambda: NOW).jobs.job(LOCAL_ADMIN, "7", "")
    assert before.joules == pytest.approx(400_000)
    for name in ("joules", "known", "error", "average", "seconds", "unmeasured"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.power.average, after.highest.most) == (before.power.average, before.highest.most)
    assert (after.peak, after.energy.most, after.each[0].joules) == (None, None, None)
    assert "its samples are gone" in after.doubt and before.doubt == ""
    await other.close()


async def test_what_nobody_measured_is_no_figure(bench: Bench) -> None:
    await ran(bench, NOW - 3000, NOW - 2000)
    found = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    assert (found.joules, found.average, found.peak, found.unmeasured) == (None, None, None, 2)
    assert [one.joules for one in found.each] == [None, None]
    (one,) = await bench.jobs.jobs(LOCAL_ADMIN)
    assert (one.joules, one.known) == (None, 0.0)


async def test_an_application_is_compared_with_applications_of_other_jobs(bench: Bench) -> None:
    await bench.steady(NOW - 9000, NOW - 1000, n1=100, n2=100)
    for job, begin in (("6001", NOW - 8000), ("6002", NOW - 4000)):
        await told(bench, event("start", begin, job, nodes="n[1-2]", user="ada", name="cfd"))
        for step in range(2):
            at = begin + 100 + 500 * step
            await told(bench, event("start", at, job, apid=f"{job}.{step}"))
            await told(bench, event("end", at + 400, job, apid=f"{job}.{step}"))
        await told(bench, event("end", begin + 1200, job))
    for apid, runs in (("6001.0", 0), ("6001.1", 0), ("6002.0", 2), ("6002.1", 2)):
        assert (await bench.jobs.job(LOCAL_ADMIN, apid[:4], apid)).earlier.runs == runs, apid
    assert (await bench.jobs.job(LOCAL_ADMIN, "6002", "")).earlier.runs == 1


async def test_a_maximum_is_not_below_the_average(bench: Bench) -> None:
    uids = np.array([bench.uid("n1")], dtype=np.int64)
    batch = []
    for at in range(0, 601, 10):  # a burst between any two looks: only the counter has it
        batch.append(Samples(metric="power", time=NOW - 2000 + at, uids=uids, values=np.array([780.0])))
        batch.append(
            Samples(metric="energy", time=NOW - 2000 + at, uids=uids, values=np.array([802.0 * at + at // 10 % 3]))
        )
    await bench.series.append(batch)
    await ran(bench, NOW - 1900, NOW - 1500, nodes="n1")
    found = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    assert (found.average, found.peak, found.highest.most) == pytest.approx((802.0, 802.0, 802.0), rel=0.002)
    assert found.trouble.differs == 1


async def test_runs_are_summed_up_soon_after_they_have_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100, n2=100)
    await ran(bench, NOW - 3000, NOW - 2000, "old")
    await ran(bench, NOW - 100, NOW - 10, "fresh")
    monkeypatch.setattr("strata.power.accounting.service.SUM_UP_EVERY", 0.0)
    summed, keep = asyncio.Event(), bench.intervals.sum_up

    async def sum_up(run: Run, summary: Summary) -> None:
        await keep(run, summary)
        summed.set()

    monkeypatch.setattr(bench.intervals, "sum_up", sum_up)
    await bench.jobs.start()
    async with asyncio.timeout(60):
        await summed.wait()
    await bench.jobs.stop()
    (old,), (fresh,) = await bench.intervals.find("old"), await bench.intervals.find("fresh")
    assert old.summary is not None and old.summary.joules == pytest.approx(200_000, rel=0.02)
    assert fresh.summary is None, "not all of its samples may be there"


async def test_applications_are_shown_with_their_job(bench: Bench) -> None:
    await bench.steady(NOW - 3600, NOW - 1000, n1=100, n2=100)
    await told(
        bench,
        event("start", NOW - 3000, nodes="n[1-2]"),
        event("start", NOW - 2900, apid="7.0"),
        event("end", NOW - 2500, apid="7.0"),
        event("end", NOW - 2000),
    )
    found = await bench.jobs.job(LOCAL_ADMIN, "7", "")
    assert [(one.apid, one.seconds, one.nodes) for one in found.applications] == [("7.0", 400, 2)]
    part = await bench.jobs.job(LOCAL_ADMIN, "7", "7.0")
    assert part.joules == pytest.approx(200 * 400, rel=0.05)
    spans = await bench.jobs.ran("", "7.0")
    assert spans is not None and (list(spans.spans), len(spans.uids)) == ([(NOW - 2900, NOW - 2500)], 2)
    assert await bench.jobs.ran("404", "") is None


async def test_a_scope_sees_and_tells_only_of_jobs_on_its_own_nodes(bench: Bench) -> None:
    await ran(bench, NOW - 3000, NOW - 2000, "1", nodes="n[1-2]")
    await ran(bench, NOW - 3000, NOW - 2000, "2", nodes="n[2-3]")
    await told(bench, event("start", NOW - 100, "3", nodes="n3"))
    assert (await bench.jobs.job(SCOPED, "1", "")).job == "1"
    assert [one.job for one in await bench.jobs.jobs(SCOPED)] == ["1"]
    with pytest.raises(NotFound):
        await bench.jobs.job(SCOPED, "2", "")
    with pytest.raises(NotFound):
        await told(bench, event("end", NOW, "3"), who=SCOPED)
    with pytest.raises(Denied):
        await told(bench, event("start", NOW, "4", nodes="n3"), who=SCOPED)
    with pytest.raises(Denied):
        await told(bench, event("start", NOW, "4", nodes="nowhere1"), who=SCOPED)
    assert (await told(bench, event("start", NOW, "4", nodes="n1"), who=SCOPED)).taken == 1


async def test_nodes_that_are_not_in_the_fleet_are_left_out_and_counted(bench: Bench) -> None:
    taken = await told(bench, event("start", NOW - 10, nodes="n1,elsewhere[1-3]"))
    assert (taken.taken, taken.unknown_nodes) == (1, 3)
    assert (await bench.jobs.job(LOCAL_ADMIN, "7", "")).nodeset == "n1"


async def test_what_cannot_be_taken_says_why_and_keeps_nothing_else_out(bench: Bench) -> None:
    taken = await told(
        bench, event("end", NOW, "unheard"), event("start", NOW, "bare"), event("start", NOW, "good", nodes="n1")
    )
    assert taken.taken == 1
    assert {one.job: one.reason for one in taken.refused} == {
        "unheard": "nobody told that it began",
        "bare": "say on which nodes it starts",
    }


async def test_an_unknown_job_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFound, match="no energy record of job"):
        await bench.jobs.job(LOCAL_ADMIN, "404", "")


# -- over HTTP


async def test_it_is_all_there_over_http(bench: Bench) -> None:
    await bench.steady(NOW - 3600, NOW, n1=100, n2=200, n3=300)
    async with bench.client() as client:
        body = {"events": [{"what": "start", "job": "7", "nodes": "n[1-2]", "time": NOW - 3000, "user": "ada"}]}
        answer = await client.post("/v1/power/jobs", json=body)
        assert (answer.status_code, answer.json()["taken"]) == (200, 1)
        for path in (
            "/v1/power/nodes?select=n1",
            "/v1/power/history?select=n1&each=true",
            "/v1/power/system",
            "/v1/power/cabinets",
            "/v1/power/jobs?running=true",
            "/v1/power/jobs/7",
        ):
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
        assert answer.json()["end"] is None and answer.json()["joules"] > 0
        for path in ("/v1/power/nodes?select=n9", "/v1/power/jobs/404"):
            assert (await client.get(path)).status_code == 404
        for path in ("/v1/power/history?metric=beauty", "/v1/power/history?step=-1", "/v1/power/nodes?sort=%20"):
            assert (await client.get(path)).status_code == 400
        wrong = await client.post("/v1/power/jobs", json={"events": [{"what": "start", "job": "a b"}]})
        assert wrong.status_code == 400


async def test_samples_come_as_a_file_of_the_format_that_is_asked_for(bench: Bench) -> None:
    await bench.steady(NOW - 100, NOW, n1=100, n2=200)
    async with bench.client() as client:
        path = f"/v1/power/samples?select=n[1-2]&start={NOW - 100}&end={NOW + 1}"
        answer = await client.get(path)
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.text.splitlines()[0] == "time,node,power (W)"
        assert len(answer.text.splitlines()) == 1 + 2 * 11
        kind = "application/vnd.apache.parquet"
        for asked, headers in ((f"{path}&format=parquet", {}), (path, {"accept": kind})):
            answer = await client.get(asked, headers=headers)
            assert answer.headers["content-type"] == kind
            assert pq.read_table(io.BytesIO(answer.content)).num_rows == 2 * 11
        for wrong in ("format=xml", "step=90", "metric=beauty", "start=9&end=8"):
            assert (await client.get(f"/v1/power/samples?{wrong}")).status_code == 400
        assert (await client.get("/v1/power/samples?format=xml")).json()["where"] == "query format"


async def test_a_job_on_nodes_that_are_all_elsewhere_used_nothing_that_is_known(bench: Bench) -> None:
    taken = await told(bench, event("start", NOW - 30, nodes="elsewhere[1-3]"))
    assert taken.unknown_nodes == 3
    async with bench.client() as client:
        answer = await client.get("/v1/power/jobs/7")
        assert answer.status_code == 200, answer.text
        assert (answer.json()["nodes"], answer.json()["joules"], answer.json()["average"]) == (0, None, None)


async def test_every_policy_that_is_shipped_as_an_example_can_be_put(bench: Bench) -> None:
    texts = [path.read_text() for path in EXAMPLES]
    policies = [text for text in texts if "\nlimit:" in text and "\nextends:" not in text]
    assert len(policies) == 3
    await bench.book.start()
    async with bench.client() as client:
        for text in policies:
            name = parse(text, source="example").name
            answer = await client.put(f"/v1/power/policies/{name}", json={"text": text, "without_simulation": "a test"})
            assert answer.status_code == 200, answer.text
    await bench.book.stop()


async def test_the_queue_is_told_as_a_whole_and_is_not_gone_by_for_ever(bench: Bench) -> None:
    async with bench.client() as client:
        assert (await client.get("/v1/power/queue")).json()["time"] is None
        job = {"job": "12", "nodes": 64, "queue": "night", "user": "ada", "time_limit": 3600.0}
        told = {"waiting": [job, {"job": "13", "nodes": 1}], "running": [{"job": "7", "ends": NOW + 60, "cap": 300.0}]}
        answer = await client.post("/v1/power/queue", json=told)
        assert answer.status_code == 200, answer.text
        assert answer.json()["waiting"][0] == job and answer.json()["fresh"]
        await client.post("/v1/power/queue", json={"waiting": [{"job": "13", "nodes": 1}], "good_for": 30})
        found = (await client.get("/v1/power/queue")).json()
        assert [one["job"] for one in found["waiting"]] == ["13"] and not found["running"]
        assert (found["author"], found["good_until"]) == (LOCAL_ADMIN.name, NOW + 30)
        for wrong in ({"waiting": [{"job": "1", "nodes": 0}]}, {"waiting": [{"job": "1 2", "nodes": 1}]}):
            assert (await client.post("/v1/power/queue", json=wrong)).status_code == 400
    assert await bench.queue.fresh(NOW + 29) is not None
    assert await bench.queue.fresh(NOW + 31) is None, "a queue of yesterday says nothing about today"
    told_by = [(entry.author, entry.action) for entry in (await Ledger(bench.fleet.store).latest())[:2]]
    assert told_by == [(LOCAL_ADMIN.name, "power-queue.put")] * 2, "who told of it is in the audit log"


async def test_what_nodes_used_in_some_times_is_told_without_a_job_and_strangers_are_left_out(bench: Bench) -> None:
    await bench.steady(NOW - 4000, NOW - 400, n1=100.0, n2=300.0)
    found = await bench.jobs.drawn_by(["n1", "n2", "stranger"], [(NOW - 3600, NOW - 2600), (NOW - 1600, NOW - 600)])
    assert found is not None and found.nodes == 2
    assert abs(found.joules - 800_000) <= found.error < 40_000 and found.known == pytest.approx(1.0)
    assert await bench.jobs.drawn_by(["stranger"], [(NOW - 3600, NOW - 2600)]) is None
