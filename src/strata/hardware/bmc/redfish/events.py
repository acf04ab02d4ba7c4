"""Redfish's EventService: subscriptions that push to us, and the stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from urllib.parse import urlsplit

from strata.core.errors import DeviceError, NotOffered
from strata.core.input.foreign import read_json
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import items, path_of, text
from strata.hardware.bmc.redfish.find import linked, service

STREAM = "text/event-stream"
MOST_EVENT = 1 << 20
"""Bytes in one server-sent event; a longer one ends the stream."""
CONTEXT = "strata"
"""What our subscriptions to events are known by,"""
REPORTS = "strata-reports"
"""and those to metric reports."""


def _event(data: bytes) -> Json | None:
    try:
        found = read_json(data).value
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class RedfishSubscriptions:
    """The event services of all BMCs."""

    def __init__(self, client: RedfishClient) -> None:
        self._client = client

    async def subscribe(self, address: str, destination: str, context: str) -> str:
        """Have events (``CONTEXT``) or metric reports (``REPORTS``) pushed to ``destination``; the path of the
        subscription. ``NotOffered`` without an EventService, or by one that does not push reports."""
        reports = context == REPORTS
        target = self._client.target(address)
        events = await service(self._client, target, "EventService")
        if events.get("ServiceEnabled") is False:
            raise NotOffered("its event service is switched off", node=target.bmc.base)
        body: dict[str, object] = {"Destination": destination, "Context": context, "Protocol": "Redfish"}
        kinds, formats = events.get("EventTypesForSubscription"), events.get("EventFormatTypes")
        if reports and not (isinstance(formats, list) and "MetricReport" in formats):
            raise NotOffered("it does not push metric reports", node=target.bmc.base)
        if isinstance(formats, list):
            body["EventFormatType"] = "MetricReport" if reports else "Event"
        elif isinstance(kinds, list) and kinds:
            body["EventTypes"] = [kind for kind in kinds if isinstance(kind, str)]  # before 2018 one had to say which
        where = linked(target, events, "Subscriptions", what="event subscriptions")
        answer = await self._client.request(address, "POST", where, body)
        path = path_of(target.bmc, urlsplit(answer.location).path) or path_of(target.bmc, answer.body)
        if not path:
            ours = [at for at, to, about in await self.listening(address) if to == destination and about == context]
            path = ours[0] if ours else ""
        if not path:
            raise DeviceError("it accepted a subscription, but does not list it", node=target.bmc.base)
        return path

    async def unsubscribe(self, address: str, path: str) -> None:
        """End a subscription; one that is gone already has ended."""
        own = path_of(self._client.bmc(address), path)
        if not own:
            raise DeviceError("not a subscription of this BMC", node=address, request=path[:200])
        try:
            await self._client.request(address, "DELETE", own)
        except NotOffered:
            return

    async def listening(self, address: str) -> Sequence[tuple[str, str, str]]:
        """Path, destination and context of every subscription, whoever made it."""
        target = self._client.target(address)
        events = await service(self._client, target, "EventService")
        path = linked(target, events, "Subscriptions", what="event subscriptions")
        return [
            (path_of(target.bmc, body), text(body.get("Destination"), 2048), text(body.get("Context"), 1024))
            for body in items(await self._client.tree(address, path), "Members")
        ]

    async def stream(self, address: str) -> AsyncIterator[Mapping[str, object]]:
        """Events as they happen, until closed. ``NotOffered`` without a stream, ``DeviceError`` when it breaks."""
        target = self._client.target(address)
        path = await self._stream_path(target)
        async with self._client.stream(address, path, STREAM) as reader:
            lines: list[bytes] = []
            size = 0
            buffer = b""
            async for chunk in reader.iter_any():
                *whole, buffer = (buffer + chunk).replace(b"\r\n", b"\n").split(b"\n")
                for line in whole:
                    if line.startswith(b"data:"):
                        lines.append(line[5:].lstrip())
                        size += len(line)
                    elif not line and lines:
                        event = _event(b"\n".join(lines))
                        lines, size = [], 0
                        if event is not None:
                            yield event
                if size + len(buffer) > MOST_EVENT:
                    raise DeviceError(f"an event is longer than {MOST_EVENT} bytes", node=target.bmc.base)
        raise DeviceError("the stream of events broke off", node=target.bmc.base)

    async def _stream_path(self, target: Target) -> str:
        events = await service(self._client, target, "EventService")
        uri = text(events.get("ServerSentEventUri"), 1024).removeprefix(target.bmc.origin).removeprefix(target.bmc.path)
        if not uri.startswith("/redfish/"):
            raise NotOffered("it has no stream of events", node=target.bmc.base)
        return uri
