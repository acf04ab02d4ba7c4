"""A real slurmdbd over a real MariaDB, by the files that Strata makes: what became of jobs is known to ``sacct``."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strata.cli.up import accounting
from strata.platform.slurm.folder import compare, write
from strata.schedulers.slurm.conf import SLURMDBD_CONF, Accounting, Cluster, Hardware, Nodes, Partition, files
from support.slurm import Slurm, free_port, own_settings

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODE = "n1"


def described(directory: Path) -> Cluster:
    port = str(free_port())
    said = {"CPUs": "1", "NodeHostname": socket.gethostname(), "NodeAddr": "127.0.0.1", "Port": str(free_port())}
    return Cluster(
        name="main",
        controllers=("localhost(127.0.0.1)",),
        nodes=(Nodes(names=(NODE,), hardware=Hardware(), settings=said),),
        partitions=(Partition(name="all", names=(NODE,), settings={"Default": "YES"}),),
        accounting=Accounting(
            host="localhost",
            address="127.0.0.1",
            secret=str(directory / "db" / accounting.SECRET),
            settings={"DbdPort": port, "LogFile": f"{directory}/slurmdbd.log", "PidFile": f"{directory}/slurmdbd.pid"},
        ),
        settings=own_settings(directory) | {"AccountingStoragePort": port},
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


async def test_sacct_knows_what_became_of_jobs_and_no_file_that_is_shown_has_the_password() -> None:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        directory = Path(name)
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
                good = (await scheduler.run("sbatch", "-o", "/dev/null", "--parsable", "--wrap", "true")).strip()
                bad = (await scheduler.run("sbatch", "-o", "/dev/null", "--parsable", "--wrap", "exit 3")).strip()

                async def known() -> bool:
                    said = await scheduler.run("sacct", "-n", "-P", "-X", "-o", "jobid,state,exitcode")
                    return set(said.split()) == {f"{good}|COMPLETED|0:0", f"{bad}|FAILED|3:0"}

                await until("both jobs are there", known, directory)
            finally:
                await asyncio.to_thread(scheduler.stop_nodes)
                await asyncio.to_thread(scheduler.stop)


async def _succeeds(scheduler: Slurm) -> bool:
    said = await scheduler.run("sacctmgr", "-n", "show", "cluster")
    return "error" not in said.lower()
