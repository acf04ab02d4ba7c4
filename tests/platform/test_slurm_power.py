"""What Slurm's programs ask for, over a Slurm that behaves: who is switched, and who is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Unavailable
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.service import BmcService
from strata.platform.no_workload import NoWorkload
from strata.platform.slurm.records import SlurmPower, SlurmPowered
from strata.platform.slurm.service import SlurmService
from strata.platform.workload.cluster import Cluster
from strata.platform.workload.driver import WorkloadDriver
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService
from support.fake_scheduler import FakeScheduler
from support.rooms import OpenFleet
from support.simulated_machine import simulated_machine

pytestmark = pytest.mark.slow

ONE, TWO, THREE = "n00001", "n00002", "n00003"


class Connected:
    """As much of ``WorkloadService`` as is asked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def cluster(self, name: str) -> Cluster:
        return self._cluster


class Site:
    def __init__(self, fleet: OpenFleet, slurm: FakeScheduler, kind: str = "slurm") -> None:
        self.fleet = fleet
        self.slurm = slurm
        spec = WorkloadSpec(kind=kind, names={"n[00001-00003]": "nid[1-3]"})  # type: ignore[arg-type]
        cluster = Cluster("main", spec, slurm, clock=fleet.controller.clock.now)
        fleet.put(Connected(cluster), WorkloadService)  # type: ignore[arg-type,type-abstract]
        driver = WorkloadDriver(
            lambda: [cluster], NoWorkload(required=True), why=lambda name: "", clock=fleet.controller.clock.now
        )
        fleet.drive(driver)
        self.service = SlurmService(fleet)

    async def ask(self, action: str, nodes: str, who: Principal = LOCAL_ADMIN) -> SlurmPowered:
        return await self.service.power(who, "main", SlurmPower(action=action, nodes=nodes))  # type: ignore[arg-type]

    def wanted(self, name: str) -> str:
        found = self.fleet.view.node(self.fleet.registry.index_of(name)).desires.get("power")
        return "|".join(found.values) if found else ""


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    async with simulated_machine(directory, 3, on=True) as machine:
        machine.service.put(BmcService(machine.service, machine.bmcs.open, Seal([b"k" * 32])))
        machine.nodes.put(machine.nodes.all, now=machine.server.clock(), power="on")
        yield Site(machine.service, FakeScheduler("nid1", "nid2", "nid3"))


async def test_only_what_slurm_says_is_off_and_has_no_job_is_wanted_off(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.slurm.be("nid1", state="idle+powering_down", boots_first=True)
        here.slurm.be("nid2", state="allocated+powered_down", boots_first=True, jobs=("7",))
        done = await here.ask("suspend", "nid[1-3],stranger")
        assert done.done == ONE and here.wanted(ONE) == "off"
        assert here.wanted(TWO) == here.wanted(THREE) == ""
        assert {(one.nodes, one.reason) for one in done.refused} == {
            (TWO, "job 7 runs there"),
            (THREE, "Slurm says idle, and not that it is to be off"),
            ("stranger", "no such node"),
        }
        again = await here.ask("suspend", "nid1")
        assert again.done == ONE and not again.refused, "twice is the same as once"


async def test_a_node_that_is_wanted_back_is_wanted_on_whatever_slurm_says_of_it(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.slurm.be("nid1", state="idle+powered_down", boots_first=True)
        await here.ask("suspend", "nid1")
        here.slurm.error = Unavailable("it did not end", where="sinfo")
        assert (await here.ask("resume", "nid[1-2]")).done == "n[00001-00002]"
        assert here.wanted(ONE) == here.wanted(TWO) == "on"
        with pytest.raises(Unavailable):
            await here.ask("suspend", "nid1")
        assert here.wanted(ONE) == "on", "without an answer nothing is switched off"


async def test_a_node_that_slurm_has_rebooted_is_restarted_and_no_other(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.slurm.be("nid1", state="idle+reboot_issued", boots_first=True)
        restarted: list[str] = []
        here.fleet.controller.restarted.append(lambda nodes: restarted.extend(here.fleet.view.names(nodes)))
        done = await here.ask("reboot", "nid1,nid2")
        assert done.done == ONE and restarted == [ONE]
        assert [(one.nodes, one.reason) for one in done.refused] == [
            (TWO, "Slurm says idle, and not that it is to be rebooted")
        ]


async def test_a_token_for_some_groups_reaches_no_other_node(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.fleet.edits.put_group("mine", here.fleet.registry.select(ONE), "test")
        await here.fleet.settled(await here.fleet.store.revision())
        who = Principal(name="slurm", role="workload-manager", scope=("mine",))
        done = await here.ask("resume", "nid[1-2]", who)
        assert done.done == ONE and [(one.nodes, one.reason) for one in done.refused] == [("nid2", "no such node")]
        assert here.wanted(TWO) == ""


async def test_another_workload_manager_has_no_such_programs(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 3, on=True) as machine:
        here = Site(machine.service, FakeScheduler("nid1"), kind="gridengine")
        with pytest.raises(BadRequest, match="gridengine"):
            await here.ask("resume", "nid1")
