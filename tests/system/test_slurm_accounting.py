"""A real slurmdbd over a real MariaDB, by the files that Strata makes: what became of jobs is known to ``sacct``."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from schedulers.test_job_scripts import work
from strata.cli.up import accounting
from strata.platform.slurm.folder import compare, write
from strata.schedulers.jobs import Array
from strata.schedulers.runner import Place, Runner
from strata.schedulers.slurm.conf import SLURMDBD_CONF, AccountingSpec, Cluster, Hardware, Nodes, Partition, files
from strata.schedulers.slurm.jobs import SlurmJobs
from support.slurm import Slurm, free_port, own_settings

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODE = "n1"
NOWHERE = {"workdir": "/", "stdout": "/dev/null", "stderr": None}


def described(directory: Path) -> Cluster:
    port = str(free_port())
    said = {"CPUs": "1", "NodeHostname": socket.gethostname(), "NodeAddr": "127.0.0.1", "Port": str(free_port())}
    return Cluster(
        name="main",
        controllers=("localhost(127.0.0.1)",),
        nodes=(Nodes(names=(NODE,), hardware=Hardware(), settings=said),),
        partitions=(Partition(name="all", names=(NODE,), settings={"Default": "YES"}),),
        accounting=AccountingSpec(
            host="localhost",
            address="127.0.0.1",
            secret=str(directory / "db" / accounting.SECRET),
            settings={"DbdPort": port, "LogFile": f"{directory}/slurmdbd.log", "PidFile": f"{directory}/slurmdbd.pid"},
        ),
        # What has ended is soon forgotten by slurmctld: from then on, the accounting alone knows.
        settings=own_settings(directory) | {"AccountingStoragePort": port, "MinJobAge": "2"},
    )


@contextmanager
def running(directory: Path, name: str, command: list[str]) -> Iterator[None]:
    with (directory / f"{name}.out").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


async def until(what: str, holds: Callable[[], Awaitable[bool]], directory: Path) -> None:
    for _ in range(1200):
        if await holds():
            return
        await asyncio.sleep(0.1)
    logs = "\n".join(f"{path}: {path.read_text(errors='replace')[-2000:]}" for path in directory.glob("*.[lo][ou][gt]"))
    pytest.fail(f"not so: {what}\n{logs}")


async def test_sacct_knows_what_became_of_jobs_that_slurmctld_forgot_and_no_file_shown_has_the_password() -> None:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # accounts of jobs read the configuration
        database, scheduler = directory / "db", Slurm(directory, "")
        made = files(described(directory))
        write(directory, made, compare(directory, made).changed)
        assert (directory / SLURMDBD_CONF).stat().st_mode & 0o777 == 0o600
        await asyncio.to_thread(accounting.make, database)
        password = (database / accounting.SECRET).read_text().partition("=")[2].strip()
        assert password and not [text for text in made.values() if password in text]
        with (
            running(directory, "mariadbd", accounting.mariadbd(database)),
            running(directory, "slurmdbd", accounting.slurmdbd(database, scheduler.config)),
        ):

            async def answers() -> bool:
                return "main" in await scheduler.run("sacctmgr", "-n", "-i", "show", "cluster", "format=cluster")

            await until("slurmdbd answers", lambda: _succeeds(scheduler), directory)
            scheduler.start()
            try:
                await until("the cluster has registered", answers, directory)
                scheduler.start_node(NODE, "-b")
                await scheduler.until_state(NODE, "idle")
                began = time.time()
                adapter = SlurmJobs(Runner(Place(env=scheduler.env)))
                account = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"

                async def submitted(key: str, script: str, **more: Any) -> str:
                    asked = work(key=key, script=f"#!/bin/sh\n{script}\n", account=account, **NOWHERE, **more)
                    return await adapter.submit(asked)

                good, bad = await submitted("good", "true"), await submitted("bad", "exit 3")
                killed = await submitted("killed", "kill -9 $$")
                array = await submitted("array", '[ "$STRATA_ARRAY_INDEX" = 4 ]', array=Array(first=4, last=5))
                ended = await submitted("ended", "exec sleep 600")
                await until("it runs", lambda: _runs(adapter, ended), directory)
                await adapter.cancel(account, [ended])

                async def forgotten() -> bool:
                    return not (await scheduler.run("squeue", "--states=all", "--noheader")).strip()

                await until("slurmctld knows of no job any more", forgotten, directory)

                async def known() -> bool:
                    return len(await adapter.jobs(began)) >= 6

                await until("the accounting has all of them", known, directory)
                # An adapter that was not there when they ended: it has seen nothing.
                found = await SlurmJobs(Runner(Place(env=scheduler.env))).jobs(began)
                told = {job.id: (job.key, job.outcome, job.status, job.signal, job.index) for job in found}
                assert told == {
                    good: ("good", "done", 0, None, None),
                    bad: ("bad", "failed", 3, None, None),
                    killed: ("killed", "failed", None, 9, None),
                    f"{array}_4": ("array", "done", 0, None, 4),
                    f"{array}_5": ("array", "failed", 1, None, 5),
                    ended: ("ended", "cancelled", None, told[ended][3], None),
                }
                assert {job.account for job in found} == {account}
                assert all(job.began and job.ended and job.nodes == (NODE,) for job in found)
                assert await SlurmJobs(Runner(Place(env=scheduler.env))).jobs(time.time() + 3600) == []
            finally:
                await asyncio.to_thread(scheduler.stop_nodes)
                await asyncio.to_thread(scheduler.stop)


async def _runs(adapter: SlurmJobs, ident: str) -> bool:
    return [job.state for job in await adapter.jobs(time.time()) if job.id == ident] == ["running"]


async def _succeeds(scheduler: Slurm) -> bool:
    said = await scheduler.run("sacctmgr", "-n", "show", "cluster")
    return "error" not in said.lower()
