"""The same job document on this machine, Slurm and Grid Engine (real ones), with equal results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from strata.core.errors import BadRequest
from strata.fleet.services import Services
from strata.jobs.submission.records import Copy, Dependency, JobDocument, JobView
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService
from strata.schedulers.jobs import After, Array, Resources
from support.grid_engine import grid_engine
from support.job_site import ALICE, BOB, ROOT, JobSite, job_site, until
from support.slurm import slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.skipif(not ROOT, reason="only root can run a scheduler for somebody else"),
]

QUICK = "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0\nOverTimeLimit=0"


class Connected:
    """Stands in for what the platform layer knows: one workload manager is connected."""

    def __init__(self, specs: dict[str, WorkloadSpec]) -> None:
        self.specs = specs


@asynccontextmanager
async def target(kind: str, directory: Path) -> AsyncIterator[JobSite]:
    """A site whose jobs go to such a scheduler."""
    async with AsyncExitStack() as parts:
        specs: dict[str, WorkloadSpec] = {}
        daemons = directory / "daemons"
        daemons.mkdir(mode=0o755)
        if kind == "slurm":
            real: Any = await parts.enter_async_context(slurm(daemons, "", QUICK, real=("n1", "n2")))
            specs[kind] = WorkloadSpec(kind="slurm", env=real.env)
        elif kind == "gridengine":
            real = await parts.enter_async_context(grid_engine(daemons))
            specs[kind] = WorkloadSpec(kind="gridengine", env=real.env)

        def put(services: Services) -> None:
            services.put(Connected(specs), WorkloadService)  # type: ignore[arg-type]

        yield await parts.enter_async_context(job_site(directory, put=put, poll=1.0))


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
            "late": sh("sleep 600", resources=Resources(time=1)),
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
        with pytest.raises(BadRequest) as refused:
            await site.jobs.submit(ALICE, sh("true", resources=Resources(power=100)))
        assert refused.value.where == "resources.power" and "power" in refused.value.detail
        assert not site.jobs.jobs(BOB).items
        # One look for everybody, whatever is asked meanwhile.
        looks = site.jobs.targets[kind].looks
        for _ in range(100):
            site.jobs.jobs(ALICE)
            site.jobs.job(ALICE, over["plain"].id)
        assert site.jobs.targets[kind].looks == looks


EXITS = {
    "plain": ("done", 0, None),
    "python": ("done", 0, None),
    "fails": ("failed", 3, None),
    "killed": ("failed", 137, 9),
    "staged": ("done", 0, None),
    "retried": ("done", 0, None),
    "first": ("failed", 5, None),
    "ended": ("done", 0, None),
}
PRINTED = {
    "plain": "a b $HOME it's\n",
    "python": "1\n2\n",
    "fails": "out\nerr\n",
    "staged": "staged\n",
    "retried": "1\n2\n",
    "ended": "ended\n",
}
