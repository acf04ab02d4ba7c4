"""All that there is below ``/redfish``: the machine itself, and the services of the protocol."""

from __future__ import annotations

from strata.api.redfish.protocol.app import RedfishApp
from strata.api.redfish.protocol.route import Route
from strata.api.redfish.resources import (
    accounts,
    aggregation,
    chassis,
    events,
    fabrics,
    logs,
    managers,
    parts,
    power_equipment,
    root,
    sensors,
    sessions,
    systems,
    tasks,
    telemetry,
    update,
)

_OF_THE_MACHINE = (
    systems, parts, logs, chassis, sensors, managers, fabrics, power_equipment, telemetry,
    update, aggregation,
)  # fmt: skip
_OF_THE_SERVICE = (root, sessions, accounts, tasks, events)

MACHINE: tuple[Route, ...] = tuple(route for module in _OF_THE_MACHINE for route in module.ROUTES)
ROUTES: tuple[Route, ...] = (*MACHINE, *(route for module in _OF_THE_SERVICE for route in module.ROUTES))

APP = RedfishApp(ROUTES)
