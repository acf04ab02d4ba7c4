"""The boot networks, as they are declared and served."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.provisioning.bootnets.service import BootNetworks

_ROUTES = Routes(BootNetworks, "boot", tag="booting")
_ROUTES.get("list_networks", "/v1/networks", BootNetworks.all)
