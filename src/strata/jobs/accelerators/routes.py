"""Accelerators of nodes."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.jobs.accelerators.service import AcceleratorService

_ROUTES = Routes(AcceleratorService, "hardware", tag="accelerators")
_ROUTES.get("list_accelerators", "/v1/accelerators", AcceleratorService.all)
