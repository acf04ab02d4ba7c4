"""A real Slurm over simulated hardware that it switches: it saves power, by Strata's programs and by CAPMC; and
rollouts wait for the end of its jobs, or for its next reboot of a node."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from strata.core.host.private_file import write_private
from strata.core.units import Seconds
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.records import TokenRequest
from strata.platform.rollouts.records import RolloutSpec, When
from strata.platform.rollouts.service import RolloutService
from strata.platform.settings import PlatformSettings
from strata.platform.slurm.service import SlurmService
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService
from strata.schedulers.slurm.conf import Cluster, Hardware, Nodes, Partition, Saving, files
from strata.virtual.fleet.faults import Timing
from support.capmc_site import CapmcSite, capmc_site
from support.front_door import OpenDoor, front_door
from support.slurm import Slurm, free_port, own_settings

pytestmark = [pytest.mark.server, pytest.mark.slow]

OURS = ("n00001", "n00002")
GOAL = {"power": "on", "os": "up", "image": "v1", "personality": "active", "config": "r1", "workload": "in"}


class Saver:
    """Two nodes of a simulated machine, the first of which Slurm switches by CAPMC, the other by Strata's programs."""

    def __init__(self, site: CapmcSite, scheduler: Slurm) -> None:
        self.machine = site.machine
        self.fleet = site.service
        self.slurm = scheduler
        self.names = {name: f"nid{self.fleet.registry.node(name).nid:05d}" for name in OURS}

    async def follow(self) -> None:
        """What a node's personality does: slurmd runs as long as it does, and says that the node has booted."""
        while True:
            for name, called in self.names.items():
                up = self.has(name, "personality") == "active"
                if up and not self.slurm.runs_node(called):
                    self.slurm.start_node(called, "-b")
                elif not up and self.slurm.runs_node(called):
                    await asyncio.to_thread(self.slurm.stop_node, called)
            await asyncio.sleep(0.1)

    def has(self, name: str, variable: str) -> str | None:
        """What is true of the node."""
        at = self.machine.nodes.index[name]
        return self.machine.nodes.truth(
            variable, self.machine.nodes.all[at : at + 1], self.machine.server.clock()
        ).values()[0]

    def done_to(self, name: str, mutation: str) -> int:
        """How often something was done to the node in truth."""
        effects = self.machine.nodes.effects
        rows = [(effects.mutations[row["mutation"]], self.machine.nodes.names[row["node"]]) for row in effects.rows]
        return rows.count((mutation, name))

    def ready(self, name: str) -> bool:
        return self.fleet.view.state(self.fleet.registry.index_of(name)) == "ready"

    def fact(self, name: str, variable: str) -> str:
        return self.fleet.view.node(self.fleet.registry.index_of(name)).facts[variable].value

    async def until(self, what: str, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        for _ in range(900):
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.1)
        told = [await self.fleet.why(LOCAL_ADMIN, name) for name in OURS]
        said = (self.slurm.directory / "said").read_text(), await self.states()
        pytest.fail(f"not so: {what}\n{told}\n{said}\n{self.slurm.said()[-3000:]}")

    async def wait_idle(self) -> None:
        """Until both are ready, and Slurm has nothing for them to do."""
        await self.until("both are ready", lambda: all(map(self.ready, OURS)))
        for called in self.names.values():
            await self.slurm.until_state(called, "idle")

    async def states(self) -> set[str]:
        return {await self.slurm.state(called) for called in self.names.values()}


