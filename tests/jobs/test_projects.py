"""Projects: who may compute for one, its quota, and what its jobs have used."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

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
from strata.jobs.projects.usage import HOUR, Amount, Usage, most
from strata.jobs.submission.records import Job, JobDocument, Task
from strata.jobs.submission.service import JobService
from strata.schedulers.jobs import Accelerators, Array, Resources
from support.job_site import ALICE, JobSite


def document(**more: Any) -> JobDocument:
    needs = Resources(nodes=2, tasks=4, cores=2, time=HOUR, accelerators=Accelerators(count=4))
    return JobDocument(**{"command": "true", "project": "physics", "resources": needs, **more})


def job(ident: str, *tasks: Task, **more: Any) -> Job:
    told = document(**more)
    return Job(id=ident, document=told, owner="ada", account="ada", submitted=0.0, target="local", kind="local",
               controller="c1", tasks=tasks, folder="/", stdout="/x")  # fmt: skip


TOO_MUCH = r"20 core hours in 30 days: 0\.0 are used, 16\.0 booked .* asks for 8\.0"
WAITS = Task(index=None, state="waiting")
RAN = Task(index=None, state="ended", outcome="done", began=1000.0, ended=1000.0 + HOUR / 2)


def test_a_job_costs_its_cores_and_accelerators_for_its_time() -> None:
    assert most(document()) == Amount(8 * HOUR, 8 * HOUR)
    assert most(document(array=Array(last=9))) == Amount(80 * HOUR, 80 * HOUR)
    assert most(document(resources=Resources())) == Amount()


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
    untimed = document(resources=Resources())
    with pytest.raises(BadRequest, match="says how long it may run"), projects.booking(untimed, "ada"):
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
    small = document(resources=Resources(time=HOUR, cores=4))
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
        asked = JobDocument(command="true", project="physics", resources=Resources(time=HOUR))
        done = await site.ended(ALICE, (await site.jobs.submit(ALICE, asked)).id)
        assert done.outcome == "done"
        shown = await projects.show(LOCAL_ADMIN, "physics")
        assert (shown.ended_jobs, shown.open_jobs, shown.booked_core_hours) == (1, 0, 0.0)
        assert done.began is not None and done.ended is not None
        assert shown.used_core_hours == pytest.approx((done.ended - done.began) / HOUR)
        twice = JobDocument(command="true", project="physics", resources=Resources(time=2 * HOUR))
        with pytest.raises(Refused, match="asks for 2"):
            await site.jobs.submit(ALICE, twice)
        with pytest.raises(Refused, match="asks for 2"):
            await site.jobs.plan(ALICE, twice)
        with pytest.raises(BadRequest, match="local cannot count a job for a project"):
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
        made = await asyncio.to_thread(strata, "set", "physics", "--core-hours", "10", "--member", "ada", "--json")
        assert (json.loads(made)["core_hours"], json.loads(made)["members"]) == (10.0, ["ada"])
        assert "0.0 + 0.0 of 10" in await asyncio.to_thread(strata, "list")
        assert "physics" in await asyncio.to_thread(strata, "show", "physics")
        assert fleet.of(JobService)._counts("physics"), "jobs are counted for it"
        await asyncio.to_thread(strata, "delete", "physics")
        assert json.loads(await asyncio.to_thread(strata, "list", "--json")) == []
