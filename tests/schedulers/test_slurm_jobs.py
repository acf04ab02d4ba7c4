"""Jobs in Slurm, against a real one: slurmctld, slurmds, an account that is not root."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Denied, Unavailable
from strata.schedulers.jobs import Array, Resources
from strata.schedulers.runner import Place, Runner
from strata.schedulers.slurm.jobs import SlurmJobs
from support.job_scheduler_contract import Site, keeps_the_contract
from support.slurm import Slurm, slurm

ACCOUNT, OTHER = "nobody", "daemon"
MORE = "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0\nOverTimeLimit=0"


@asynccontextmanager
async def site(nodes: tuple[str, ...] = ("n1",), more: str = MORE) -> AsyncIterator[tuple[Slurm, Site]]:
    """A Slurm, and a folder of the account's. Not in pytest's own folders: those are root's alone."""
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "of the account's"
        folder.mkdir()
        shutil.chown(folder, ACCOUNT)
        async with slurm(Path(name), "", more, real=nodes) as real:
            yield real, Site(SlurmJobs(Runner(Place(env=real.env))), ACCOUNT, folder)


@pytest.mark.server
@pytest.mark.slow
async def test_slurm_keeps_the_contract_of_a_job_scheduler() -> None:
    async with site(("n1", "n2", "n3")) as (_, found):
        await keeps_the_contract(found)


@pytest.mark.server
@pytest.mark.slow
async def test_what_waits_in_slurm_says_why_and_nobody_touches_the_jobs_of_others() -> None:
    async with site() as (real, found):
        adapter = found.scheduler
        runs = found.work("#!/bin/sh\nsleep 600\n", resources=Resources(time=3600))
        first = await adapter.submit(runs)
        await found.until(runs, lambda seen: [job.state for job in seen] == ["running"], "it runs")
        (job,) = await found.of(runs)
        assert job.began is not None
        assert await adapter.expected(found.work("#!/bin/sh\n", resources=Resources(time=60))) == pytest.approx(
            job.began + 3600, abs=1
        )
        waits = found.work("#!/bin/sh\ntrue\n")
        await adapter.submit(waits)
        (seen,) = await found.until(waits, lambda seen: bool(seen) and bool(seen[0].reason), "it says why it waits")
        assert (seen.state, seen.reason) in (("waiting", "nothing is free that it fits on"),
                                             ("waiting", "other jobs come first"))  # fmt: skip
        (queue,) = await adapter.queues()
        assert (queue.name, queue.open, queue.default, queue.nodes) == ("all", True, True, 1)
        assert (queue.waiting, queue.free_nodes, queue.node_cores) == (1, 0, 1)
        held = found.work("#!/bin/sh\n", held=True, array=Array(last=1, at_once=1))
        ids = await adapter.submit(held)
        assert [job.id for job in await found.of(held)] == [f"{ids}_0", f"{ids}_1"]

        with pytest.raises(Denied, match="denied"):
            await adapter.cancel(OTHER, [first])
        with pytest.raises(Denied):
            await adapter.hold(OTHER, [ids])
        with pytest.raises(BadRequest, match="configuration is not available"):
            await adapter.expected(found.work("#!/bin/sh\n", resources=Resources(cores=64)))
        (job,) = await found.of(runs)
        assert job.state == "running"

        # Whoever puts another's key on a job of their own, with whatever else, is told apart by their account.
        forged = f"--comment=strata:{runs.key}\x1e\x1f\n{first}|x"
        await real.run("sbatch", "--hold", forged, "--chdir=/", "--output=/dev/null", "--wrap=true")
        assert [job.id for job in await found.look() if job.account == ACCOUNT and job.key == runs.key] == [first]

        real.stop()
        with pytest.raises(Unavailable):
            await adapter.submit(found.work("#!/bin/sh\n"))
