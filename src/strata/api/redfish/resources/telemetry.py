"""Metrics of the fleet as a whole: how many nodes are in which state, and how many have power.

What a single node measures is with its enclosure (``sensors``): nothing here asks BMCs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import get_args

from strata.api.redfish.protocol.route import Call, Json, Routes, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources.forms import service, status, when
from strata.api.redfish.resources.ids import TELEMETRY
from strata.api.redfish.resources.needs import READ_STATUS
from strata.core.state import State
from strata.fleet.nodes.service import NodeService
from strata.fleet.system.service import SystemService

_DEFINITIONS = f"{TELEMETRY}/MetricDefinitions"
_REPORT_DEFINITIONS = f"{TELEMETRY}/MetricReportDefinitions"
_REPORTS = f"{TELEMETRY}/MetricReports"
_FLEET = "Fleet"
_POWERS = ("on", "off", "unknown")

METRICS: dict[str, str] = {
    "Nodes": "All nodes",
    **{f"Nodes_{state}": f"Nodes that are {state}" for state in get_args(State)},
    **{f"Power_{power}": f"Nodes whose power is {power}" for power in _POWERS},
}
"""Every metric, and what it counts."""

ROUTES = Routes()


@ROUTES.get(TELEMETRY, READ_STATUS)
async def _service(call: Call) -> Json:
    return service(
        TELEMETRY,
        "Telemetry",
        MetricDefinitions=link(_DEFINITIONS),
        MetricReportDefinitions=link(_REPORT_DEFINITIONS),
        MetricReports=link(_REPORTS),
    )


async def _metrics(call: Call) -> Mapping[str, str]:
    return METRICS


@ROUTES.members(f"{_DEFINITIONS}/{{metric}}", "MetricDefinition", "Metrics", READ_STATUS, _metrics)
async def _definition(call: Call, path: str, counts: str) -> Json:
    return resource(
        path,
        "MetricDefinition",
        counts,
        MetricType="Numeric",
        MetricDataType="Integer",
        Implementation="Calculated",
        Calculable="NonSummable",
        IsLinear=True,
        MinReadingRange=0,
        Units="{nodes}",
    )


async def _all_reports(call: Call) -> Mapping[str, str]:
    return {_FLEET: "The fleet at a glance"}


@ROUTES.members(f"{_REPORT_DEFINITIONS}/{{report}}", "MetricReportDefinition", "Reports", READ_STATUS, _all_reports)
async def _report_definition(call: Call, path: str, name: str) -> Json:
    """Made when it is asked for."""
    return resource(
        path,
        "MetricReportDefinition",
        name,
        MetricReportDefinitionType="OnRequest",
        MetricReportDefinitionEnabled=True,
        ReportActions=["LogToMetricReportsCollection"],
        ReportUpdates="Overwrite",
        Status=status("Enabled", "ok"),
        Metrics=[{"MetricId": metric} for metric in METRICS],
        MetricReport=link(f"{_REPORTS}/{_FLEET}"),
    )


@ROUTES.members(f"{_REPORTS}/{{report}}", "MetricReport", "Reports", READ_STATUS, _all_reports)
async def _report(call: Call, path: str, name: str) -> Json:
    """The fleet as it is now, as far as the caller may see it."""
    now = when(time.time())
    seen = await call.of(SystemService).status(call.who)
    values = {"Nodes": seen.nodes}
    values |= {f"Nodes_{state}": seen.by_state.get(state, 0) for state in get_args(State)}
    for power in _POWERS:
        values[f"Power_{power}"] = len(await call.of(NodeService).node_names(call.who, f"fact:power={power}"))
    return resource(
        path,
        "MetricReport",
        name,
        Timestamp=now,
        MetricReportDefinition=link(f"{_REPORT_DEFINITIONS}/{_FLEET}"),
        MetricValues=[
            {"MetricId": metric, "MetricValue": str(value), "Timestamp": now} for metric, value in values.items()
        ],
    )
