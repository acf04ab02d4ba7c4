"""Projects: who may compute for one, its quota, and what its jobs have used."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strata.cli import main
from strata.core.errors import BadRequest, Denied, NotFound, Refused
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.jobs.projects.records import ProjectSpec
from strata.jobs.projects.service import ProjectService
from strata.jobs.projects.usage import HOUR, KWH, Amount, Usage, most, spent
from strata.jobs.resources import Asked
from strata.jobs.submission.energy import spans_of
from strata.jobs.submission.records import Job, JobDocument, Task, Used
from strata.jobs.submission.service import JobService
from strata.power.accounting.records import Summary
from strata.power.accounting.service import PowerJobs
from strata.schedulers.jobs import Accelerators, Array
from support.job_site import ALICE, OPERATOR, JobSite


def document(**more: Any) -> JobDocument:
    needs = Asked(nodes=2, tasks=4, cores=2, time=HOUR, accelerators=Accelerators(count=4))
    return JobDocument(**{"command": "true", "project": "physics", "resources": needs, **more})


def job(ident: str, *tasks: Task, energy: Used | None = None, **more: Any) -> Job:
    told = document(**more)
    return Job(id=ident, document=told, owner="ada", account="ada", submitted=0.0, target="local", kind="local",
               controller="c1", tasks=tasks, folder="/", stdout="/x", energy=energy)  # fmt: skip


TOO_MUCH = r"20 core hours in 30 days: 0\.0 are used, 16\.0 booked .* asks for 8\.0"
WAITS = Task(index=None, state="waiting")
RAN = Task(index=None, state="ended", outcome="done", began=1000.0, ended=1000.0 + HOUR / 2)


def test_a_job_costs_its_cores_and_accelerators_for_its_time() -> None:
    assert most(document()) == Amount(8 * HOUR, 8 * HOUR)
    assert most(document(array=Array(last=9))) == Amount(80 * HOUR, 80 * HOUR)
    assert most(document(resources=Asked())) == Amount()


def test_what_is_booked_becomes_what_was_used_once_and_stays_when_the_job_is_forgotten() -> None:
    usage = Usage()
    usage.take("a", job("a", WAITS))
    assert usage.open("physics") == (1, Amount(8 * HOUR, 8 * HOUR))
    usage.take("a", job("a", RAN))
    usage.take("a", job("a", RAN))
    assert usage.open("physics") == (0, Amount())
    assert usage.ended("physics", 0.0) == (1, Amount(4 * HOUR, 4 * HOUR))
    usage.take("a", None)
    assert usage.ended("physics", 0.0) == (1, Amount(4 * HOUR, 4 * HOUR))
    assert usage.ended("physics", 3 * HOUR) == (0, Amount())
    usage.take("b", job("b", WAITS, project="other"))
    usage.take("c", job("c", WAITS, project=None))
    assert usage.open("physics") == (0, Amount())
    usage.take("b", None)
    assert usage.open("other") == (0, Amount())
    usage.clear()
    usage.take("d", job("d", RAN))
    assert usage.ended("physics", 0.0)[0] == 2


def test_of_an_array_the_ended_tasks_are_used_and_the_others_booked() -> None:
    usage = Usage()
    usage.take("a", job("a", RAN, WAITS))
    assert usage.open("physics") == (1, Amount(12 * HOUR, 12 * HOUR))


async def test_a_project_takes_jobs_of_its_members_as_far_as_its_quota_goes(tmp_path: Path) -> None:
    site = JobSite(tmp_path)
    projects = ProjectService(site.fleet)
    await projects.start()
    spec = ProjectSpec(members=("ada",), core_hours=20, accelerator_hours=100)
    await projects.put(LOCAL_ADMIN, "physics", spec, None)
    with pytest.raises(Denied, match="bob is no member of the project physics"), projects.booking(document(), "bob"):
        pytest.fail("taken")
    untimed = document(resources=Asked())
    with pytest.raises(BadRequest, match="must have a time limit"), projects.booking(untimed, "ada"):
        pytest.fail("taken")
    with contextlib.ExitStack() as written:
        for _ in range(2):
            written.enter_context(projects.booking(document(), "ada"))
        # Both are being written down: a third one finds what they take.
        with pytest.raises(Refused, match=TOO_MUCH):
            written.enter_context(projects.booking(document(), "ada"))
    projects.take("a", job("a", WAITS))
    projects.take("b", job("b", WAITS))
    shown = await projects.show(LOCAL_ADMIN, "physics")
    assert (shown.booked_core_hours, shown.used_core_hours, shown.open_jobs, shown.ended_jobs) == (16.0, 0.0, 2, 0)
    small = document(resources=Asked(time=HOUR, cores=4))
    with projects.booking(small, "ada"):
        pass
    with pytest.raises(Refused), projects.booking(document(), "ada"):
        pytest.fail("taken")
    with projects.booking(document(project="nobody-counts-it"), "bob"), projects.booking(document(project=None), "bob"):
        pass
    await projects.delete(LOCAL_ADMIN, "physics", None)
    with pytest.raises(NotFound):
        await projects.show(LOCAL_ADMIN, "physics")
    await projects.stop()


@pytest.mark.server
@pytest.mark.slow
async def test_jobs_are_refused_beyond_the_quota_and_counted_when_they_end(open_dir: Path) -> None:
    site = JobSite(open_dir)
    projects = site.jobs._projects = ProjectService(site.fleet)
    await site.fleet.keep(projects)
    await site.start()
    try:
        await projects.put(LOCAL_ADMIN, "physics", ProjectSpec(core_hours=1), None)
        asked = JobDocument(command="true", project="physics", resources=Asked(time=HOUR))
        done = await site.ended(ALICE, (await site.jobs.submit(ALICE, asked)).id)
        assert done.outcome == "done"
        shown = await projects.show(LOCAL_ADMIN, "physics")
        assert (shown.ended_jobs, shown.open_jobs, shown.booked_core_hours) == (1, 0, 0.0)
        assert done.began is not None and done.ended is not None
        assert shown.used_core_hours == pytest.approx((done.ended - done.began) / HOUR)
        twice = JobDocument(command="true", project="physics", resources=Asked(time=2 * HOUR))
        with pytest.raises(Refused, match="asks for 2"):
            await site.jobs.submit(ALICE, twice)
        with pytest.raises(Refused, match="asks for 2"):
            await site.jobs.plan(ALICE, twice)
        with pytest.raises(BadRequest, match="there is no project nobody-counts-it"):
            await site.jobs.submit(ALICE, JobDocument(command="true", project="nobody-counts-it"))
        assert len(site.jobs.jobs(ALICE).items) == 1, "nothing is kept of what was refused"
    finally:
        await site.clear()
        await site.stop()
        await site.store.close()


@pytest.mark.server
@pytest.mark.slow
async def test_projects_are_set_listed_and_removed_by_the_command_line(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        state_dir=open_dir / "state",
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
        layers=("jobs",),
    )
    monkeypatch.setenv("STRATA_STATE", str(settings.state_dir))

    def strata(*words: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main.run(["project", *words]) == 0, words
        return out.getvalue()

    async with running(settings) as fleet:
        quota = ("--core-hours", "10", "--kwh", "5")
        made = await asyncio.to_thread(strata, "set", "physics", *quota, "--member", "ada", "--json")
        assert (json.loads(made)["core_hours"], json.loads(made)["members"]) == (10.0, ["ada"])
        listed = await asyncio.to_thread(strata, "list")
        assert "0.0 + 0.0 of 10" in listed and "not measured of 5" in listed
        assert "physics" in await asyncio.to_thread(strata, "show", "physics")
        assert fleet.of(JobService)._counts("physics"), "jobs are counted for it"
        await asyncio.to_thread(strata, "delete", "physics")
        assert json.loads(await asyncio.to_thread(strata, "list", "--json")) == []


def test_tasks_that_shared_a_node_or_followed_each_other_on_it_had_it_once() -> None:
    def ran(began: float, ended: float, *nodes: str) -> Task:
        return Task(index=0, state="ended", outcome="done", began=began, ended=ended, nodes=nodes)

    assert spans_of([ran(0, 100, "a", "b"), ran(50, 200, "a"), ran(230, 300, "a"), ran(900, 950, "a")]) == {
        ((0, 300), (900, 950)): ["a"],
        ((0, 100),): ["b"],
    }
    assert not spans_of([Task(index=0, state="ended", outcome="cancelled", ended=7.0)]), "it never began"


def test_energy_is_added_once_when_it_becomes_known_and_the_hours_stay_as_they_were() -> None:
    ended = Task(index=None, state="ended", outcome="done", began=0.0, ended=3600.0)
    usage = Usage()
    for energy in (None, Used(joules=KWH, error=KWH / 10, known=1.0), Used(joules=KWH, error=KWH / 10, known=1.0)):
        usage.take("a", job("a", ended, energy=energy))
    count, used = usage.ended("physics", 0.0)
    assert (count, used.joules, used.error, used.measured) == (1, KWH, KWH / 10, 1)
    assert used.cores == spent(job("a", ended)).cores


class Meter(PowerJobs):
    """Knows of every node but ``dark`` that it draws 1 kW."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def drawn_by(self, nodes: Sequence[str], spans: Sequence[tuple[float, float]]) -> Summary | None:
        self.asked.append(tuple(nodes))
        lit = len([node for node in nodes if node != "dark"])
        seconds = sum(end - start for start, end in spans)
        if not lit:
            return None
        joules = 1000.0 * lit * seconds
        return Summary(
            joules=joules, known=1.0, seconds=seconds, nodes=lit, average=1000.0, peak=1000.0, error=joules / 100
        )