def write_programs(directory: Path, front: OpenDoor, first: str, token: str) -> Path:
    """Slurm has one program for all nodes: what is for the first node is said by CAPMC."""
    folder = directory / "bin"
    folder.mkdir()
    (directory / "said").touch()
    write_private(directory / "token", token.encode())
    given = {"url": front.url, "ca": str(front.ca), "token_file": str(directory / "token"), "workload": "main"}
    (directory / "slurm.json").write_bytes(msgspec.json.encode({**given, "log": str(directory / "programs.log")}))
    capmc = " ".join(f"{key}={value}" for key, value in front.capmc("workload-manager").items())
    for action, call in (("resume", "node_on"), ("suspend", "node_off"), ("reboot", "node_reinit")):
        program = folder / f"strata-slurm-{action}"
        program.write_text(
            f"""#!/bin/sh
for node in $(SLURM_CONF={directory}/slurm.conf scontrol show hostnames "$1"); do
  if [ "$node" = "{first}" ]; then
    {capmc} {sys.executable} -c 'from strata.capmc_cli.capmc import main; main()' {call} -n {int(first[3:])}
  else
    STRATA_SLURM_CONFIG={directory}/slurm.json \\
      {sys.executable} -c 'from strata.slurm_cli.power import {action}; {action}()' "$node"
  fi
done >>{directory}/said 2>&1
""",
            encoding="utf-8",
        )
        program.chmod(0o755)
    return folder


def write_conf(directory: Path, names: list[str], programs: Path, idle: int) -> None:
    def node(name: str) -> Nodes:
        said = {"CPUs": "1", "NodeHostname": socket.gethostname(), "NodeAddr": "127.0.0.1", "Port": str(free_port())}
        return Nodes(names=(name,), hardware=Hardware(), settings=said)

    cluster = Cluster(
        name="main",
        controllers=("localhost(127.0.0.1)",),
        nodes=tuple(map(node, names)),
        partitions=(Partition(name="all", names=tuple(names), settings={"Default": "YES"}),),
        saving=Saving(after=idle, off=8, on=600),
        programs=str(programs),
        settings=own_settings(directory)
        | {"SlurmctldParameters": "power_save_interval=1", "SlurmctldDebug": "verbose"},
    )
    for name, text in files(cluster).items():
        (directory / name).write_text(text, encoding="utf-8")


