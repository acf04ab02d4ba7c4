"""The sensors of a simulated node: the table of them, one by one, and the older summary of all that is warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from strata.virtual.redfish.body import Json
from strata.virtual.redfish.router import Call, Tree
from strata.virtual.redfish.server import CHASSIS

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

TREE: Tree[NodeBmc] = Tree()


class Sensor(NamedTuple):
    """One sensor. ``high`` and ``low`` are its critical thresholds."""

    id: str
    name: str
    kind: str
    units: str
    context: str
    reading: Callable[[NodeBmc, float], float]
    high: float | None = None
    low: float | None = None
    most: float = 1000.0
    """The highest that it can show."""


def _temperature(ident: str, name: str, context: str, base: float, per_watt: float, high: float = 95.0) -> Sensor:
    def reading(bmc: NodeBmc, now: float) -> float:
        return round(base + per_watt * bmc.watts(now), 1)

    low = -5.0 if context == "Intake" else None
    return Sensor(ident, name, "Temperature", "Cel", context, reading, high, low, 125.0)


def _fan(number: int, share: float) -> Sensor:
    def reading(bmc: NodeBmc, now: float) -> float:
        return float(round(share * (2000 + 12 * bmc.watts(now))) if bmc.power(now) != "Off" else 0)

    return Sensor(f"Fan{number}", f"Fan {number}", "Rotational", "{rev}/min", "Fan", reading, None, -1.0, 20000.0)


def _power(ident: str, name: str, context: str, share: float) -> Sensor:
    def reading(bmc: NodeBmc, now: float) -> float:
        return round(share * bmc.watts(now), 1)

    return Sensor(ident, name, "Power", "W", context, reading, 2400.0, None, 3000.0)


def _voltage(supply: str) -> Sensor:
    name, context = f"{supply} Voltage", "PowerSupply"
    return Sensor(f"{supply}Voltage", name, "Voltage", "V", context, lambda *_: 230.0, 264.0, 180.0, 300.0)


def _energy(bmc: NodeBmc, now: float) -> float:
    return bmc.energy(now)


SENSORS = {
    sensor.id: sensor
    for sensor in (
        _temperature("IntakeTemp", "Intake Temp", "Intake", 22.0, 0.0, 45.0),
        _temperature("ExhaustTemp", "Exhaust Temp", "Exhaust", 24.0, 0.025, 75.0),
        _temperature("CPU1Temp", "CPU1 Temp", "CPU", 30.0, 0.05),
        _temperature("CPU2Temp", "CPU2 Temp", "CPU", 31.0, 0.05),
        _fan(1, 1.0),
        _fan(2, 1.02),
        _power("TotalPower", "Total Power", "Chassis", 1.0),
        Sensor("TotalEnergy", "Total Energy", "EnergykWh", "kW.h", "Chassis", _energy, most=1e9),
        _power("PS1Input", "PS1 Input Power", "PowerSupply", 0.5),
        _power("PS2Input", "PS2 Input Power", "PowerSupply", 0.5),
        _voltage("PS1"),
        _voltage("PS2"),
    )
}


@TREE.members("Chassis/1/Sensors", "Sensor.v1_9_0", SENSORS)
def _sensor(bmc: NodeBmc, call: Call) -> Json:
    found = SENSORS[call.ids[0]]
    thresholds = {"UpperCritical": found.high, "LowerCritical": found.low}
    return {
        "Name": found.name,
        "ReadingType": found.kind,
        "ReadingUnits": found.units,
        "PhysicalContext": found.context,
        "Reading": bmc.reading(found.id, call.now),
        "ReadingRangeMin": 0 if found.kind != "Temperature" else -40,
        "ReadingRangeMax": found.most,
        "Thresholds": {name: {"Reading": limit} for name, limit in thresholds.items() if limit is not None},
        "Status": {"State": "Enabled", "Health": bmc.health(found.id)},
    }


@TREE.view("Chassis/1/Thermal", "Thermal.v1_7_1")
def _thermal(bmc: NodeBmc, call: Call) -> Json:
    def rows(key: str, kind: str, shown: Callable[[Sensor], Json]) -> list[Json]:
        return [
            {
                "@odata.id": f"{call.path}#/{key}/{i}",
                "MemberId": str(i),
                "Name": found.name,
                "Status": {"State": "Enabled", "Health": bmc.health(found.id)},
                **shown(found),
            }
            for i, found in enumerate(_of_kind(kind))
        ]

    def warm(found: Sensor) -> Json:
        reading = bmc.reading(found.id, call.now)
        return {
            "ReadingCelsius": reading, "UpperThresholdCritical": found.high, "PhysicalContext": found.context,
        }  # fmt: skip

    def turning(found: Sensor) -> Json:
        return {"Reading": int(bmc.reading(found.id, call.now)), "ReadingUnits": "RPM"}

    return {"Temperatures": rows("Temperatures", "Temperature", warm), "Fans": rows("Fans", "Rotational", turning)}


@TREE.view("Chassis/1/ThermalSubsystem/ThermalMetrics", "ThermalMetrics.v1_3_0")
def _thermal_metrics(bmc: NodeBmc, call: Call) -> Json:
    readings = [
        {
            "DeviceName": found.name,
            "Reading": bmc.reading(found.id, call.now),
            "PhysicalContext": found.context,
            "DataSourceUri": f"{CHASSIS}/Sensors/{found.id}",
        }
        for found in _of_kind("Temperature")
    ]
    return {"Name": "Temperatures", "TemperatureReadingsCelsius": readings}


def _of_kind(kind: str) -> list[Sensor]:
    return [found for found in SENSORS.values() if found.kind == kind]
