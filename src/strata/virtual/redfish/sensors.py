"""The sensors of a simulated node, one by one and in the older summary of all that is warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.redfish.body import ROOT, Json, collection, resource
from strata.virtual.redfish.router import Call, Deeds, Views
from strata.virtual.redfish.sensor_table import SENSORS, Sensor

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

CHASSIS = f"{ROOT}/Chassis/1"


def _sensors(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Sensor", SENSORS)


def _sensor(bmc: NodeBmc, call: Call) -> Json | None:
    found = SENSORS.get(call.ids[0])
    if found is None:
        return None
    thresholds = {"UpperCritical": found.high, "LowerCritical": found.low}
    return resource(
        call.path,
        "Sensor.v1_9_0",
        found.name,
        ReadingType=found.kind,
        ReadingUnits=found.units,
        PhysicalContext=found.context,
        Reading=bmc.reading(found.id, call.now),
        ReadingRangeMin=0 if found.kind != "Temperature" else -40,
        ReadingRangeMax=found.most,
        Thresholds={name: {"Reading": limit} for name, limit in thresholds.items() if limit is not None},
        Status={"State": "Enabled", "Health": bmc.health(found.id)},
    )


def _thermal(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "Thermal.v1_7_1",
        "Thermal",
        Temperatures=[
            {
                "@odata.id": f"{call.path}#/Temperatures/{i}",
                "MemberId": str(i),
                "Name": found.name,
                "ReadingCelsius": bmc.reading(found.id, call.now),
                "UpperThresholdCritical": found.high,
                "PhysicalContext": found.context,
                "Status": {"State": "Enabled", "Health": bmc.health(found.id)},
            }
            for i, found in enumerate(_of_kind("Temperature"))
        ],
        Fans=[
            {
                "@odata.id": f"{call.path}#/Fans/{i}",
                "MemberId": str(i),
                "Name": found.name,
                "Reading": int(bmc.reading(found.id, call.now)),
                "ReadingUnits": "RPM",
                "Status": {"State": "Enabled", "Health": bmc.health(found.id)},
            }
            for i, found in enumerate(_of_kind("Rotational"))
        ],
    )


def _thermal_metrics(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "ThermalMetrics.v1_3_0",
        "Temperatures",
        TemperatureReadingsCelsius=[
            {
                "DeviceName": found.name,
                "Reading": bmc.reading(found.id, call.now),
                "PhysicalContext": found.context,
                "DataSourceUri": f"{CHASSIS}/Sensors/{found.id}",
            }
            for found in _of_kind("Temperature")
        ],
    )


def _of_kind(kind: str) -> list[Sensor]:
    return [found for found in SENSORS.values() if found.kind == kind]


VIEWS: Views[NodeBmc] = {
    "Chassis/1/Sensors": _sensors,
    "Chassis/1/Sensors/*": _sensor,
    "Chassis/1/Thermal": _thermal,
    "Chassis/1/ThermalSubsystem/ThermalMetrics": _thermal_metrics,
}

DEEDS: Deeds[NodeBmc] = {}
