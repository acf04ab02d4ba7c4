"""How things are cabled."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.api.services import Select
from strata.hardware.fabric.service import FabricService

_ROUTES = Routes(FabricService, "hardware", tag="fabric")
_ROUTES.get("show_fabric", "/v1/fabric", FabricService.graph)
_ROUTES.get("near", "/v1/fabric/near", FabricService.near, 404, select=Select)
