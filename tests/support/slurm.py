"""A real Slurm in a directory of its own: slurmctld, and a slurmd for each node that is there, on this machine."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.api import nginx

REAPER = ("sh", "-c", '"$@" & wait', "reaper")
"""Takes away processes whose parents are gone, as the first process has to: daemons wait for them to be gone."""


def free_port() -> int:
    return nginx.free_port("127.0.0.1")


def own_settings(directory: Path) -> dict[str, str]:
    """What a Slurm of whoever runs the test needs beside what Strata makes."""
    return {
        "SlurmUser": pwd.getpwuid(os.getuid()).pw_name,
        "AuthType": "auth/none",
        "CredType": "cred/none",
        "SlurmctldPort": str(free_port()),
        "SlurmdPort": str(free_port()),
        "StateSaveLocation": f"{directory}/state",
        "SlurmctldPidFile": f"{directory}/slurmctld.pid",
        "SlurmctldLogFile": f"{directory}/slurmctld.log",
        "SlurmdPidFile": f"{directory}/slurmd.%n.pid",
        "SlurmdLogFile": f"{directory}/slurmd.%n.log",
        "SlurmdSpoolDir": f"{directory}/spool.%n",
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
    }


class Slurm:
    """One cluster of whoever runs the test. Its nodes have slurmds once ``start_nodes`` was called."""

    def __init__(self, directory: Path, nodes: str, more: str = "", *, real: Sequence[str] = (), cpus: int = 1) -> None:
        """``nodes``: a hostlist of nodes that are not there. ``real``: nodes that may get a slurmd; each is said to
        have ``cpus``, whatever this machine has. ``more``: lines of the configuration."""
        self.directory = directory
        self.log = directory / "slurmctld.log"
        self.config = directory / "slurm.conf"
        self.env = {"SLURM_CONF": str(self.config)}
        self._real = real
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        user = pwd.getpwuid(os.getuid()).pw_name
        (directory / "state").mkdir()
        unreal = [f"NodeName={nodes} CPUs=4 NodeAddr=127.0.0.1 State=UNKNOWN"] if nodes else []
        there = [
            f"NodeName={name} CPUs={cpus} NodeAddr=127.0.0.1 NodeHostname={socket.gethostname()} Port={free_port()}"
            for name in real
        ]
        lines = "\n".join((more, *unreal, *there))
        self.config.write_text(
            f"""ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={self.log}
SlurmctldDebug=debug
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmdSpoolDir={directory}/spool.%n
SlurmdLogFile={directory}/slurmd.%n.log
SlurmdTimeout=0
MessageTimeout=2
SelectType=select/cons_res
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=1
SlurmdParameters=config_overrides
{lines}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""",
            encoding="utf-8",
        )

    def use(self, config: Path) -> None:
        """Go by another file."""
        self.config = config
        self.env = {"SLURM_CONF": str(config)}

    def start(self) -> None:
        program = shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "slurmctld is missing: install the Debian package slurmctld"
        self._process = subprocess.Popen(
            [program, "-D", "-c", "-f", str(self.config)]
            if not self._kept
            else [program, "-D", "-f", str(self.config)],
            env=os.environ | self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def _kept(self) -> bool:
        """Whether it ran before: then it goes on from what it had saved."""
        return any((self.directory / "state").iterdir())

    def start_nodes(self) -> None:
        """A slurmd for each real node, in a PID namespace: whatever it started ends with it."""
        for name in self._real:
            self.start_node(name)

    def start_node(self, name: str, *options: str) -> None:
        """One of them."""
        (self.directory / f"spool.{name}").mkdir(exist_ok=True)
        self._nodes[name] = subprocess.Popen(
            ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", *REAPER, "slurmd", "-D", "-N", name,
             "-f", str(self.config), *options],
            env=os.environ | self.env | {"PATH": f"{os.environ['PATH']}:/usr/sbin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def stop_node(self, name: str) -> None:
        """As if its power were cut."""
        process = self._nodes.pop(name)
        process.kill()
        process.wait()

    def runs_node(self, name: str) -> bool:
        """Whether its slurmd runs; it ends at once where somebody else has its port."""
        return name in self._nodes and self._nodes[name].poll() is None

    def stop(self) -> None:
        """End slurmctld; jobs go on."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def stop_nodes(self) -> None:
        for name in list(self._nodes):
            self.stop_node(name)

    async def nodes(self) -> str:
        """What Slurm says of all its nodes, a line each."""
        return await self.run("scontrol", "-o", "show", "nodes")

    async def run(self, *command: str) -> str:
        """What one of its commands prints."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=os.environ | self.env,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(60):
            return (await process.communicate())[0].decode()

    async def state(self, node: str) -> str:
        """``idle+drain``, say."""
        return (await self.run("sinfo", "-h", "-a", "-n", node, "-O", "StateComplete:")).strip()

    async def until_state(self, node: str, *wanted: str) -> None:
        """Wait until a node has one of these states."""
        said = ""
        for _ in range(600):
            if (said := await self.state(node)) in wanted:
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"{node} is {said}, not {wanted}\n{self.said()[-4000:]}")

    async def start_job(self, node: str) -> str:
        """A job that runs on a node until it is released: its id."""
        gate = self.directory / f"gate.{node}"
        wait = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo whole > {gate}.done"
        submitted = await self.run("sbatch", "-w", node, "-o", "/dev/null", "--parsable", "--wrap", wait)
        job = submitted.strip()
        assert job.isdigit(), submitted
        for _ in range(600):
            if (await self.run("squeue", "-h", "-j", job, "-o", "%T")).strip() == "RUNNING":
                return job
            await asyncio.sleep(0.1)
        programs = [
            path.read_text() for path in (self.directory / "said", self.directory / "programs.log") if path.exists()
        ]
        pytest.fail(f"job {job} does not start\n{programs}\n{self.said()[-4000:]}")

    def release_job(self, node: str) -> None:
        """Let the job on a node come to its end."""
        (self.directory / f"gate.{node}").touch()

    def ended_well(self, node: str) -> bool:
        """Whether the job on a node came to its end by itself."""
        return (self.directory / f"gate.{node}.done").exists()

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


async def until(what: str, holds: Callable[[], bool], slurm: Slurm, limit: float = 90.0) -> None:
    for _ in range(int(limit * 10)):
        if holds():
            return
        if slurm.ended:
            break
        await asyncio.sleep(0.1)
    pytest.fail(f"not within {limit:g} s: {what}\n{slurm.said()[-4000:]}")


@asynccontextmanager
async def slurm(
    directory: Path, nodes: str, more: str = "", *, real: Sequence[str] = (), cpus: int = 1
) -> AsyncIterator[Slurm]:
    """Started; with ``real`` nodes, they are idle."""
    found = Slurm(directory, nodes, more, real=real, cpus=cpus)
    found.start()
    try:
        if real:
            found.start_nodes()
            for node in real:
                await found.until_state(node, "idle")
        yield found
    finally:
        await asyncio.to_thread(found.stop_nodes)
        await asyncio.to_thread(found.stop)
