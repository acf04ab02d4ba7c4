"""The event service of Redfish controllers, as ``events_listen`` asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from strata.hardware.events.listen import REPORTS
from strata.hardware.redfish import events as redfish_events
from strata.hardware.redfish.client import RedfishClient


class RedfishSubscriptions:
    """Those of Redfish controllers."""

    def __init__(self, client: RedfishClient) -> None:
        self._client = client

    async def subscribe(self, address: str, destination: str, context: str) -> str:
        """Have what ``context`` says sent to ``destination``."""
        return await redfish_events.subscribe(
            self._client, address, destination=destination, context=context, reports=context == REPORTS
        )

    async def unsubscribe(self, address: str, path: str) -> None:
        """No more of it."""
        await redfish_events.unsubscribe(self._client, address, path)

    async def listening(self, address: str) -> Sequence[tuple[str, str, str]]:
        """Every subscription: path, destination, context."""
        return await redfish_events.listening(self._client, address)

    def stream(self, address: str) -> AsyncIterator[Mapping[str, object]]:
        """Server-sent events."""
        return redfish_events.stream(self._client, address)
