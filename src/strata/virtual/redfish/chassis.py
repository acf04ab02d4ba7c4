"""The chassis of a simulated node, its power supplies and fans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.fleet.names import location_of
from strata.virtual.redfish.body import OK, ROOT, Json, collection, link, links, resource
from strata.virtual.redfish.router import Call, Deeds, Views
from strata.virtual.redfish.system import numbered, slot

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

CHASSIS = f"{ROOT}/Chassis/1"
SUPPLIES, SUPPLY_WATTS, FANS = 2, 2400, 2
_BELOW = (
    "Controls", "EnvironmentMetrics", "NetworkAdapters", "Power", "PowerSubsystem", "Sensors", "Thermal",
    "ThermalSubsystem",
)  # fmt: skip


def _chassis_all(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Chassis", ["1"])


def _chassis(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "Chassis.v1_23_0",
        bmc.name,
        **bmc.part("System", "Chassis"),
        ChassisType="Sled",
        PowerState=bmc.power(call.now),
        LocationIndicatorActive=bmc.light,
        Status=OK,
        Location={"PartLocationContext": location_of(bmc.node), **slot("Slot", location_of(bmc.node))},
        **{name: link(f"{CHASSIS}/{name}") for name in _BELOW},
        Links={"ComputerSystems": links(f"{ROOT}/Systems/1"), "ManagedBy": links(f"{ROOT}/Managers/1")},
    )


def _power_subsystem(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "PowerSubsystem.v1_1_0",
        "Power",
        Status=OK,
        CapacityWatts=SUPPLIES * SUPPLY_WATTS,
        PowerSupplies=link(f"{call.path}/PowerSupplies"),
    )


def _supplies(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "PowerSupply", numbered("PS", SUPPLIES))


def _supply(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in numbered("PS", SUPPLIES):
        return None
    return resource(
        call.path,
        "PowerSupply.v1_5_0",
        name,
        **bmc.part("PSU", f"PowerSupplies/{name}"),
        PowerSupplyType="AC",
        PowerCapacityWatts=SUPPLY_WATTS,
        FirmwareVersion="1.02",
        LineInputStatus="Normal",
        Status=OK,
        Location=slot("Bay", name),
    )


def _thermal_subsystem(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "ThermalSubsystem.v1_2_0",
        "Thermal",
        Status=OK,
        Fans=link(f"{call.path}/Fans"),
        ThermalMetrics=link(f"{call.path}/ThermalMetrics"),
    )


def _fans(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Fan", numbered("Fan", FANS))


def _fan(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in numbered("Fan", FANS):
        return None
    speed = bmc.reading(name, call.now)
    return resource(
        call.path,
        "Fan.v1_5_0",
        name,
        SpeedPercent={
            "Reading": round(speed / 200, 1), "SpeedRPM": speed, "DataSourceUri": f"{CHASSIS}/Sensors/{name}",
        },
        Status=OK,
        Location=slot("Bay", name),
    )  # fmt: skip


VIEWS: Views[NodeBmc] = {
    "Chassis": _chassis_all,
    "Chassis/1": _chassis,
    "Chassis/1/PowerSubsystem": _power_subsystem,
    "Chassis/1/PowerSubsystem/PowerSupplies": _supplies,
    "Chassis/1/PowerSubsystem/PowerSupplies/*": _supply,
    "Chassis/1/ThermalSubsystem": _thermal_subsystem,
    "Chassis/1/ThermalSubsystem/Fans": _fans,
    "Chassis/1/ThermalSubsystem/Fans/*": _fan,
}

DEEDS: Deeds[NodeBmc] = {}
