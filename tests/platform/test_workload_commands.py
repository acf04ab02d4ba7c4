"""A whole controller and a real Slurm: ``strata workload`` from one command to the next, and what stays."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.docs_support import taken_from_pages
from strata.core.node import Node
from strata.core.units import Seconds
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.alarm import Alarm
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.batches import batch_of
from strata.fleet.settings import ListenSettings
from strata.platform.settings import PlatformSettings
from strata.platform.workload.service import WorkloadService
from support.commands import Ended, strata
from support.grid_engine import grid_engine
from support.slurm import Slurm, slurm, until

pytestmark = [pytest.mark.server, pytest.mark.slow]


class Site:
    def __init__(self, directory: Path, fleet: Fleet) -> None:
        self.fleet = fleet
        self._directory = directory

    async def strata(self, *words: str) -> Ended:
        return await strata(self._directory, *words)

    async def json(self, *words: str) -> Any:
        ended = await self.strata(*words, "--json")
        assert ended.code == 0, ended
        return json.loads(ended.out)

    def fact(self, name: str) -> tuple[str, str]:
        found = self.fleet.view.node(self.fleet.registry.index_of(name)).facts["workload"]
        return found.value, found.source


@asynccontextmanager
async def controller(directory: Path) -> AsyncIterator[Site]:
    settings = Settings(
        state_dir=directory,
        controller_id="c1",
        layers=("hardware", "provisioning", "platform"),
        listen=ListenSettings(tls=False),
        platform=PlatformSettings(workload_poll=Seconds(1)),
    )
    async with running(settings) as fleet:
        yield Site(directory, fleet)


@pytest.fixture
async def cluster() -> AsyncIterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        # Down, and not unknown: nobody is there who could report.
        async with slurm(Path(name), "", "NodeName=nid[1-4],login1 CPUs=1 NodeAddr=127.0.0.1 State=DOWN") as found:
            await until("it answers", lambda: "Running as primary controller" in found.said(), found)
            yield found


async def become(what: str, holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"not within a minute: {what}")


async def test_a_site_connects_its_slurm_in_one_command_and_it_is_the_source_of_facts(
    cluster: Slurm, tmp_path: Path
) -> None:
    alarms: list[Alarm] = []
    env = f"SLURM_CONF={cluster.config}"

    def take(alarm: Alarm) -> None:
        if alarm.kind == "workload-manager":  # nodes without a BMC are somebody else's trouble
            alarms.append(alarm)

    async with controller(tmp_path) as site:
        site.fleet.alarms.append(take)
        await site.fleet.edits.create_nodes([Node(name=f"n{n}", uid=0) for n in range(1, 6)], "test")
        connected = await site.strata("workload", "connect", "slurm", "--env", env, "--map", "n[1-4]=nid[1-4]")
        assert connected.out == "connected slurm slurm: it knows 4 nodes of ours\n", connected
        assert "It has nodes that Strata does not know: login1" in connected.err
        assert "none of its jobs run there: n5" in connected.err
        await become("n1 is in, by Slurm's word", lambda: site.fact("n1") == ("in", "slurm slurm"))
        await become("n5 is nobody's", lambda: site.fact("n5")[0] == "out")

        await cluster.run("scontrol", "update", "NodeName=nid2", "State=DRAIN", "Reason=bad DIMM")
        await become("n2 is out", lambda: site.fact("n2") == ("out", "slurm slurm"))
        rows = {row["node"]: row for row in await site.json("workload", "nodes", "slurm", "n[1-5]")}
        assert set(rows) == {"n1", "n2", "n3", "n4"}
        drained = rows["n2"]
        assert (drained["called"], drained["workload"], drained["reason"]) == ("nid2", "out", "bad DIMM")
        assert (drained["ours"], drained["by"]) == (False, "root")
        (listed,) = await site.json("workload", "list")
        assert (listed["answers"], listed["nodes"], listed["drained"]) == (True, 4, 1)
        assert (await site.strata("node", "set", "n2", "workload=in")).code == 0
        why = await site.strata("node", "why", "n2")
        assert "slurm slurm says down+drain" in why.out and ": bad DIMM (root)" in why.out
        assert "bad DIMM" in (await site.strata("workload", "nodes", "slurm", "n2")).out
        assert "1 drained" in (await site.strata("workload", "show", "slurm")).out
        audited = await site.strata("audit", "list", "--limit", "5")
        assert "workload.connect" in audited.out

        unlike = await site.strata("workload", "connect", "slurm", "--name", "again", "--env", env)
        assert unlike.code != 0 and "it knows none of our nodes; its own are login1,nid[1-4]" in unlike.err
        wrong = await site.strata("workload", "connect", "slurm", "--env", "LD_PRELOAD=/tmp/x.so")
        assert wrong.code != 0 and "LD_PRELOAD cannot be set" in wrong.err
        option = await site.strata("workload", "connect", "slurm", "--on=-oProxyCommand=reboot")
        assert option.code != 0

    async with controller(tmp_path) as site:
        site.fleet.alarms.append(take)
        await become("it is connected still", lambda: site.fact("n2") == ("out", "slurm slurm"))
        await asyncio.to_thread(cluster.stop)
        await become("that it is away is an alarm", lambda: [a.severity for a in alarms][-1:] == ["warning"])
        assert "workload" in site.fleet.silences.elsewhere, "and not one for every node"
        assert "slurm slurm does not answer" in alarms[-1].message
        shown = await site.strata("workload", "list")
        assert "no" in shown.out.split() and "Unable to contact slurm controller" in shown.out
        refused = await site.strata("workload", "disconnect", "slurm")
        assert refused.code != 0 and "Unable to contact" in refused.err, "nobody knows what it has drained for us"
        gone = await site.strata("workload", "disconnect", "slurm", "--force")
        assert gone.out == "disconnected slurm\n"
        assert await site.json("workload", "list") == []
        assert alarms[-1].severity == "ok"


async def test_two_who_connect_by_one_name_get_one_connection_and_a_scoped_caller_sees_only_its_nodes(
    cluster: Slurm, tmp_path: Path
) -> None:
    async with controller(tmp_path) as site:
        nodes = [Node(name=f"nid{number}", uid=0) for number in range(1, 5)]
        await site.fleet.settled(await _created(site.fleet, nodes))
        env = f"SLURM_CONF={cluster.config}"
        both = await asyncio.gather(*(site.strata("workload", "connect", "slurm", "--env", env) for _ in range(2)))
        assert [ended.code for ended in both] == [0, 0]
        assert len(await site.json("workload", "list")) == 1
        mine = np.array([site.fleet.registry.index_of("nid2")])
        await site.fleet.settled(await site.fleet.edits.put_group("mine", mine, "test", description=""))
        service = site.fleet.of(WorkloadService)
        scoped = Principal(name="eve", role="operator", scope=("mine",))
        assert [one.node for one in await service.nodes(scoped, "slurm", "*")] == ["nid2"]
        assert len(await service.nodes(LOCAL_ADMIN, "slurm", "")) == 4
        assert (await service.one(scoped, "slurm")).strangers == "", "what others have is none of its business"


async def test_a_grid_engine_is_connected_drained_and_resumed_like_a_slurm(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ge-") as name:
        async with grid_engine(Path(name)) as real, controller(tmp_path) as site:
            await site.fleet.settled(await _created(site.fleet, [Node(name="n1", uid=0)]))
            (command,) = taken_from_pages(
                "tests/platform/test_workload_commands.py::"
                "test_a_grid_engine_is_connected_drained_and_resumed_like_a_slurm"
            )
            words = shlex.split(command.replace("/var/lib/gridengine", real.env["SGE_ROOT"]))[1:]
            ports = [f"--env={name}={value}" for name, value in real.env.items() if name.endswith("_PORT")]
            connected = await site.strata(*words, *ports, "--map", f"n1={real.host}")
            assert connected.out == "connected gridengine gridengine: it knows 1 node of ours\n", connected
            await become("n1 is in", lambda: site.fact("n1") == ("in", "gridengine gridengine"))
            driver, batch = site.fleet.of(WorkloadService).driver, batch_of(site.fleet.registry, np.array([0]))
            steps = site.fleet.controller.model.mutations
            assert "at any moment" in (await driver.permits("no-running-job", batch))[0]
            assert (await driver.act(steps["leave-workload"], batch)).reasons == {}
            assert await driver.permits("no-running-job", batch) == [""]
            await become("n1 is out", lambda: site.fact("n1")[0] == "out")
            (row,) = await site.json("workload", "nodes", "gridengine")
            assert row["ours"] and row["state"] == "main.q:d second.q:d"
            refused = await site.strata("workload", "disconnect", "gridengine")
            assert refused.code != 0 and "Strata drained n1" in refused.err
            assert (await driver.act(steps["join-workload"], batch)).reasons == {}
            await become("n1 is in again", lambda: site.fact("n1")[0] == "in")
            assert (await site.strata("workload", "disconnect", "gridengine")).code == 0


async def _created(fleet: Fleet, nodes: list[Node]) -> int:
    await fleet.edits.create_nodes(nodes, "test")
    return await fleet.store.revision()
