"""Who a controller says that it, and what it controls, are."""

from __future__ import annotations

from strata.core.errors import NotOffered
from strata.hardware.bmc import Identity
from strata.hardware.redfish.bmc import text
from strata.hardware.redfish.client import RedfishClient, Target
from strata.hardware.redfish.find import manager, maybe, quirks
from strata.hardware.redfish.power import powered


async def read_identity(client: RedfishClient, target: Target) -> Identity:
    """From the resource that the address names, its manager and the service root."""
    features = await client.features(target.address)
    body = await powered(client, target)
    try:
        own = await maybe(client, target, await manager(client, target))
    except NotOffered:
        own = {}
    names = (await quirks(client, target, body)).names
    return Identity(
        vendor=text(body.get("Manufacturer")) or features.vendor,
        model=text(body.get("Model")) or features.product,
        serial=text(body.get("SerialNumber")),
        uuid=text(body.get("UUID")) or text(features.services.get("UUID")),
        firmware=text(own.get("FirmwareVersion")),
        protocol="redfish",
        quirks=names if target.bmc.etags == "as-told" else (*names, f"etags-{target.bmc.etags}"),
    )
