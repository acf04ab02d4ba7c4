"""Where nodes are and what they measure: cabinets, chassis, slots, enclosures, sensors, power limits."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest
from machine_support import ROOT, MachineService, get, machine_service, members

from strata.api.redfish.resources.live import Kept
from strata.core.errors import DeviceError, NotOffered
from strata.fleet.access.principal import Principal
from strata.hardware.bmc.protocol import PowerLimit, Reading
from strata.hardware.bmc.records import NodeReadings
from strata.hardware.bmc.service import BmcService

HERE = f"{ROOT}/Chassis/node-n000"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MachineService]:
    async with machine_service(tmp_path) as found:
        yield found


@pytest.fixture
def odd_sensors(service: MachineService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings as old and odd BMCs give them."""

    async def sensors(who: Principal, select: str) -> Sequence[NodeReadings]:
        return [NodeReadings(node="n000", time=time.time(), readings=ODD, trouble="")]

    monkeypatch.setattr(service.of(BmcService), "sensors", sensors)


def _reading(name: str, kind: str, unit: str, value: float | None, doubt: str = "") -> Reading:
    return Reading(name=name, kind=kind, unit=unit, value=value, health="ok", high=None, low=None, doubt=doubt)


ODD = (
    _reading("Fan 1", "fan", "RPM", 8000.0),
    _reading("Fan 1", "fan", "%", 40.0),
    _reading("Energy", "energy", "kW.h", 12.5),
    _reading("Old Energy", "energy", "BTU", 1.0),
    _reading("Old Temp", "temperature", "[degF]", 70.0),
    _reading("Gone", "temperature", "Cel", None, "65535 is no temperature"),
)


async def test_the_chassis_are_the_places_of_nodes_and_the_enclosures_of_nodes(client: httpx.AsyncClient) -> None:
    assert members(await get(client, "Chassis")) == [
        "x1000", "x1001", "x1000c0", "x1001c0", "x1000c0s0", "x1001c0s0", *(f"node-n{i:03d}" for i in range(6)),
    ]  # fmt: skip


async def test_a_place_is_in_the_next_larger_one_and_holds_the_next_smaller_ones(client: httpx.AsyncClient) -> None:
    line = ["x1000", "x1000c0", "x1000c0s0", "node-n000"]
    for outer, inner in itertools.pairwise(line):
        outside, inside = await get(client, f"Chassis/{outer}"), await get(client, f"Chassis/{inner}")
        assert {"@odata.id": f"{ROOT}/Chassis/{inner}"} in outside["Links"]["Contains"]
        assert inside["Links"]["ContainedBy"] == {"@odata.id": f"{ROOT}/Chassis/{outer}"}
    cabinet = await get(client, "Chassis/x1000")
    assert "ContainedBy" not in cabinet["Links"]
    assert len(cabinet["Links"]["ComputerSystems"]) == 4


