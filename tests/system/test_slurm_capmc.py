"""Debian's slurmctld with the plugins that speak CAPMC, run against this service over a thousand simulated nodes."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from strata.power.queue.records import QueueTold
from strata.power.queue.squeue import read as read_queue
from strata.power.telemetry.bmcs import NodeSource
from strata.power.telemetry.collector import Collector, led_nodes
from support.capmc_site import CapmcSite, capmc_site
from support.front_door import front_door

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODES = 1020
"""Of which 1000 and some are compute nodes."""
SITE_WATTS = 400_000
LEAST, MOST, IDLE = 200, 2400, 210


@contextmanager
def short_directory() -> Iterator[Path]:
    """Paths of sockets are short."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        yield Path(name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def script(path: Path, program: str, environment: dict[str, str], log: Path) -> Path:
    """The command as a scheduler finds it: a file to execute. What it was called with is written down."""
    code = f"from strata.capmc_cli.{program} import main; main()"
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    path.write_text(f'#!/bin/sh\necho "$@" >>{log}\n{words} exec {sys.executable} -c "{code}" "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Slurm:
    """One slurmctld, of whoever runs the test, with everything in a directory of its own."""

    def __init__(self, directory: Path, nids: str, more: str) -> None:
        self.directory = directory
        self.log = directory / "slurmctld.log"
        self._config = directory / "slurm.conf"
        user = pwd.getpwuid(os.getuid()).pw_name
        (directory / "state").mkdir()
        self._config.write_text(
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
SlurmdTimeout=0
SelectType=select/cons_res
ProctrackType=proctrack/pgid
MpiDefault=none
ReturnToService=2
{more}
NodeName={nids} CPUs=4 NodeAddr=127.0.0.1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""",
            encoding="utf-8",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "slurmctld is missing: install the Debian package slurmctld"
        self._process = subprocess.Popen(
            [program, "-D", "-c", "-f", str(self._config)],
            env=os.environ | {"SLURM_CONF": str(self._config)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    async def nodes(self) -> str:
        """What Slurm says of all its nodes, a line each."""
        return await self.run("scontrol", "-o", "show", "nodes")

    async def run(self, *command: str) -> str:
        """What one of its commands prints."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=os.environ | {"SLURM_CONF": str(self._config)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(60):
            return (await process.communicate())[0].decode()

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@asynccontextmanager
async def slurm(directory: Path, nids: str, more: str) -> AsyncIterator[Slurm]:
    found = Slurm(directory, nids, more)
    found.start()
    try:
        yield found
    finally:
        await asyncio.to_thread(found.stop)


async def until(what: str, holds: Callable[[], bool], slurm: Slurm, limit: float = 90.0) -> None:
    for _ in range(int(limit * 10)):
        if holds():
            return
        if slurm.ended:
            break
        await asyncio.sleep(0.1)
    pytest.fail(f"not within {limit:g} s: {what}\n{slurm.said()[-4000:]}")


def computes(site: CapmcSite) -> tuple[str, np.ndarray]:
    """The compute nodes as Slurm names them, and their uids."""
    table = site.view.nodes()
    nids = table.nids[table.compute]
    assert len(nids) >= 1000
    assert nids[-1] - nids[0] + 1 == len(nids)
    return f"nid[{nids[0]:05d}-{nids[-1]:05d}]", table.uids[table.compute]


class Meter:
    """Every other node draws little, the others all that they may: what telemetry would tell of it."""

    def __init__(self, site: CapmcSite, uids: np.ndarray) -> None:
        self._site = site
        self._uids = uids
        self._task = asyncio.create_task(self._run())
        self.most = 0.0
        """Watts that all caps together allowed, at worst, since every node had one."""
        self.all_capped = False

    async def _run(self) -> None:
        columns, joules, then = self._site.columns, self._uids * 1000.0, time.time()
        while True:
            await asyncio.sleep(0.2)
            caps, now = columns.column("cap", self._uids), time.time()
            free = ~(caps > 0)
            self.all_capped = self.all_capped or not free.any()
            if self.all_capped:
                self.most = max(self.most, float(np.where(free, MOST, caps).sum()))
            limits = np.where(free, 398.0, caps)
            joules = joules + np.where(self._uids % 2, limits, IDLE) * (now - then)
            then = now
            columns.put(self._uids, energy=joules, energy_time=now)

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def test_the_power_plugin_balances_the_caps_of_a_thousand_nodes_within_the_limit_of_the_site() -> None:
    with short_directory() as directory:
        async with capmc_site(directory, NODES) as site, front_door(site.services, directory) as front:
            names, uids = computes(site)
            calls = directory / "calls"
            capmc = script(directory / "capmc", "capmc", front.capmc("workload-manager"), calls)
            more = (
                "PowerPlugin=power/cray_aries\n"
                f"PowerParameters=capmc_path={capmc},cap_watts={SITE_WATTS},balance_interval=5\n"
                "DebugFlags=Power"
            )
            meter = Meter(site, uids)
            async with slurm(directory, names, more) as scheduler:
                await until("every node has a cap", lambda: meter.all_capped, scheduler)

                def balanced() -> bool:
                    caps = site.columns.column("cap", uids)
                    return bool(caps[uids % 2 == 0].max() < caps[uids % 2 == 1].min())

                await until("who needs power has it from who does not", balanced, scheduler)
                await meter.stop()
                assert meter.most <= SITE_WATTS
                hardware = np.array([site.machine.server.bmc(name).cap or MOST for name in site.view.names(uids)])
                assert hardware.sum() <= SITE_WATTS
                assert hardware.min() >= LEAST
                called = _calls(calls)
                for applet in ("get_power_cap_capabilities", "get_power_cap", "node_status", "get_node_energy_counter"):
                    assert applet in called
                listed = await scheduler.nodes()
                assert listed.count("NodeName=") == len(uids)
                assert "DRAIN" not in listed
                assert not re.search(r"error: .*(capmc|power_p|json)", scheduler.said(), re.IGNORECASE)


def listening(path: Path, environment: dict[str, str], heard: Path) -> Path:
    """The command again; what Slurm is told of counters is written down, a reply on a line."""
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    code = "from strata.capmc_cli.capmc import main; main()"
    path.write_text(
        f'#!/bin/sh\nout=$({words} {sys.executable} -c "{code}" "$@"); status=$?\n'
        f'[ "$1" = get_node_energy_counter ] && printf "%s" "$out" | tr -d "\\n" >>{heard} && echo >>{heard}\n'
        'printf "%s\\n" "$out"; exit $status\n',
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Kept:
    """Where samples go that nobody asks for."""

    async def append(self, batch: object) -> None:
        """Not kept."""


async def test_a_scheduler_that_balances_more_often_than_nodes_are_read_sees_no_node_without_power() -> None:
    with short_directory() as directory:
        async with capmc_site(directory, 24) as site, front_door(site.services, directory) as front:
            table = site.view.nodes()
            nids, uids = table.nids[table.compute], table.uids[table.compute]
            source = NodeSource(site.machine.bmcs)
            collector = Collector(led_nodes(site.service.controller), source, Kept(), site.columns)  # type: ignore[arg-type]
            site.columns.forget(uids)
            await collector.start()
            heard = directory / "heard"
            capmc = listening(directory / "capmc", front.capmc("workload-manager"), heard)
            more = (
                "PowerPlugin=power/cray_aries\n"
                f"PowerParameters=capmc_path={capmc},cap_watts={500 * len(nids)},balance_interval=2\n"
                "DebugFlags=Power"
            )
            try:
                async with slurm(directory, f"nid[{nids[0]:05d}-{nids[-1]:05d}]", more) as scheduler:
                    await until("nodes were read twice", lambda: collector.sweeps >= 2, scheduler)
                    begun = len(_calls(heard).splitlines())
                    await until("and twice more", lambda: collector.sweeps >= 4, scheduler)
                    replies = [json.loads(line) for line in _calls(heard).splitlines()[begun:]]
            finally:
                await collector.stop()
            asked = [{one["nid"]: one for one in reply["nodes"]} for reply in replies]
            assert len(asked) > 4, "it asks more often than nodes are read"
            assert all(reply["e"] == 0 for reply in replies)
            watts = [
                (now[nid]["energy_ctr"] - before[nid]["energy_ctr"]) / (_stamp(now[nid]) - _stamp(before[nid]))
                for before, now in pairwise(asked)
                for nid in nids.tolist()
            ]
            assert min(watts) > 0
            assert max(watts) <= MOST


def _stamp(one: dict[str, str]) -> float:
    return dt.datetime.fromisoformat(one["time"]).timestamp()


async def test_the_knl_plugin_learns_the_modes_and_drains_no_node_that_exists() -> None:
    with short_directory() as directory:
        labels = {"mcdram": "16384MB", "dram": "96GB"}
        async with capmc_site(directory, NODES, labels=labels) as site, front_door(site.services, directory) as front:
            names, uids = computes(site)
            calls = directory / "calls"
            capmc = script(directory / "capmc", "capmc", front.capmc("workload-manager"), calls)
            cnselect = script(directory / "cnselect", "cnselect", front.capmc("workload-manager"), calls)
            (directory / "knl_cray.conf").write_text(
                f"CapmcPath={capmc}\nCnselectPath={cnselect}\nCapmcTimeout=10000\n"
                "AllowMCDRAM=cache,split,flat,equal\nAllowNUMA=a2a,snc2,snc4,hemi,quad\n"
                "DefaultMCDRAM=cache\nDefaultNUMA=a2a\n",
                encoding="utf-8",
            )
            first = site.view.nodes().nids[site.view.nodes().compute][:3]
            reply = await site.ask("set_mcdram_cfg", "-m", "flat", "-n", ",".join(map(str, first.tolist())))
            assert reply["e"] == 0
            # The plugin wants power saving to be there; nothing is idle long enough for it to act.
            saving = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=86400\nResumeTimeout=600"
            more = f"NodeFeaturesPlugins=node_features/knl_cray\nDebugFlags=NodeFeatures\n{saving}"
            async with slurm(directory, names, more) as scheduler:
                await until("it asked everything", lambda: "numa_cfg.eq" in _calls(calls), scheduler)
                await until(
                    "it knows their features", lambda: "update_node_features ran" in scheduler.said(), scheduler
                )
                listed = await scheduler.nodes()
                assert listed.count("NodeName=") == len(uids)
                features = re.findall(r"AvailableFeatures=(\S+)", listed)
                assert len(features) == len(uids)
                assert all({"cache", "flat", "quad"} <= set(one.split(",")) for one in features), features[:3]
                assert "DRAIN" not in listed
                assert "not found by capmc" not in scheduler.said()


async def test_squeue_tells_which_jobs_wait_in_which_partition_and_for_how_long() -> None:
    with short_directory() as directory:
        async with slurm(directory, "nid[00001-00008]", "PartitionName=night Nodes=ALL") as scheduler:
            await until("it answers", lambda: "Running as primary controller" in scheduler.said(), scheduler)
            for options in (("-N3", "-t30"), ("-N2", "-pnight", "--nice"), ("-N1", "--hold")):
                submitted = await scheduler.run("sbatch", *options, "-o", "/dev/null", "--wrap", "true")
                assert "Submitted batch job" in submitted, submitted
            found = read_queue(await scheduler.run("squeue", "--json"))
            waiting = [(one["nodes"], one["queue"], one["time_limit"]) for one in found.body["waiting"]]
            assert waiting == [(3, "all", 1800.0), (2, "night", None)]
            assert found.not_yet == 1, "a job that is held does not wait for nodes"
            msgspec.convert(found.body, QueueTold)


def _calls(path: Path) -> str:
    return path.read_text() if path.exists() else ""
