"""Delivery as the API's tests meet it: one node has drifted, and every node has a file."""

from __future__ import annotations

from typing import Any, cast

from strata.fleet.access.principal import Principal
from strata.platform.delivery.records import DriftItem, DriftList, RenderedFile, RenderedOverlay
from strata.platform.delivery.service import DeliveryService

_MOTD = RenderedFile(
    path="/etc/motd", mode="0644", owner="root", group="", drift="report", members=(), place="a.yaml", content="hello\n"
)


class FakeDelivery:
    """Answers as ``DeliveryService`` does."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade

    async def drift(self, who: Principal, select: str) -> DriftList:
        names = await self._facade.node_names(who, select)
        items = (DriftItem(node=name, what="file", where="/etc/motd", how="is missing") for name in names[:1])
        return DriftList(items=tuple(items))

    async def rendered(self, who: Principal, node: str) -> RenderedOverlay:
        await self._facade.node(who, node)
        return RenderedOverlay(node=node, revision="0123456789ab", digest="sha256:0", files=(_MOTD,), rest={})


def fake_delivery(facade: Any) -> DeliveryService:
    """For whoever asks for the service."""
    return cast("DeliveryService", FakeDelivery(facade))