async def test_a_node_that_is_in_no_slot_is_in_the_smallest_place_that_is_known(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.put_node("odd", location="x1000c0")
    assert {"@odata.id": f"{ROOT}/Chassis/node-odd"} in (await get(client, "Chassis/x1000c0"))["Links"]["Contains"]
    assert (await get(client, "Chassis/node-odd"))["Links"]["ContainedBy"]["@odata.id"].endswith("/x1000c0")


async def test_a_location_says_the_place_and_the_rack(client: httpx.AsyncClient) -> None:
    found = (await get(client, HERE))["Location"]
    assert found["PartLocation"]["ServiceLabel"] == "x1000c0s0b0n0"
    assert found["PartLocationContext"] == "x1000c0s0b0"
    assert found["Placement"] == {"Rack": "x1000"}
    assert "Location" not in await get(client, "Chassis/node-n005")


@pytest.mark.parametrize("name", ["x9", "x1000c0s0b0", "X1000", "s0", "nothing", "node-", "node-n999", "x01000"])
async def test_a_place_without_nodes_is_not_there(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get(f"{ROOT}/Chassis/{name}")).status_code == 404


async def test_reading_every_sensor_of_a_node_asks_its_controller_once(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    found = await get(client, f"{HERE}/Sensors")
    asked = service.bmcs.requests
    await asyncio.gather(*(get(client, link["@odata.id"]) for link in found["Members"]))
    assert asked > 0
    assert service.bmcs.requests == asked


async def test_a_sensor_says_what_it_measures_and_what_is_too_much(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.bmcs.bmc("n000").set_reading("IntakeTemp", 21.5)
    inlet = await get(client, f"{HERE}/Sensors/Intake_Temp")
    assert (inlet["Reading"], inlet["ReadingType"], inlet["ReadingUnits"]) == (21.5, "Temperature", "Cel")
    assert inlet["Thresholds"] == {"UpperCritical": {"Reading": 45.0}, "LowerCritical": {"Reading": -5.0}}


@pytest.mark.usefixtures("odd_sensors")
async def test_units_are_those_of_the_standard_and_sensors_of_one_name_are_told_apart(
    client: httpx.AsyncClient,
) -> None:
    assert (await get(client, f"{HERE}/Sensors/Fan_1"))["ReadingUnits"] == "{rev}/min"
    assert (await get(client, f"{HERE}/Sensors/Fan_1-2"))["ReadingType"] == "Percent"
    kinds = [await get(client, f"{HERE}/Sensors/{name}") for name in ("Energy", "Old_Energy", "Old_Temp")]
    assert [(one["ReadingType"], one["ReadingUnits"]) for one in kinds] == [
        ("EnergykWh", "kW.h"), (None, "BTU"), ("Temperature", "[degF]"),
    ]  # fmt: skip


@pytest.mark.usefixtures("odd_sensors")
async def test_a_reading_that_cannot_be_true_is_null_with_the_reason(client: httpx.AsyncClient) -> None:
    gone = await get(client, f"{HERE}/Sensors/Gone")
    assert (gone["Reading"], gone["Status"]["State"]) == (None, "UnavailableOffline")
    assert "65535" in gone["Description"]


async def test_sensors_of_a_dead_bmc_are_unavailable(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.lose_bmc("n001")
    answer = await client.get(f"{ROOT}/Chassis/node-n001/Sensors")
    assert (answer.status_code, "nobody answers" in answer.text) == (503, True)


async def test_a_bmc_that_measures_and_limits_nothing_has_no_sensors_and_no_limit(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sensors(who: Principal, select: str) -> Sequence[NodeReadings]:
        return [NodeReadings(node="n000", time=time.time(), readings=(), trouble="")]

    async def limits(who: Principal, node: str) -> Sequence[PowerLimit]:
        raise NotOffered("it cannot be capped", node=node)

    monkeypatch.setattr(service.of(BmcService), "sensors", sensors)
    monkeypatch.setattr(service.of(BmcService), "limits", limits)
    assert (await get(client, f"{HERE}/Sensors"))["Members"] == []
    assert "PowerLimitWatts" not in await get(client, f"{HERE}/EnvironmentMetrics")


async def test_the_whole_nodes_power_is_told_apart_from_its_parts(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.bmcs.bmc("n000").set_reading("TotalPower", 312.0)
    service.bmcs.bmc("n000").set_reading("IntakeTemp", 21.5)
    found = await get(client, f"{HERE}/EnvironmentMetrics")
    assert found["PowerWatts"] == {"DataSourceUri": f"{HERE}/Sensors/Total_Power", "Reading": 312.0}
    assert found["TemperatureCelsius"]["Reading"] == 21.5


@pytest.mark.parametrize(
    ("limit", "watts"),
    [({"SetPoint": 500}, 500), ({"SetPoint": None}, None), ({"ControlMode": "Disabled"}, None)],
)
async def test_a_cap_is_set_and_taken_off(
    service: MachineService, client: httpx.AsyncClient, limit: dict[str, object], watts: float | None
) -> None:
    service.sim.electricity.set_cap(np.array([0]), 400.0)
    path = f"{HERE}/EnvironmentMetrics"
    assert (await get(client, path))["PowerLimitWatts"]["SetPoint"] == 400
    assert (await client.patch(path, json={"PowerLimitWatts": limit})).status_code == 204
    found = (await get(client, path))["PowerLimitWatts"]
    assert (found["SetPoint"], found["ControlMode"]) == (watts, "Automatic" if watts else "Disabled")
    assert (found["AllowableMin"], found["AllowableMax"]) == (200, 2400)


async def test_a_cap_without_a_number_is_refused(service: MachineService, client: httpx.AsyncClient) -> None:
    before = service.told("n000")
    for limit in ({}, {"SetPoint": "much"}, {"SetPoint": True}, {"ControlMode": "Manual", "SetPoint": 3}):
        answer = await client.patch(f"{HERE}/EnvironmentMetrics", json={"PowerLimitWatts": limit})
        assert answer.status_code == 400, limit
    assert service.told("n000") == before


async def test_a_place_has_no_light_and_no_sensors(client: httpx.AsyncClient) -> None:
    assert (await client.patch(f"{ROOT}/Chassis/x1000", json={"LocationIndicatorActive": True})).status_code == 400
    assert (await client.get(f"{ROOT}/Chassis/x1000/Sensors")).status_code == 404


async def test_an_answer_is_kept_for_a_while_and_then_asked_for_again() -> None:
    now, asked = [0.0], 0
    kept = Kept(5.0, clock=lambda: now[0])

    async def ask() -> int:
        nonlocal asked
        asked += 1
        return asked

    assert [await kept.get("q", ask), await kept.get("q", ask)] == [1, 1]
    assert kept.at_hand("q") == 1
    now[0] = 6.0
    assert kept.at_hand("q") is None
    assert await kept.get("q", ask) == 2
    kept.forget("q")
    assert await kept.get("q", ask) == 3


async def test_a_failure_is_an_answer_too_and_who_stops_waiting_leaves_it_to_the_others() -> None:
    kept, begun, over = Kept(), asyncio.Event(), asyncio.Event()
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        begun.set()
        await over.wait()
        raise DeviceError("no answer")

    waiting = [asyncio.create_task(kept.get("q", ask)) for _ in range(3)]
    await begun.wait()
    waiting[0].cancel()
    over.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError, DeviceError, DeviceError]
    with pytest.raises(DeviceError):
        await kept.get("q", ask)
    assert (asked, kept.at_hand("q")) == (1, None)


async def test_no_more_answers_are_kept_than_there_is_room_for() -> None:
    kept = Kept(most=2)
    for number in range(5):

        async def ask(number: int = number) -> int:
            return number

        await kept.get(number, ask)
    assert [kept.at_hand(number) for number in range(5)] == [None, None, None, 3, 4]
