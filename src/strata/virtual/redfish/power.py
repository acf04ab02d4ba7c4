"""What a simulated node draws and how that is limited, in the three shapes that Redfish has had for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish import drawn as tree_drawn
from strata.virtual.redfish.body import OK, ROOT, Json, collection, done, link, only, read_json, refuse, resource
from strata.virtual.redfish.chassis import SUPPLIES, SUPPLY_WATTS
from strata.virtual.redfish.drawn import CHASSIS
from strata.virtual.redfish.router import Call, Deeds, Views
from strata.virtual.redfish.system import numbered

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

LEAST, MOST = 200, 2400
"""Watts: the caps that are accepted."""


def _power(bmc: NodeBmc, call: Call) -> Json:
    control = tree_drawn.control(bmc, call.now) | {
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
    return resource(call.path, "Power.v1_7_1", "Power", PowerControl=[control], PowerSupplies=supplies)


def _set_power(bmc: NodeBmc, call: Call) -> Reply:
    controls = only(read_json(call.request.body), PowerControl=(list,)).get("PowerControl")
    control = controls[0] if isinstance(controls, list) and len(controls) == 1 else None
    limit = control.get("PowerLimit") if isinstance(control, dict) else None
    if not isinstance(limit, dict) or "LimitInWatts" not in limit:
        refuse(400, "PropertyMissing", "PowerControl/0/PowerLimit/LimitInWatts is missing.")
    return _cap(bmc, limit["LimitInWatts"])


def _environment(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "EnvironmentMetrics.v1_3_0",
        "Environment",
        **tree_drawn.metrics(bmc, call.now),
        TemperatureCelsius={
            "Reading": bmc.reading("IntakeTemp", call.now), "DataSourceUri": f"{CHASSIS}/Sensors/IntakeTemp",
        },
        PowerLimitWatts={
            "SetPoint": bmc.cap,
            "AllowableMin": LEAST,
            "AllowableMax": MOST,
            "ControlMode": _mode(bmc),
            "DataSourceUri": f"{CHASSIS}/Controls/PowerLimit",
        },
    )  # fmt: skip


def _set_environment(bmc: NodeBmc, call: Call) -> Reply:
    limit = only(read_json(call.request.body), PowerLimitWatts=(dict,)).get("PowerLimitWatts")
    return _cap(bmc, wanted_cap(limit if isinstance(limit, dict) else {}))


def _controls(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Control", ["PowerLimit"])


def _control(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "Control.v1_3_0",
        "Node power limit",
        ControlType="Power",
        ControlMode=_mode(bmc),
        PhysicalContext="Chassis",
        SetPoint=bmc.cap,
        SetPointUnits="W",
        AllowableMin=LEAST,
        AllowableMax=MOST,
        Sensor={"Reading": bmc.watts(call.now), "DataSourceUri": f"{CHASSIS}/Sensors/TotalPower"},
        Status=OK,
    )


def _set_control(bmc: NodeBmc, call: Call) -> Reply:
    return _cap(bmc, wanted_cap(read_json(call.request.body)))


def _mode(bmc: NodeBmc) -> str:
    return "Disabled" if bmc.cap is None else "Automatic"


def wanted_cap(wanted: Mapping[str, object]) -> float | None:
    """The watts that a change of a set point asks for; None: no cap."""
    only(wanted, SetPoint=(int, float), ControlMode=(str,))
    if wanted.get("ControlMode") not in (None, "Automatic", "Disabled"):
        refuse(400, "PropertyValueNotInList", "ControlMode is Automatic or Disabled.")
    if wanted.get("ControlMode") == "Disabled":
        return None
    if "SetPoint" not in wanted:
        refuse(400, "PropertyMissing", "SetPoint is missing.")
    return wanted["SetPoint"]  # type: ignore[return-value]


def _cap(bmc: NodeBmc, watts: object) -> Reply:
    if watts is not None and (type(watts) not in (int, float) or not LEAST <= watts <= MOST):  # type: ignore[operator]
        refuse(400, "PropertyValueOutOfRange", f"The limit is from {LEAST} to {MOST} W, or null for none.")
    bmc.site.nodes.electricity.set_cap(bmc.idx, watts)  # type: ignore[arg-type]
    return done()


def _telemetry(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path, "TelemetryService.v1_3_2", "Telemetry", Status=OK, MetricReports=link(f"{call.path}/MetricReports")
    )


def _reports(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "MetricReport", ["Power"])


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
    return resource(_REPORT, "MetricReport.v1_5_0", "Power", Timestamp=value["Timestamp"], MetricValues=[value])


_REPORT = f"{ROOT}/TelemetryService/MetricReports/Power"

VIEWS: Views[NodeBmc] = {
    "Chassis/1/Power": _power,
    "Chassis/1/EnvironmentMetrics": _environment,
    "Chassis/1/Controls": _controls,
    "Chassis/1/Controls/PowerLimit": _control,
    "TelemetryService": _telemetry,
    "TelemetryService/MetricReports": _reports,
    "TelemetryService/MetricReports/Power": _report,
}

DEEDS: Deeds[NodeBmc] = {
    "PATCH Chassis/1/Power": _set_power,
    "PATCH Chassis/1/EnvironmentMetrics": _set_environment,
    "PATCH Chassis/1/Controls/PowerLimit": _set_control,
}
