"""``strata slurm`` with a whole controller: from what an agent told to a real slurmctld and slurmd."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from strata.agent.host.inventory import inventory
from strata.agent.paths import Paths
from strata.core.node import Interface, Node
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.fleet import Fleet
from strata.fleet.settings import ListenSettings
from strata.hardware.inventory.records import Component, Found, Machine
from strata.hardware.inventory.service import InventoryService
from strata.hardware.settings import HardwareSettings
from strata.platform.slurm.records import NodesSpec, SlurmSpec
from strata.platform.slurm.service import SlurmService
from strata.provisioning.agents.service import AgentService
from support.commands import Ended, strata
from support.slurm import Slurm, free_port, own_settings, until

pytestmark = [pytest.mark.server, pytest.mark.slow]


@asynccontextmanager
async def controller(directory: Path) -> AsyncIterator[Fleet]:
    settings = Settings(
        state_dir=directory,
        controller_id="c1",
        layers=("hardware", "provisioning", "platform"),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    async with running(settings) as fleet:
        yield fleet


async def created(fleet: Fleet, nodes: list[Node]) -> None:
    await fleet.edits.create_nodes(nodes, "test")
    await fleet.settled(await fleet.store.revision())


async def describe(fleet: Fleet, *names: str) -> None:
    """Nodes at addresses of their own, and what their agents told: that they are this machine."""
    before = len(fleet.registry.names)
    nodes = [
        Node(name=name, uid=0, interfaces=(Interface(mac=f"02:00:00:00:00:{at:02x}", address=f"127.0.1.{at}"),))
        for at, name in enumerate(names, before + 1)
    ]
    await created(fleet, nodes)
    told = json.dumps(inventory(Paths())).encode()
    for name in names:
        await fleet.of(AgentService).inventories.put(name, told)


def start_slurmd(name: str, config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "slurmd", "-D", "-N", name,
         "-f", str(config)],
        env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


async def test_what_an_agent_told_becomes_a_cluster_that_a_real_slurmd_reports_to_as_it_was_said() -> None:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        directory, state = Path(name), Path(name) / "strata"
        folder = directory / "etc"
        folder.mkdir()
        scheduler = Slurm(directory, "")
        scheduler.config.unlink()
        scheduler.use(folder / "slurm.conf")
        own = own_settings(directory) | {"SlurmdSpoolDir": f"{directory}/spool.%n"}
        spec = {
            "controllers": ["localhost(127.0.0.1)"],
            "partitions": [{"name": "all", "select": "role:compute", "settings": {"Default": "YES"}}],
            "nodes": [{"select": "n1", "settings": {"NodeHostname": socket.gethostname(), "Port": str(free_port())}}],
            "settings": own,
        }
        async with controller(state) as fleet:

            async def run(*words: str, code: int = 0) -> Ended:
                ended = await strata(state, *words)
                assert ended.code == code, ended
                return ended

            async def describe_slurm(**more: Any) -> Ended:
                (directory / "main.yaml").write_text(json.dumps({**spec, **more}), encoding="utf-8")
                return await run("slurm", "put", "main", str(directory / "main.yaml"))

            await describe(fleet, "n1")
            await describe_slurm()
            told = json.loads((await run("slurm", "check", "main", str(folder), "--json")).out)
            assert told["added"] == "n1" and told["wrong"] == "" and not (folder / "slurm.conf").exists()
            await run("slurm", "write", "main", str(folder))
            assert not [file.name for file in folder.iterdir() if file.name.startswith(".")]

            scheduler.start()
            slurmd = None
            try:
                await until("it runs", lambda: "Running as primary controller" in scheduler.said(), scheduler)
                (directory / "spool.n1").mkdir()
                slurmd = start_slurmd("n1", folder / "slurm.conf")
                await scheduler.until_state("n1", "idle")  # and not drained for having less than was said

                assert "nothing has changed" in (await run("slurm", "write", "main", str(folder), "--reconfigure")).out

                # A partition is taken over by a running slurmctld.
                night = {"name": "night", "select": "n1", "settings": {"MaxTime": "60"}}
                await describe_slurm(partitions=[*spec["partitions"], night])
                ended = await run("slurm", "write", "main", str(folder), "--reconfigure")
                assert "+PartitionName=night Nodes=n1 MaxTime=60" in ended.out and "taken it over" in ended.out
                assert "night" in await scheduler.run("sinfo", "-h", "-o", "%R")

                # A node more is not: it is written, and said.
                await describe(fleet, "n2")
                told = json.loads((await run("slurm", "write", "main", str(folder), "--reconfigure", "--json")).out)
                assert told["restart"] == ["nodes are new: n2"] and told["reconfigured"] is False
                assert "n2" in (folder / "slurm.conf").read_text()
                assert "n2" not in await scheduler.run("sinfo", "-h", "-o", "%N")

                # What Slurm cannot read never gets there.
                before = {file.name: file.read_bytes() for file in folder.iterdir()}
                await describe_slurm(settings={**own, "NoSuchSetting": "1"})
                assert "NoSuchSetting" in (await run("slurm", "check", "main", str(folder), code=1)).out
                assert "NoSuchSetting" in (await run("slurm", "write", "main", str(folder), code=1)).err
                assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
            finally:
                if slurmd is not None:
                    slurmd.kill()
                    await asyncio.to_thread(slurmd.wait)
                await asyncio.to_thread(scheduler.stop)


async def test_what_nobody_knows_is_left_out_and_said_and_what_the_site_says_rules(tmp_path: Path) -> None:
    async with controller(tmp_path) as fleet:
        nodes = [
            Node(name=f"n{number}", uid=0, bmc=f"https://10.0.0.{number}", labels={"rack": "1" if number < 3 else "2"})
            for number in range(1, 6)
        ]
        await created(fleet, nodes)
        found = [_found(f"https://10.0.0.{number}", gpus=2 if number == 2 else 0) for number in (1, 2, 3)]
        await fleet.of(InventoryService)._inventory.record(found)
        service = fleet.of(SlurmService)
        spec = SlurmSpec(
            controllers=("mgmt",),
            nodes=(
                NodesSpec(select="n[3-4]", settings={"CPUs": "4", "RealMemory": "1000"}),
                NodesSpec(select="label:rack=2", settings={"Weight": "9"}),
            ),
        )
        await service.put(LOCAL_ADMIN, "main", spec)
        made = await service.files(LOCAL_ADMIN, "main")
        lines = made.files["slurm.conf"].splitlines()
        assert [line for line in lines if line.startswith(("NodeName", "Partition"))] == [
            "NodeName=n1 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=61952",
            "NodeName=n2 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=61952 Gres=gpu:a100:2",
            "NodeName=n[3-4] CPUs=4 RealMemory=1000 Weight=9",
            "PartitionName=compute Nodes=n[1-4] Default=YES",
        ]
        shown = await strata(tmp_path, "slurm", "config", "main", "--file", "slurm.conf")
        assert shown.out == made.files["slurm.conf"], "as it would be written, line by line"
        every = await strata(tmp_path, "slurm", "config", "main")
        assert "\n==> topology.conf <==\n" in every.out and "\n".join(lines) in every.out
        described = await strata(tmp_path, "slurm", "show", "main")
        assert yaml.safe_load(described.out)["controllers"] == ["mgmt"]
        compared = await strata(tmp_path, "slurm", "check", "main", str(tmp_path / "etc"))
        assert "+PartitionName=compute Nodes=n[1-4] Default=YES" in compared.out.splitlines()
        assert made.nodes == 4
        assert made.warnings == (
            "left out, as nothing is known of their processors and memory: n5; have them discovered, "
            "or say CPUs and RealMemory of them in 'nodes'",
        )


def _found(address: str, gpus: int) -> Found:
    from strata.hardware.bmc.protocol import Identity

    system = "/redfish/v1/Systems/1"
    cpus = [_part(f"{system}/Processors/{at}", "processor", type="CPU", cores=8, threads=16) for at in range(2)]
    cards = [_part(f"{system}/Processors/g{at}", "accelerator", model="A100", type="GPU") for at in range(gpus)]
    memory = _part(f"{system}/Memory/1", "memory", capacity_mib=65536)
    return Found(
        address=address,
        identity=Identity(serial=address),
        time=1.0,
        machines=(Machine(id=system, address=address),),
        components=(Component(id=system, kind="system"), *cpus, *cards, memory),
    )


def _part(place: str, kind: str, model: str = "", **facts: str | int) -> Component:
    parent = "/redfish/v1/Systems/1"
    return Component(id=place, kind=kind, parent=parent, vendor="NVIDIA", model=model, facts=facts)  # type: ignore[arg-type]
