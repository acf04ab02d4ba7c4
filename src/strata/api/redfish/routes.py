"""All that there is below ``/redfish``: one line per module."""

from __future__ import annotations

from strata.api.redfish import accounts, events, metadata, registries, resources, root, sessions, tasks
from strata.api.redfish.app import RedfishApp
from strata.api.redfish.route import Route

ROUTES: tuple[Route, ...] = (
    *root.ROUTES,
    *metadata.ROUTES,
    *registries.ROUTES,
    *resources.ROUTES,
    *sessions.ROUTES,
    *accounts.ROUTES,
    *tasks.ROUTES,
    *events.ROUTES,
)

APP = RedfishApp(ROUTES)
