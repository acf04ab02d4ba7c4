"""Jobs in Slurm, against a real one: slurmctld, slurmds, an account that is not root."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Denied, Unavailable
from strata.schedulers.jobs import Accelerators, Array, Resources
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


@pytest.mark.server
@pytest.mark.slow
async def test_accelerators_reservations_permissions_and_failed_nodes_of_slurm() -> None:
    group = grp.getgrgid(pwd.getpwnam(ACCOUNT).pw_gid).gr_name
    more = f"""{MORE}
GresTypes=gpu
PartitionName=theirs Nodes=ALL AllowGroups={group} MaxTime=1:00:00 MaxNodes=1
PartitionName=closed Nodes=ALL State=DOWN
"""
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        folder = directory / "jobs"
        folder.mkdir()
        shutil.chown(folder, ACCOUNT)
        real = Slurm(directory, "", more, real=("n1",))
        for number in range(2):
            os.mknod(directory / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (directory / "gres.conf").write_text(f"Name=gpu Type=h200 File={directory}/gpu[0-1]\n", encoding="utf-8")
        text = real.config.read_text(encoding="utf-8")
        real.config.write_text(text.replace("NodeName=n1 ", "NodeName=n1 Gres=gpu:h200:2 "), encoding="utf-8")
        real.start()
        try:
            real.start_nodes()
            await real.until_state("n1", "idle")
            found = Site(SlurmJobs(Runner(Place(env=real.env))), ACCOUNT, folder)
            await shown_by_slurm(real, found)
        finally:
            await asyncio.to_thread(real.stop_nodes)
            await asyncio.to_thread(real.stop)


async def shown_by_slurm(real: Slurm, found: Site) -> None:
    queues = {queue.name: queue for queue in await found.scheduler.queues()}
    assert queues["all"].accelerators == {"h200": 2}
    theirs = queues["theirs"]
    assert theirs.accounts is not None and ACCOUNT in theirs.accounts and OTHER not in theirs.accounts
    assert (theirs.most_time, theirs.most_nodes, queues["closed"].open) == (3600, 1, False)

    def asks(count: int) -> Resources:
        return Resources(accelerators=Accelerators(count=count, type="h200"))

    given, _ = await found.done("#!/bin/sh\nscontrol show job $SLURM_JOB_ID | grep -c gpu:h200:2\n", resources=asks(2))
    assert found.out(given).strip().isdigit() and found.out(given) != "0\n"
    with pytest.raises(BadRequest):
        await found.scheduler.submit(found.work("#!/bin/sh\n", resources=asks(3)))

    await real.run(
        *("scontrol", "create", "reservation", "ReservationName=ours", "StartTime=now", "Duration=60"),
        *("Nodes=n1", f"Users={ACCOUNT}"),
    )
    outside = found.work("#!/bin/sh\ntrue\n")
    await found.scheduler.submit(outside)
    _, (inside,) = await found.done("#!/bin/sh\ntrue\n", reservation="ours", resources=Resources(time=60))
    assert inside.outcome == "done"
    (waits,) = await found.of(outside)
    assert (waits.state, bool(waits.reason)) == ("waiting", True)
    await found.scheduler.cancel(ACCOUNT, [waits.id])

    runs = found.work("#!/bin/sh\nsleep 600\n", reservation="ours", resources=Resources(time=60))
    await found.scheduler.submit(runs)
    await found.until(runs, lambda seen: [job.state for job in seen] == ["running"], "it runs")
    real.stop_node("n1")
    await real.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=it is gone")
    (lost,) = await found.ended(runs)
    assert (lost.outcome, lost.reason) == ("node-failed", "a node that it ran on failed")
