"""What a simulated node and its accelerators draw and how that is limited, in all shapes that Redfish has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish import server
from strata.virtual.redfish.body import OK, ROOT, Json, done, link, missing, numbered, only, read_json, refuse, resource
from strata.virtual.redfish.hardware import SUPPLIES, SUPPLY_WATTS
from strata.virtual.redfish.router import Call, Tree
from strata.virtual.redfish.server import CHASSIS

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

LEAST, MOST = 200, 2400
"""Watts: the caps that a node accepts."""
GPU_LEAST, GPU_MOST = 50, 500
"""Watts: the caps that an accelerator accepts."""
_REPORT = f"{ROOT}/TelemetryService/MetricReports/Power"

TREE: Tree[NodeBmc] = Tree()


@TREE.view("Chassis/1/Power", "Power.v1_7_1")
def _power(bmc: NodeBmc, call: Call) -> Json:
    control = server.power_control(bmc, call.now) | {
        "PowerCapacityWatts": SUPPLIES * SUPPLY_WATTS,
        "PowerLimit": {"LimitInWatts": bmc.cap, "LimitException": "NoAction"},
    }
    supplies = [
        {
            "@odata.id": f"{CHASSIS}/Power#/PowerSupplies/{i}",
            "MemberId": str(i),
            "Name": name,
            **bmc.part("PSU", f"PowerSupplies/{name}"),
            "PowerCapacityWatts": SUPPLY_WATTS,
            "LineInputVoltage": bmc.reading(f"{name}Voltage", call.now),
            "PowerInputWatts": bmc.reading(f"{name}Input", call.now),
            "Status": OK,
        }
        for i, name in enumerate(numbered("PS", SUPPLIES))
    ]
    return {"PowerControl": [control], "PowerSupplies": supplies}


@TREE.handles("PATCH Chassis/1/Power")
def _set_power(bmc: NodeBmc, call: Call) -> Reply:
    controls = only(read_json(call.request.body), PowerControl=(list,)).get("PowerControl")
    control = controls[0] if isinstance(controls, list) and len(controls) == 1 else None
    limit = control.get("PowerLimit") if isinstance(control, dict) else None
    if not isinstance(limit, dict) or "LimitInWatts" not in limit:
        refuse(400, "PropertyMissing", "PowerControl/0/PowerLimit/LimitInWatts is missing.")
    return _cap(bmc, limit["LimitInWatts"])


@TREE.view("Chassis/1/EnvironmentMetrics", "EnvironmentMetrics.v1_3_0")
def _environment(bmc: NodeBmc, call: Call) -> Json:
    intake = {"Reading": bmc.reading("IntakeTemp", call.now), "DataSourceUri": f"{CHASSIS}/Sensors/IntakeTemp"}
    limit = _set_point(bmc.cap, LEAST, MOST) | {"DataSourceUri": f"{CHASSIS}/Controls/PowerLimit"}
    return server.environment(bmc, call) | {"TemperatureCelsius": intake, "PowerLimitWatts": limit}


@TREE.handles("PATCH Chassis/1/EnvironmentMetrics")
def _set_environment(bmc: NodeBmc, call: Call) -> Reply:
    return _cap(bmc, _wanted_limit(call))


@TREE.members("Chassis/1/Controls", "Control.v1_3_0", ["PowerLimit"])
def _control(bmc: NodeBmc, call: Call) -> Json:
    return {
        "Name": "Node power limit",
        "ControlType": "Power",
        "PhysicalContext": "Chassis",
        **_set_point(bmc.cap, LEAST, MOST),
        "SetPointUnits": "W",
        "Sensor": {"Reading": bmc.watts(call.now), "DataSourceUri": f"{CHASSIS}/Sensors/TotalPower"},
        "Status": OK,
    }


@TREE.handles("PATCH Chassis/1/Controls/PowerLimit")
def _set_control(bmc: NodeBmc, call: Call) -> Reply:
    return _cap(bmc, _wanted(read_json(call.request.body)))


def _set_point(cap: float | None, least: int, most: int) -> Json:
    mode = "Disabled" if cap is None else "Automatic"
    return {"SetPoint": cap, "AllowableMin": least, "AllowableMax": most, "ControlMode": mode}


def _wanted_limit(call: Call) -> float | None:
    limit = only(read_json(call.request.body), PowerLimitWatts=(dict,)).get("PowerLimitWatts")
    return _wanted(limit if isinstance(limit, dict) else {})


def _wanted(given: Mapping[str, object]) -> float | None:
    """The watts that a change of a set point asks for; None: no cap."""
    only(given, SetPoint=(int, float), ControlMode=(str,))
    if given.get("ControlMode") not in (None, "Automatic", "Disabled"):
        refuse(400, "PropertyValueNotInList", "ControlMode is Automatic or Disabled.")
    if given.get("ControlMode") == "Disabled":
        return None
    if "SetPoint" not in given:
        refuse(400, "PropertyMissing", "SetPoint is missing.")
    return given["SetPoint"]  # type: ignore[return-value]


def _cap(bmc: NodeBmc, watts: object) -> Reply:
    bmc.site.nodes.electricity.set_cap(bmc.idx, _within(watts, LEAST, MOST))
    return done()


def _within(watts: object, least: int, most: int) -> float | None:
    if watts is None:
        return None
    if type(watts) not in (int, float) or not least <= watts <= most:  # type: ignore[operator]
        refuse(400, "PropertyValueOutOfRange", f"The limit is from {least} to {most} W, or null for none.")
    return watts  # type: ignore[return-value]


# -- accelerators: each has environment metrics of its own


@TREE.view("Systems/1/Processors/*/EnvironmentMetrics", "EnvironmentMetrics.v1_3_0")
def _gpu_environment(bmc: NodeBmc, call: Call) -> Json | None:
    gpu = _which(bmc, call)
    if gpu < 0:
        return None
    watts, limit = bmc.gpu_watts(gpu, call.now), _set_point(bmc.gpu_cap(gpu), GPU_LEAST, GPU_MOST)
    return {"Name": "Environment", "PowerWatts": {"Reading": watts}, "PowerLimitWatts": limit}


@TREE.handles("PATCH Systems/1/Processors/*/EnvironmentMetrics")
def _set_gpu_environment(bmc: NodeBmc, call: Call) -> Reply:
    gpu = _which(bmc, call)
    if gpu < 0:
        return missing(call.path)
    bmc.site.nodes.electricity.set_gpu_cap(bmc.node, gpu, _within(_wanted_limit(call), GPU_LEAST, GPU_MOST))
    return done()


def _which(bmc: NodeBmc, call: Call) -> int:
    """The accelerator's number, from 0; -1: it is none."""
    names = numbered("GPU", bmc.gpus)
    return names.index(call.ids[0]) if call.ids[0] in names else -1


# -- metric reports


@TREE.view("TelemetryService", "TelemetryService.v1_3_2")
def _telemetry(bmc: NodeBmc, call: Call) -> Json:
    return {"Name": "Telemetry", "Status": OK, "MetricReports": link(f"{call.path}/MetricReports")}


TREE.collection("TelemetryService/MetricReports", "MetricReport", ["Power"])


@TREE.view("TelemetryService/MetricReports/Power")
def _report(bmc: NodeBmc, call: Call) -> Json:
    return power_report(bmc, call.now)


def power_report(bmc: NodeBmc, now: float) -> Json:
    """What the node draws, as a metric report."""
    value = {
        "MetricId": "PowerConsumedWatts",
        "MetricValue": str(bmc.watts(now)),
        "MetricProperty": f"{CHASSIS}/Sensors/TotalPower#/Reading",
        "Timestamp": bmc.site.date(now),
    }
    return resource(_REPORT, "MetricReport.v1_5_0", Timestamp=value["Timestamp"], MetricValues=[value])
