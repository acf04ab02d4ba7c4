"""All that there is below ``/redfish``: the machine itself, and the services of the protocol."""

from __future__ import annotations

from strata.api.redfish.protocol.app import RedfishApp
from strata.api.redfish.protocol.route import Route
from strata.api.redfish.resources import (
    accounts,
    aggregation,
    bios,
    chassis,
    events,
    fabrics,
    logs,
    managers,
    media,
    metadata,
    power_equipment,
    registries,
    root,
    sensors,
    sessions,
    storage,
    system_parts,
    systems,
    tasks,
    telemetry,
    update,
)

_OF_THE_MACHINE = (
    systems, system_parts, storage, bios, media, logs, chassis, sensors, managers, fabrics, power_equipment, telemetry,
    update, aggregation,
)  # fmt: skip
_OF_THE_SERVICE = (root, metadata, registries, sessions, accounts, tasks, events)

MACHINE: tuple[Route, ...] = tuple(route for module in _OF_THE_MACHINE for route in module.ROUTES)
ROUTES: tuple[Route, ...] = (*MACHINE, *(route for module in _OF_THE_SERVICE for route in module.ROUTES))

APP = RedfishApp(ROUTES)
