"""Which of a controller's numbers is the node's power, and what is read of it: over the shapes that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.bmc.protocol import Reading
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.power.telemetry import values as cv
from strata.power.telemetry.redfish import make_plan, read_plan
from support.mockup_server import Mockup, shared_mockups

Json = dict[str, Any]


def sensor(name: str, reading: object, kind: str = "Power", place: str = "", units: str = "") -> Json:
    return {
        "@odata.id": f"/redfish/v1/Chassis/A/Sensors/{name.replace(' ', '')}",
        "Name": name,
        "Reading": reading,
        "ReadingType": kind,
        "PhysicalContext": place,
        "ReadingUnits": units,
    }


def test_the_node_is_its_total_and_not_its_parts() -> None:
    told = [
        sensor("CPU1 Power", 120, place="CPU"),
        sensor("Total Power", 400, place="Chassis"),
        sensor("PS1 Input Power", 200, place="PowerSupply"),
        sensor("GPU1 Power", 90, place="GPU"),
        sensor("GPU2 Power", "85.5", place="GPU"),
    ]
    assert cv.from_sensors(told) == {"power": 400, "accel-power": 175.5}


def test_without_a_total_the_node_is_what_goes_into_its_supplies() -> None:
    told = [sensor("PSU1 Input", 200, place="PowerSupply"), sensor("PSU2 Input", 210, place="PowerSupply")]
    told += [sensor("PSU1 Output", 180, place="PowerSupply"), sensor("CPU1", 100, place="CPU")]
    assert cv.from_sensors(told) == {"power": 410}


def test_parts_alone_are_not_the_node() -> None:
    assert cv.from_sensors([sensor("CPU1 Power", 100, place="CPU"), sensor("DIMM power", 20, place="Memory")]) == {}


@pytest.mark.parametrize(
    ("kind", "unit", "joules"),
    [("EnergykWh", "kW.h", 3.6e6), ("EnergyJoules", "J", 1), ("EnergyWh", "W.h", 3600), ("EnergykWh", "", 3.6e6)],
)
def test_energy_is_in_joules(kind: str, unit: str, joules: float) -> None:
    assert cv.from_sensors([sensor("Total Energy", 2, kind, "Chassis", unit)]) == {"energy": 2 * joules}


def test_the_temperature_is_the_hottest() -> None:
    told = [sensor("Intake", 22, "Temperature"), sensor("CPU", 71, "Temperature"), sensor("off", None, "Temperature")]
    assert cv.from_sensors(told) == {"temperature": 71}


def test_a_cap_that_is_off_is_known_to_be_none() -> None:
    assert cv.cap_of({"SetPoint": 300, "ControlMode": "Automatic"}) == {"cap": 300}
    assert cv.cap_of({"SetPoint": 300, "ControlMode": "Disabled", "AllowableMin": 100}) == {"cap": 0, "least": 100}
    assert cv.cap_of({"SetPoint": None}) == {"cap": 0}
    assert cv.cap_of({}) == {}
    assert cv.cap_of({"SetPoint": "a lot"}) == {}


def test_the_old_shape_tells_node_and_accelerators_apart() -> None:
    body = {
        "PowerControl": [
            {"Name": "Node Power Control", "PowerConsumedWatts": 500, "PowerLimit": {"LimitInWatts": None}},
            {"Name": "Accelerator0 Power Control", "PowerConsumedWatts": 200},
            {"Name": "Accelerator1 Power Control", "PowerConsumedWatts": 210, "PowerLimit": {"LimitInWatts": 300}},
            "nonsense",
        ]
    }
    assert cv.from_power(body) == {"power": 500, "cap": 0, "accel-power": 410, "accel-cap": 300}


def test_a_report_tells_the_newest_value_of_the_nodes_own() -> None:
    total = sensor("Total Power", 0, place="Chassis")
    sensors = {total["@odata.id"]: total}

    def value(of: str, number: object, when: str) -> Json:
        return {"MetricProperty": of, "MetricValue": number, "Timestamp": when}

    here = f"{total['@odata.id']}#/Reading"
    body = {
        "MetricValues": [
            value(here, "300.5", "2026-01-01T00:00:02Z"),
            value(here, "299", "2026-01-01T00:00:01Z"),
            value("/redfish/v1/Chassis/B/EnvironmentMetrics#/PowerWatts/Reading", "999", "2026-01-01T00:00:02Z"),
            value("/redfish/v1/Chassis/A/EnvironmentMetrics#/EnergykWh/Reading", "1", ""),
            value(here, "NaN", "2026-01-01T00:00:03Z"),
            7,
        ]
    }
    assert cv.from_report(body, sensors, ["/redfish/v1/Chassis/A/"]) == {"power": 300.5, "energy": 3.6e6}


def test_other_protocols_tell_by_name() -> None:
    told = [
        Reading(name="Pwr Consumption", kind="power", unit="W", value=210.0),
        Reading(name="Temp CPU1", kind="temperature", unit="Cel", value=60.0),
        Reading(name="Gone", kind="temperature", unit="Cel", value=None, doubt="absent"),
        Reading(name="Fan", kind="fan", unit="RPM", value=9000.0),
    ]
    assert cv.from_readings(told) == {"power": 210, "temperature": 60}


# -- over recorded and made-up services

CHASSIS = "/redfish/v1/Chassis/A"
ROOT: Json = {
    "@odata.id": "/redfish/v1/",
    "Systems": {"@odata.id": "/redfish/v1/Systems"},
    "TelemetryService": {"@odata.id": "/redfish/v1/TelemetryService"},
}
BASE: dict[str, Json] = {
    "": ROOT,
    "Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/A"}]},
    "Systems/A": {
        "@odata.id": "/redfish/v1/Systems/A",
        "PowerState": "On",
        "Links": {"Chassis": [{"@odata.id": CHASSIS}]},
        "Processors": {"@odata.id": "/redfish/v1/Systems/A/Processors"},
    },
    "Chassis/A": {
        "@odata.id": CHASSIS,
        "EnvironmentMetrics": {"@odata.id": f"{CHASSIS}/EnvironmentMetrics"},
        "Power": {"@odata.id": f"{CHASSIS}/Power"},
        "Thermal": {"@odata.id": f"{CHASSIS}/Thermal"},
        "Sensors": {"@odata.id": f"{CHASSIS}/Sensors"},
    },
    "Chassis/A/Power": {"PowerControl": [{"Name": "Node", "PowerConsumedWatts": 333}]},
    "Chassis/A/Thermal": {"Temperatures": [{"Name": "CPU", "ReadingCelsius": 55}]},
}
TOTAL = sensor("Total", 311, place="Chassis")


def write(directory: Path, tree: dict[str, Json]) -> None:
    for path, body in tree.items():
        (directory / path).mkdir(parents=True, exist_ok=True)
        (directory / path / "index.json").write_text(json.dumps(body))


async def values_of(mockup: Mockup, *, times: int = 1) -> tuple[list[cv.Values], list[str]]:
    """What is read, so many times, and which requests the last time took."""
    async with RedfishClient(Credentials("root", "mockup")) as client:
        target = client.target(mockup.address)
        plan = await make_plan(client, target)
        found = []
        for _ in range(times):
            mockup.asked.clear()
            values, _ = await read_plan(client, target, plan, slow=True)
            found.append(values)
        return found, list(mockup.asked)


async def test_an_old_controller_takes_two_requests(tmp_path: Path) -> None:
    write(tmp_path, BASE)
    async with Mockup(tmp_path) as mockup:
        found, asked = await values_of(mockup)
    assert found == [{"power": 333, "temperature": 55}]
    assert asked == [f"GET {CHASSIS}/Power", f"GET {CHASSIS}/Thermal"]


async def test_a_report_that_tells_it_all_is_the_only_thing_that_is_read(tmp_path: Path) -> None:
    hot = sensor("CPU", 66, "Temperature")
    energy = sensor("Total Energy", 3, "EnergykWh", "Chassis")
    members = {"Members": [TOTAL, hot, energy]}
    report = {
        "@odata.id": "/redfish/v1/TelemetryService/MetricReports/All",
        "Timestamp": "2026-01-01T00:00:00Z",
        "MetricValues": [
            {"MetricProperty": f"{one['@odata.id']}#/Reading", "MetricValue": str(one["Reading"])}
            for one in (TOTAL, hot, energy)
        ],
    }
    write(
        tmp_path,
        BASE
        | {
            "Chassis/A/Sensors": members,
            "TelemetryService": {"MetricReports": {"@odata.id": "/redfish/v1/TelemetryService/MetricReports"}},
            "TelemetryService/MetricReports": {"Members": [{"@odata.id": report["@odata.id"]}]},
            "TelemetryService/MetricReports/All": report,
        },
    )
    async with Mockup(tmp_path) as mockup:
        found, asked = await values_of(mockup, times=2)
    assert asked == ["GET /redfish/v1/TelemetryService/MetricReports/All"]
    assert found[0] == {"power": 311, "energy": 3 * 3.6e6, "temperature": 66}
    assert found[1] == {}, "a report that was not made anew is no new measurement"


async def test_accelerators_with_metrics_of_their_own_add_up(tmp_path: Path) -> None:
    gpus = "/redfish/v1/Systems/A/Processors"
    tree = BASE | {"Systems/A/Processors": {"Members": [{"@odata.id": f"{gpus}/{i}"} for i in (1, 2, 3)]}}
    tree["Systems/A/Processors/3"] = {"ProcessorType": "CPU"}
    for i in (1, 2):
        metrics = f"{gpus}/{i}/EnvironmentMetrics"
        tree[f"Systems/A/Processors/{i}"] = {"ProcessorType": "GPU", "EnvironmentMetrics": {"@odata.id": metrics}}
        tree[f"Systems/A/Processors/{i}/EnvironmentMetrics"] = {
            "PowerWatts": {"Reading": 100 * i},
            "PowerLimitWatts": {"SetPoint": 350, "AllowableMin": 100, "AllowableMax": 400},
        }
    write(tmp_path, tree)
    async with Mockup(tmp_path) as mockup:
        (found,), _ = await values_of(mockup)
    assert (found["power"], found["accel-power"], found["accel-cap"], found["accel-most"]) == (333, 300, 700, 800)


async def test_what_several_nodes_draw_together_is_nobodys(tmp_path: Path) -> None:
    shared = {**BASE["Chassis/A"], "Links": {"ComputerSystems": [{"@odata.id": "/a"}, {"@odata.id": "/b"}]}}
    write(tmp_path, BASE | {"Chassis/A": shared})
    async with Mockup(tmp_path) as mockup, RedfishClient(Credentials("root", "mockup")) as client:
        with pytest.raises(NotOffered):
            await make_plan(client, client.target(mockup.address))


async def test_a_resource_that_goes_away_does_not_hide_the_rest(tmp_path: Path) -> None:
    write(tmp_path, BASE)
    async with Mockup(tmp_path) as mockup, RedfishClient(Credentials("root", "mockup")) as client:
        target = client.target(mockup.address)
        plan = await make_plan(client, target)
        (tmp_path / "Chassis/A/Thermal/index.json").unlink()
        assert await read_plan(client, target, plan, slow=True) == ({"power": 333}, None)


@pytest.mark.parametrize("directory", shared_mockups() or [None], ids=lambda path: path.name if path else "none-here")
async def test_recorded_controllers_of_others_tell_something_or_say_that_they_do_not(
    directory: Path | None, tmp_path: Path
) -> None:
    if directory is None:
        write(tmp_path, BASE)
        directory = tmp_path
    async with Mockup(directory) as mockup:
        try:
            (found,), asked = await values_of(mockup)
        except DeviceError:
            return
        assert all(isinstance(value, float) for value in found.values())
        assert 0 < found.get("power", found.get("energy", 0)) < 1e9
        assert len(asked) < 60