async def test_a_project_shows_the_energy_of_its_jobs_with_its_error_and_takes_none_beyond_its_quota(
    open_dir: Path,
) -> None:
    meter = Meter()
    site = JobSite(open_dir)
    site.fleet.put(meter, PowerJobs)
    projects = site.jobs._projects = ProjectService(site.fleet)
    await site.fleet.keep(projects)
    await site.start()
    try:
        await projects.put(LOCAL_ADMIN, "physics", ProjectSpec(kwh=3.0), None)
        now = site.controller.clock.wall()

        def ran(node: str, ago: float) -> Task:
            told = {"index": None, "state": "ended", "outcome": "done", "nodes": (node,)}
            return Task(began=now - ago - 3600, ended=now - ago, **told)  # type: ignore[arg-type]

        early, late, dark = job("early", ran("n1", 600)), job("late", ran("n2", 10)), job("dark", ran("dark", 600))
        await site.jobs.records.note_all({one.id: one for one in (early, late, dark)})
        await site.jobs._energy.look()
        await site.jobs._energy.look()
        assert sorted(meter.asked) == [("dark",), ("n1",)], "once, and not before the last samples are there"
        shown = await projects.show(LOCAL_ADMIN, "physics")
        assert (shown.used_kwh, shown.measured_jobs, shown.ended_jobs) == (pytest.approx(1.0), 1, 3)
        assert shown.kwh_error == pytest.approx(0.01)
        energy = site.jobs.job(OPERATOR, "early").energy
        assert energy is not None and (energy.joules, energy.known) == (pytest.approx(KWH), 1.0)
        assert site.jobs.job(OPERATOR, "dark").energy is None, "not measured"
        asked = JobDocument(command="true", project="physics", held=True)
        await site.jobs.submit(ALICE, asked)
        greedy = msgspec.structs.replace(asked, resources=Asked(power=2500, time=HOUR))
        with pytest.raises(Refused, match=r"3 kWh in 30 days: 1 ± 0.01 are used, and this one may draw 2.5"):
            projects.booking(greedy, "nobody").__enter__()
        await projects.put(LOCAL_ADMIN, "physics", ProjectSpec(kwh=1.0), None)
        with pytest.raises(Refused, match=r"1 ± 0\.01 are used"):
            await site.jobs.submit(ALICE, asked)
    finally:
        await site.clear()
        await site.stop()
        await site.store.close()
