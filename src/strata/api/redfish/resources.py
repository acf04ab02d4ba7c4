"""Every route of the resources: the machine itself, in front of the protocol's own services."""

from __future__ import annotations

from strata.api.redfish import (
    aggregation,
    bios,
    chassis,
    fabrics,
    logs,
    managers,
    media,
    power_equipment,
    sensors,
    storage,
    system_parts,
    systems,
    telemetry,
    update,
)
from strata.api.redfish.route import Route

ROUTES: tuple[Route, ...] = (
    *systems.ROUTES,
    *system_parts.ROUTES,
    *storage.ROUTES,
    *bios.ROUTES,
    *media.ROUTES,
    *logs.ROUTES,
    *chassis.ROUTES,
    *sensors.ROUTES,
    *managers.ROUTES,
    *fabrics.ROUTES,
    *power_equipment.ROUTES,
    *telemetry.ROUTES,
    *update.ROUTES,
    *aggregation.ROUTES,
)
