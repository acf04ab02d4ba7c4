"""The boot networks, as they are declared and served."""

from __future__ import annotations

from litestar import get

from strata.api.rights import needs
from strata.api.services import Asked
from strata.provisioning.bootnets.records import NetworkList
from strata.provisioning.bootnets.service import BootNetworks


@get("/v1/networks", tags=["booting"], **needs("read", "boot"))
async def list_networks(ask: Asked) -> NetworkList:
    """All networks that machines boot from, and where the controller that answers serves them."""
    return await ask.of(BootNetworks).all(ask.who)