@asynccontextmanager
async def saver_of(idle: int) -> AsyncIterator[Saver]:
    """A machine whose Slurm switches nodes off that were idle for so many seconds; both are Slurm's, and ready."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        directory = Path(name)
        async with capmc_site(directory, 2) as site, front_door(site.services, directory) as front:
            fleet = site.service
            fleet.settings = msgspec.structs.replace(
                fleet.settings, platform=PlatformSettings(workload_poll=Seconds(1))
            )
            workload = fleet.put(WorkloadService(fleet))
            await workload.start()
            fleet.drive(workload.driver)
            site.services.put(SlurmService(fleet))
            scheduler = Slurm(directory, "")
            saver = Saver(site, scheduler)
            called = list(saver.names.values())
            minted = await site.services.get(Authenticator).mint(
                LOCAL_ADMIN, TokenRequest(role="workload-manager", ttl=3600)
            )
            write_conf(directory, called, write_programs(directory, front, called[0], minted.token), idle)
            scheduler.start()
            tasks = [asyncio.create_task(saver.follow()), asyncio.create_task(workload.poll())]
            try:
                spec = WorkloadSpec(kind="slurm", env=scheduler.env, names=saver.names)
                await scheduler.until_state(called[0], "idle")
                await workload.connect(LOCAL_ADMIN, "main", spec)
                await fleet.edits.set_desires(fleet.registry.select(",".join(OURS)), GOAL, (), "test")
                yield saver
            finally:
                for task in tasks:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                await asyncio.to_thread(scheduler.stop_nodes)
                await asyncio.to_thread(scheduler.stop)
                await workload.stop()


async def test_idle_nodes_go_off_and_a_job_brings_them_back_and_runs_through_capmc_and_through_our_programs() -> None:
    async with saver_of(idle=4) as saver:
        scheduler, called, directory = saver.slurm, list(saver.names.values()), saver.slurm.directory
        await saver.until("they are off", lambda: not any(saver.machine.on(node) for node in OURS))
        await saver.until("Slurm knows", lambda: _are(saver, "idle+powered_down"))
        log = directory / "programs.log"
        suspended = f"suspend {called[1]}: {OURS[1]}"
        await saver.until("the program says so", lambda: log.exists() and suspended in log.read_text())
        await saver.until("both are out", lambda: {saver.fact(node, "workload") for node in OURS} == {"out"})
        # Slurm reckons in whole seconds: a node that boots within one may seem to have booted before it was asked to.
        saver.machine.nodes.timing = Timing(scale=0.1)

        jobs = await asyncio.gather(*(scheduler.start_job(node) for node in called))
        assert all(saver.machine.on(node) for node in OURS)
        # Slurm's token switches off what Slurm has switched off, and nothing else.
        assert await asyncio.to_thread(_suspend, directory, called[1]) == 1
        assert f"not {OURS[1]}: job {jobs[1]} runs there" in log.read_text().splitlines()[-1]
        for node in called:
            scheduler.release_job(node)
        await saver.until("both jobs came to their end", lambda: all(map(scheduler.ended_well, called)))
        assert "DRAIN" not in scheduler.said()


@asynccontextmanager
async def staged(saver: Saver, when: When) -> AsyncIterator[RolloutService]:
    """A rollout of another image to both nodes, which waits for that."""
    rollouts = RolloutService(saver.fleet)
    await rollouts.start()
    await rollouts.conductor.start()
    try:
        wide = {"waves": ("100%",), "max_unavailable": "100%", "soak": 0.0}
        spec = msgspec.convert({"select": ",".join(OURS), "set": {"image": "v2"}, "when": when, **wide}, RolloutSpec)
        await rollouts.begin(LOCAL_ADMIN, when, spec)
        yield rollouts
    finally:
        await rollouts.stop()


async def test_a_change_at_job_end_leaves_a_node_to_its_job_and_is_made_once_that_has_ended() -> None:
    async with saver_of(idle=86400) as saver:
        busy, idle = OURS
        called = saver.names[busy]
        await saver.wait_idle()
        await saver.slurm.start_job(called)
        async with staged(saver, "job-end") as rollouts:
            await saver.until("the idle node has it", lambda: saver.ready(idle) and saver.has(idle, "image") == "v2")
            waits = rollouts.conductor.waits
            await saver.until("the other is waited for", lambda: "the jobs on 1 node" in waits.get("job-end", ""))
            assert await saver.slurm.state(called) == "allocated", "it is not even drained"
            assert saver.has(busy, "image") == "v1"

            saver.slurm.release_job(called)

            await saver.until("both have it", lambda: rollouts.kept("job-end").state == "done")
            assert saver.slurm.ended_well(called)
            assert saver.has(busy, "image") == "v2"
            await saver.wait_idle()


async def test_a_change_for_the_next_reboot_comes_with_the_reboot_that_slurm_makes_when_the_job_has_ended() -> None:
    async with saver_of(idle=86400) as saver:
        first, second = OURS  # which CAPMC restarts, and Strata's program
        await saver.wait_idle()
        saver.machine.nodes.timing = Timing(scale=0.1)  # a boot lasts longer than the pause between two looks
        async with staged(saver, "next-reboot") as rollouts:
            for node in saver.names.values():
                await saver.slurm.start_job(node)
                await saver.slurm.run("scontrol", "reboot", node)
            await saver.until("it waits", lambda: "next reboot of" in rollouts.conductor.waits.get("next-reboot", ""))
            assert await saver.states() == {"allocated+reboot_requested"}
            assert {saver.has(node, "image") for node in OURS} == {"v1"}

            saver.slurm.release_job(saver.names[second])

            await saver.until("one has it", lambda: saver.ready(second) and saver.has(second, "image") == "v2")
            assert saver.slurm.ended_well(saver.names[second])
            assert (saver.has(first, "image"), rollouts.kept("next-reboot").state) == ("v1", "running")

            saver.slurm.release_job(saver.names[first])

            await saver.until("both have it", lambda: rollouts.kept("next-reboot").state == "done")
            assert saver.slurm.ended_well(saver.names[first])
            await saver.wait_idle()
            assert {saver.done_to(node, "switch-image") for node in OURS} == {0}, "they came up with it"
            assert "DRAIN" not in saver.slurm.said()


async def _are(saver: Saver, state: str) -> bool:
    return await saver.states() == {state}


def _suspend(directory: Path, name: str) -> int:
    code = "from strata.slurm_cli.power import suspend; suspend()"
    env = os.environ | {"STRATA_SLURM_CONFIG": str(directory / "slurm.json")}
    return subprocess.run([sys.executable, "-c", code, name], env=env, check=False, timeout=60).returncode
