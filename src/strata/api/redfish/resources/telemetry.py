"""Metrics of the fleet as a whole: how many nodes are in which state, and how many have power.

What a single node measures is with its enclosure (``sensors``): nothing here asks controllers.
"""

from __future__ import annotations

import time
from typing import get_args

from strata.api.redfish.protocol.route import Call, Json, Route, collection, link
from strata.api.redfish.resources.forms import ENABLED, resource, status, when
from strata.api.redfish.resources.ids import TELEMETRY
from strata.api.redfish.resources.needs import READ_STATUS
from strata.core.errors import NotFound
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


async def service(call: Call) -> Json:
    """What is measured."""
    return resource(
        TELEMETRY,
        "TelemetryService.v1_4_1",
        "TelemetryService",
        "Telemetry",
        ServiceEnabled=True,
        Status=dict(ENABLED),
        MetricDefinitions=link(_DEFINITIONS),
        MetricReportDefinitions=link(_REPORT_DEFINITIONS),
        MetricReports=link(_REPORTS),
    )


async def definitions(call: Call) -> Json:
    """Every metric."""
    return collection(_DEFINITIONS, "MetricDefinition", "Metrics", [f"{_DEFINITIONS}/{metric}" for metric in METRICS])


async def definition(call: Call) -> Json:
    """One of them."""
    ident = call.params["metric"]
    if ident not in METRICS:
        raise NotFound("no such metric", where=ident[:80])
    return resource(
        f"{_DEFINITIONS}/{ident}",
        "MetricDefinition.v1_3_5",
        ident,
        METRICS[ident],
        MetricType="Numeric",
        MetricDataType="Integer",
        Implementation="Calculated",
        Calculable="NonSummable",
        IsLinear=True,
        MinReadingRange=0,
        Units="{nodes}",
    )


async def report_definitions(call: Call) -> Json:
    """Every report."""
    members = [f"{_REPORT_DEFINITIONS}/{_FLEET}"]
    return collection(_REPORT_DEFINITIONS, "MetricReportDefinition", "Reports", members)


async def report_definition(call: Call) -> Json:
    """One: made when it is asked for."""
    _known(call)
    return resource(
        f"{_REPORT_DEFINITIONS}/{_FLEET}",
        "MetricReportDefinition.v1_4_7",
        _FLEET,
        "The fleet at a glance",
        MetricReportDefinitionType="OnRequest",
        MetricReportDefinitionEnabled=True,
        ReportActions=["LogToMetricReportsCollection"],
        ReportUpdates="Overwrite",
        Status=status("Enabled", "ok"),
        Metrics=[{"MetricId": metric} for metric in METRICS],
        MetricReport=link(f"{_REPORTS}/{_FLEET}"),
    )


async def reports(call: Call) -> Json:
    """Every report."""
    return collection(_REPORTS, "MetricReport", "Reports", [f"{_REPORTS}/{_FLEET}"])


async def report(call: Call) -> Json:
    """The fleet as it is now, as far as the caller may see it."""
    _known(call)
    now = when(time.time())
    seen = await call.of(SystemService).status(call.who)
    values = {"Nodes": seen.nodes}
    values |= {f"Nodes_{state}": seen.by_state.get(state, 0) for state in get_args(State)}
    for power in _POWERS:
        values[f"Power_{power}"] = len(await call.of(NodeService).node_names(call.who, f"fact:power={power}"))
    return resource(
        f"{_REPORTS}/{_FLEET}",
        "MetricReport.v1_5_2",
        _FLEET,
        "The fleet at a glance",
        Timestamp=now,
        MetricReportDefinition=link(f"{_REPORT_DEFINITIONS}/{_FLEET}"),
        MetricValues=[
            {"MetricId": metric, "MetricValue": str(value), "Timestamp": now} for metric, value in values.items()
        ],
    )


def _known(call: Call) -> None:
    if call.params["report"] != _FLEET:
        raise NotFound("no such report", where=call.params["report"][:80])


_RIGHTS = {"GET": READ_STATUS}

ROUTES = (
    Route(template=TELEMETRY, get=service, rights=_RIGHTS),
    Route(template=_DEFINITIONS, get=definitions, rights=_RIGHTS),
    Route(template=f"{_DEFINITIONS}/{{metric}}", get=definition, rights=_RIGHTS),
    Route(template=_REPORT_DEFINITIONS, get=report_definitions, rights=_RIGHTS),
    Route(template=f"{_REPORT_DEFINITIONS}/{{report}}", get=report_definition, rights=_RIGHTS),
    Route(template=_REPORTS, get=reports, rights=_RIGHTS),
    Route(template=f"{_REPORTS}/{{report}}", get=report, rights=_RIGHTS),
)
