"""The red button over simulated hardware: everything off at once, and it stays off until a person lifts the freeze."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import BadRequest, Denied, Refused
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.desires.records import DesireChange
from strata.hardware.emergency.records import EmergencyReport, EmergencyRequest
from strata.hardware.emergency.service import EmergencyService
from strata.virtual.fleet.names import PER_CHASSIS, chassis_name, outlet_name
from support.simulated_machine import SimulatedMachine, simulated_machine

pytestmark = pytest.mark.slow

COUNT = 70
"""Nodes: some chassis full of them, with an outlet each."""


def inside(machine: SimulatedMachine, log: list[tuple[str, str]], what: str) -> list[tuple[int, int, list[int]]]:
    """For each chassis: when its outlet, itself, and the nodes in it were told."""
    found = []
    for i in range(machine.plant.chassis):
        nodes = machine.nodes.names[i * PER_CHASSIS : (i + 1) * PER_CHASSIS]
        places = [log.index((what, name)) for name in nodes]
        found.append((log.index((what, outlet_name(i))), log.index((what, chassis_name(i))), places))
    return found


def button(machine: SimulatedMachine) -> EmergencyService:
    return EmergencyService(machine.service, machine.bmcs, patience=20.0, limit=60.0)


async def press(machine: SimulatedMachine, select: str, count: int, who: Principal = LOCAL_ADMIN) -> EmergencyReport:
    request = EmergencyRequest(select=select, reason="water", confirm=f"power off {count} nodes")
    return await button(machine).power_off(who, request)


async def want(machine: SimulatedMachine, select: str, **values: str) -> None:
    await machine.service.set_desires(LOCAL_ADMIN, DesireChange(select=select, set=values), False)


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.02)


def count_on(machine: SimulatedMachine) -> int:
    return machine.nodes.observe("power", machine.nodes.all, machine.server.clock()).values().count("on")


async def test_power_goes_on_from_the_outlet_to_the_node_and_off_from_the_node_to_the_outlet(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, COUNT, on=False) as machine:
        await want(machine, "*", power="on")
        await until(lambda: count_on(machine) == COUNT)
        log = machine.log()
        for outlet, chassis, nodes in inside(machine, log, "power-on"):
            assert outlet < chassis < min(nodes)
        await want(machine, "*", power="off")
        await until(lambda: not any(machine.plant.outlet_on))
        for outlet, chassis, nodes in inside(machine, machine.log()[len(log) :], "power-off"):
            assert max(nodes) < chassis < outlet


async def test_it_goes_off_stays_off_and_comes_back_after_the_thaw(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, COUNT, on=True) as machine:
        await want(machine, "role:compute", power="on")
        nodes = len(machine.service.registry.select("role:compute"))
        await until(lambda: machine.service.controller.counts()["ready"] == nodes)
        machine.nodes.jobs.run(machine.nodes.all[:40], until=1e9)
        everything = COUNT + 2 * machine.plant.chassis
        report = await press(machine, "*", everything)
        assert report.outcome.failed == () and report.outcome.done_count == everything
        assert report.frozen == ("fleet",)
        assert count_on(machine) == 0 and not any(machine.plant.chassis_on) and not any(machine.plant.outlet_on)
        told = len(machine.log())
        machine.service.controller.engine.facts.schedule_look(machine.service.registry.select("*"), None, 0.0)
        await asyncio.sleep(0.5)
        assert len(machine.log()) == told, "nothing fights it"
        actions = [entry.action for entry in await machine.service.ledger.entries(0)]
        at = actions.index("emergency.off")
        assert actions[at : at + 3] == ["emergency.off", "freeze.set", "emergency.ended"]
        await machine.service.thaw(LOCAL_ADMIN, "fleet")
        await want(machine, "role:chassis", power="on")
        await want(machine, "role:pdu-outlet", power="on")
        await until(lambda: count_on(machine) >= nodes)


async def test_pressing_it_again_is_safe(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 4, on=True) as machine:
        for _ in range(2):
            report = await press(machine, "n00001,n00002", 2)
            assert (report.outcome.done, report.outcome.failed) == ("n[00001-00002]", ())
            assert report.frozen == ("node:n00001", "node:n00002")
        assert machine.plant.chassis_on == [True], "only what was selected"


async def test_a_group_is_frozen_as_a_group(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 4, on=True) as machine:
        service = machine.service
        await service.edits.put_group("pair", service.registry.select("n0000[1-2]"), "test")
        await service.settled(await service.controller.store.revision())
        assert (await press(machine, "@pair", 2)).frozen == ("group:pair",)


async def test_the_wrong_words_do_nothing_and_tell_the_right_ones(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 4, on=True) as machine:
        for words in ("", "yes", "power off 3 nodes", "power off nodes"):
            request = EmergencyRequest(select="n0000[1-2]", reason="water", confirm=words)
            with pytest.raises(Refused, match="confirm with: power off 2 nodes"):
                await button(machine).power_off(LOCAL_ADMIN, request)
        with pytest.raises(BadRequest):
            await press(machine, "state:faulted", 0)
        assert not machine.service.registry.brakes.freezes and not machine.log()


@pytest.mark.parametrize("words", ["power off 1 node", "power off 1 nodes"])
async def test_one_node_is_confirmed_in_the_singular_and_as_scripts_have_it(tmp_path: Path, words: str) -> None:
    async with simulated_machine(tmp_path, 4, on=True) as machine:
        request = EmergencyRequest(select="n00001", reason="water", confirm="yes")
        with pytest.raises(Refused, match=r"confirm with: power off 1 node\)"):
            await button(machine).power_off(LOCAL_ADMIN, request)
        report = await button(machine).power_off(LOCAL_ADMIN, msgspec.structs.replace(request, confirm=words))
        assert report.outcome.done == "n00001"


async def test_it_reaches_no_further_than_the_caller(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 4, on=True) as machine:
        service = machine.service
        await service.edits.put_group("mine", service.registry.select("n00001"), "test")
        await service.settled(await service.controller.store.revision())
        me = Principal(name="me", role="operator", scope=("mine",))
        with pytest.raises(Denied):
            await press(machine, "n0000[1-2]", 2, me)
        assert (await press(machine, "n00001", 1, me)).outcome.done == "n00001"


async def test_the_dead_hold_nobody_up_and_are_named(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 20, on=True) as machine:
        await want(machine, "n*", power="on")
        await until(lambda: count_on(machine) == 20)
        dead = "http://127.0.0.1:9/bmc/gone"  # nobody listens there
        service = machine.service
        described = service.registry.node("n00007")
        await service.edits.create_nodes([type(described)(name="ghost", uid=0, bmc=dead)], "test")
        await service.edits.create_nodes([type(described)(name="bare", uid=0)], "test")
        await service.settled(await service.controller.store.revision())
        async with asyncio.timeout(120):
            report = await press(machine, "n*,ghost,bare", 22)
        assert count_on(machine) == 0
        assert report.outcome.done_count == 20
        reasons = {failed.nodes: failed.reason for failed in report.outcome.failed}
        assert reasons["bare"] == "it has no BMC" and "nobody answers" in reasons["ghost"]
