"""BASIL's inventory."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.platform.basil.service import BasilService

_ROUTES = Routes(BasilService, "node", tag="workload")
_ROUTES.get("basil_inventory", "/v1/basil/inventory", BasilService.inventory)
