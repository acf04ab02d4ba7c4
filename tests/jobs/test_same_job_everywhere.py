"""The same job document on this machine, Slurm and Grid Engine (real ones), with equal results; in containers too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from container_support import small_image

from strata.core.errors import BadRequest
from strata.jobs.containers.records import Container
from strata.jobs.resources import Asked
from strata.jobs.submission.records import Copy, Dependency, JobDocument, JobView
from strata.platform.workload.records import WorkloadSpec
from strata.schedulers.jobs import After, Array
from support.grid_engine import grid_engine
from support.job_site import ALICE, BOB, ROOT, Connected, JobSite, job_site, until
from support.slurm import slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.skipif(not ROOT, reason="only root can run a scheduler for somebody else"),
]

QUICK = "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0\nOverTimeLimit=0"


@asynccontextmanager
async def target(kind: str, directory: Path) -> AsyncIterator[JobSite]:
    """A site whose jobs go to such a scheduler."""
    async with AsyncExitStack() as parts:
        specs: dict[str, WorkloadSpec] = {}
        daemons = directory / "daemons"
        daemons.mkdir(mode=0o755)
        strata = directory / "strata"
        strata.write_text(f'#!/bin/sh\nexec {sys.executable} -m strata.cli "$@"\n', encoding="utf-8")
        strata.chmod(0o755)
        if kind == "slurm":
            real: Any = await parts.enter_async_context(slurm(daemons, "", QUICK, real=("n1", "n2"), cpus=4))
            specs[kind] = WorkloadSpec(kind="slurm", env=real.env, strata=str(strata))
        elif kind == "gridengine":
            real = await parts.enter_async_context(grid_engine(daemons))
            specs[kind] = WorkloadSpec(kind="gridengine", env=real.env, strata=str(strata))
        yield await parts.enter_async_context(job_site(directory, put=Connected(specs).put, poll=1.0))


def sh(text: str, **more: Any) -> JobDocument:
    return JobDocument(script=f"#!/bin/sh\n{text}\n", **more)


@pytest.mark.parametrize("kind", ["local", "slurm", "gridengine"])
async def test_a_document_gives_the_same_result_wherever_it_runs(kind: str, open_dir: Path) -> None:
    async with target(kind, open_dir) as site:
        home = Path(site.people["alice"].home)
        (home / "in").write_text("staged\n")
        documents = {
            "plain": JobDocument(command="echo", arguments=("a b", "$HOME", "it's"), env={"X": "y"}),
            "python": JobDocument(
                script="#!/usr/bin/env python3\nimport os\nprint(os.environ['X'])\n", env={"X": "1\n2"}
            ),
            "fails": sh("echo out; echo err >&2; exit 3"),
            "killed": sh("kill -9 $$"),
            "staged": sh(
                "cat got; echo result > made",
                stage_in=(Copy(source=f"{home}/in", to=f"{home}/got"),),
                stage_out=(Copy(source=f"{home}/made", to=f"{home}/kept"),),
            ),
            "retried": sh('echo $STRATA_ATTEMPT; test "$STRATA_ATTEMPT" = 2', retries=3),
            "array": sh(
                'echo $STRATA_ARRAY_INDEX; test "$STRATA_ARRAY_INDEX" != 3', array=Array(first=1, last=5, step=2)
            ),
            "named": sh("echo named", name="fit", stdout=f"{home}/%u.%x.%j", stderr=f"{home}/err.%A"),
            "named-array": sh("true", name="fit", stdout=f"{home}/%x.%A_%a", array=Array(first=1, last=2)),
            "late": sh("sleep 600", resources=Asked(time=1)),
        }
        jobs = {name: await site.jobs.submit(ALICE, document) for name, document in documents.items()}
        held = await site.jobs.submit(ALICE, sh("exit 5", held=True))
        after: dict[str, JobView] = {}
        able = site.jobs.targets[kind].scheduler.ability.after
        waits: tuple[After, ...] = ("ended", "done")
        for what in waits:
            document = sh(f"echo {what}", after=(Dependency(job=held.id, what=what),))
            if what in able:
                after[what] = await site.jobs.submit(ALICE, document)
                continue
            with pytest.raises(BadRequest, match=f"{kind} cannot begin a job once another one has ended well"):
                await site.jobs.submit(ALICE, document)
        assert {job.target for job in (*jobs.values(), held, *after.values())} == {kind}
        await until(lambda: site.jobs.job(ALICE, held.id).state == "held")
        await site.jobs.release(ALICE, held.id)
        endless = await site.jobs.submit(ALICE, sh("echo begun; sleep 600"))
        await until(lambda: site.jobs.job(ALICE, endless.id).state == "running")
        await site.jobs.cancel(ALICE, endless.id)
        everything = {**jobs, "first": held, **after, "cancelled": endless}
        over: dict[str, JobView] = dict(
            zip(
                everything,
                await asyncio.gather(*(site.ended(ALICE, job.id) for job in everything.values())),
                strict=True,
            )
        )
        assert {name: (job.outcome, job.status, job.signal) for name, job in over.items() if name in EXITS} == EXITS
        assert {name: job.outcome for name, job in over.items() if name not in EXITS} == {
            "array": "failed",
            "late": "timed-out",
            "cancelled": "cancelled",
            **({"done": "cancelled"} if "done" in able else {}),
        }
        assert [(task.index, task.outcome, task.status) for task in over["array"].array] == [
            (1, "done", 0),
            (3, "failed", 1),
            (5, "done", 0),
        ]
        printed = {name: await site.printed(ALICE, over[name].id) for name in PRINTED}
        assert printed == PRINTED
        assert [await site.printed(ALICE, over["array"].id, task=index) for index in (1, 3, 5)] == ["1\n", "3\n", "5\n"]
        assert (home / "kept").read_text() == "result\n"
        single, tasks = over["named"].id, over["named-array"].id
        names = {f"{site.people['alice'].name}.fit.{single}", f"err.{single}", f"fit.{tasks}_1", f"fit.{tasks}_2"}
        assert names <= {path.name for path in home.iterdir()}
        with pytest.raises(BadRequest) as refused:
            await site.jobs.submit(ALICE, sh("true", resources=Asked(power=100)))
        assert refused.value.where == "resources.power" and "power" in refused.value.detail
        assert not site.jobs.jobs(BOB).items
        # One look for everybody, whatever is asked meanwhile.
        looks = site.jobs.targets[kind].looks
        for _ in range(100):
            site.jobs.jobs(ALICE)
            site.jobs.job(ALICE, over["plain"].id)
        assert site.jobs.targets[kind].looks == looks


RUNTIMES = ("native", "charliecloud", "bubblewrap")


@pytest.mark.parametrize("kind", ["local", "slurm", "gridengine"])
async def test_a_document_gives_the_same_result_by_three_runtimes_wherever_it_runs(kind: str, open_dir: Path) -> None:
    image = small_image(open_dir / "image")
    async with target(kind, open_dir) as site:
        found = await asyncio.gather(*(_in_container(site, f"oci:{image}", runtime) for runtime in RUNTIMES))
        assert dict(zip(RUNTIMES, found, strict=True)) == dict.fromkeys(RUNTIMES, INSIDE)
        assert {job.target for job in site.jobs.jobs(ALICE).items} == {kind}


async def _in_container(site: JobSite, image: str, runtime: str) -> dict[str, Any]:
    """How each of some jobs ended in a container, and what it printed."""
    env = {"TOLD": "by the job", "STRATA_CONTAINERS": f"{site.people['alice'].home}/{runtime}"}
    box = Container(image=image, runtime=runtime)

    async def submitted(text: str, **more: Any) -> JobView:
        return await site.jobs.submit(ALICE, sh(text, env=env, container=box, **more))

    jobs = {
        "plain": await submitted('echo "$FROM_IMAGE $TOLD $1"; ls /bin/busybox', arguments=("a b",)),
        "fails": await submitted("echo out; echo err >&2; exit 3"),
        "array": await submitted(
            'echo $STRATA_ARRAY_INDEX; test "$STRATA_ARRAY_INDEX" != 3', array=Array(first=1, last=5, step=2)
        ),
        "late": await submitted("sleep 600", resources=Asked(time=1)),
        "first": await submitted("exit 5", held=True),
        "endless": await submitted("echo begun; sleep 600"),
    }
    first, endless = jobs["first"], jobs["endless"]
    jobs["after"] = await submitted("echo after", after=(Dependency(job=first.id, what="ended"),))
    await until(lambda: site.jobs.job(ALICE, first.id).state == "held")
    await site.jobs.release(ALICE, first.id)
    await until(lambda: site.jobs.job(ALICE, endless.id).state == "running")
    while await site.printed(ALICE, endless.id) != "begun\n":
        assert site.jobs.job(ALICE, endless.id).state == "running"
        await asyncio.sleep(0.2)
    await site.jobs.cancel(ALICE, endless.id)
    over = {name: await site.ended(ALICE, job.id) for name, job in jobs.items()}
    told: dict[str, Any] = {}
    for name, job in over.items():
        if job.array:
            told[name] = [
                (task.outcome, task.status, await site.printed(ALICE, job.id, task=task.index)) for task in job.array
            ]
        elif name in ("late", "endless"):  # by which signal, and whether it is told, is the scheduler's own affair
            told[name] = job.outcome
        else:
            told[name] = (job.outcome, job.status, await site.printed(ALICE, job.id))
    return told


INSIDE = {
    "plain": ("done", 0, "yes by the job a b\n/bin/busybox\n"),
    "fails": ("failed", 3, "out\nerr\n"),
    "array": [("done", 0, "1\n"), ("failed", 1, "3\n"), ("done", 0, "5\n")],
    "late": "timed-out",
    "first": ("failed", 5, ""),
    "endless": "cancelled",
    "after": ("done", 0, "after\n"),
}
EXITS = {
    "plain": ("done", 0, None),
    "python": ("done", 0, None),
    "fails": ("failed", 3, None),
    "killed": ("failed", 137, 9),
    "staged": ("done", 0, None),
    "retried": ("done", 0, None),
    "first": ("failed", 5, None),
    "ended": ("done", 0, None),
    "named": ("done", 0, None),
    "named-array": ("done", 0, None),
}
PRINTED = {
    "plain": "a b $HOME it's\n",
    "python": "1\n2\n",
    "fails": "out\nerr\n",
    "staged": "staged\n",
    "retried": "1\n2\n",
    "ended": "ended\n",
    "named": "named\n",
}
