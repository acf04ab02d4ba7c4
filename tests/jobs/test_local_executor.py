"""This machine as a scheduler: the contract of all schedulers, and what is its own."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.core.host.process import find, load
from strata.jobs.accounts import LocalAccounts
from strata.jobs.local import executor
from strata.jobs.local.executor import REMEMBERED, LocalExecutor
from strata.jobs.local.slots import Slots
from strata.schedulers.jobs import Accelerators, Resources
from support.job_scheduler_contract import Site, keeps_the_contract
from support.job_site import ROOT, own_name, until

pytestmark = [pytest.mark.slow, pytest.mark.server]

ACCOUNT = "nobody" if ROOT else own_name()


@asynccontextmanager
async def site(directory: Path, slots: Slots | None = None) -> AsyncIterator[Site]:
    folder = directory / "of the account's"
    folder.mkdir(exist_ok=True)
    if ROOT:
        shutil.chown(folder, ACCOUNT)
    made = LocalExecutor(directory / "jobs", slots or Slots(cores=8, memory=8192), LocalAccounts({}, 1), grace=1.0)
    await made.start()
    try:
        yield Site(made, ACCOUNT, folder)
    finally:
        await made.stop()


async def test_this_machine_keeps_the_contract_of_a_job_scheduler(open_dir: Path) -> None:
    async with site(open_dir) as found:
        await keeps_the_contract(found)


async def test_what_is_not_free_is_waited_for_in_order_and_accelerators_are_one_jobs_at_a_time(open_dir: Path) -> None:
    async with site(open_dir, Slots(cores=2, memory=100, accelerators=(0, 1))) as found:
        gate = found.folder / "go"
        wait = "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\nuntil [ -e go ]; do sleep 0.05; done\n"
        first = found.work(wait, resources=Resources(accelerators=Accelerators(count=1)))
        large = found.work(wait, resources=Resources(cores=2, accelerators=Accelerators(count=2)))
        small = found.work("#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\n")
        for work in (first, large, small):
            await found.scheduler.submit(work)
        await found.until(first, lambda seen: seen[0].state == "running", "the first runs")
        (seen,) = await found.of(large)
        assert (seen.state, seen.reason) == ("waiting", "it waits for 2 cores of 1 that are free")
        assert (await found.of(small))[0].state == "waiting"  # it would fit, and is not let past the one before it
        assert await found.scheduler.expected(small) is None
        gate.touch()
        for work in (first, large, small):
            await found.ended(work)
        assert [found.out(work) for work in (first, large, small)] == ["0\n", "0,1\n", "\n"]
        with pytest.raises(BadRequest, match="3 cores of 2"):
            await found.scheduler.submit(found.work(wait, resources=Resources(cores=3)))


async def test_it_is_told_when_a_job_begins_at_the_latest_if_all_that_is_ahead_has_a_limit(open_dir: Path) -> None:
    async with site(open_dir, Slots(cores=2, memory=100)) as found:
        long, short = Resources(cores=2, time=1000), Resources(cores=1, time=100)
        waits = "#!/bin/sh\nuntil [ -e go ]; do sleep 0.05; done\n"
        works = [found.work(waits, resources=needs) for needs in (long, short, short, long, Resources(), long)]
        for work in works[:4]:
            await found.scheduler.submit(work)
        (first,) = await found.until(works[0], lambda seen: seen[0].state == "running", "the first runs")
        assert first.began is not None and first.expected is None
        begins = [(await found.of(work))[0].expected for work in works[1:4]]
        assert begins == [first.began + 1000, first.began + 1000, first.began + 1100]
        assert await found.scheduler.expected(works[5]) == first.began + 2100
        await found.scheduler.submit(works[4])
        await found.scheduler.submit(works[5])
        assert (await found.of(works[4]))[0].expected == first.began + 2100
        assert (await found.of(works[5]))[0].expected is None, "what is ahead of it may run for ever"
        (found.folder / "go").touch()
        for work in works:
            await found.ended(work)


async def test_a_job_that_is_cancelled_the_moment_it_begins_is_told_as_cancelled(open_dir: Path) -> None:
    async with site(open_dir) as found:
        jobs = [found.work("#!/bin/sh\nsleep 600\n") for _ in range(8)]
        for work in jobs:
            await found.scheduler.submit(work)
            await found.scheduler.cancel(found.account, [work.key])
        for work in jobs:
            (seen,) = await found.ended(work)
            assert (seen.outcome, seen.reason) == ("cancelled", ""), seen


async def test_jobs_that_end_before_anybody_looks_make_room_for_the_next(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "find", ended_before_it_is_found)
    async with site(open_dir, Slots(cores=1, memory=100)) as found:
        jobs = [found.work("#!/bin/sh\nexit 0\n") for _ in range(5)]
        for work in jobs:
            await found.scheduler.submit(work)
        for work in jobs:
            (seen,) = await found.ended(work)
            assert seen.outcome == "done", seen


def ended_before_it_is_found(pid: int) -> None:
    """As on a machine that is slow to look: the supervisor is there no more."""
    while find(pid) is not None:
        time.sleep(0.01)


async def test_a_task_runs_once_whoever_is_killed_and_what_a_dead_supervisor_left_ends(open_dir: Path) -> None:
    async with site(open_dir) as found:
        work = found.work("#!/bin/sh\necho ran >> runs\nsleep 600\n")
        assert await found.scheduler.submit(work) == await found.scheduler.submit(work)
        await found.until(work, lambda seen: seen[0].state == "running", "it runs")
    async with site(open_dir) as again:  # another service: it finds the job, and begins no second one
        again._began = found._began
        (seen,) = await again.of(work)
        assert seen.state == "running"
        process = load(open_dir / "jobs" / work.key / "job.pid")
        assert process is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(process.pid, signal.SIGKILL)
        (seen,) = await again.ended(work)
        assert (seen.outcome, seen.reason) == ("lost", "its supervisor was killed")
        for child in children:
            await until(lambda child=child: find(int(child)) is None)  # type: ignore[misc]
        # Long after somebody could have seen its end, nothing is kept of it.
        assert seen.ended is not None
        await again.scheduler.jobs(seen.ended + REMEMBERED + 1)
        await until(lambda: not (open_dir / "jobs" / work.key).exists())
    assert (found.folder / "runs").read_text() == "ran\n"
