"""Who listens to a BMC, and what they are sent: subscriptions (HTTP push, syslog) and streams (SSE)."""

from __future__ import annotations

import msgspec

from strata.virtual.bmc.http import Pipe
from strata.virtual.redfish.body import Json, encode, link
from strata.virtual.redfish.site import Site

MOST_SUBSCRIPTIONS = 16

_SYSLOG = {"OK": 6, "Warning": 4, "Critical": 2}


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Where events go."""

    destination: str
    context: str = ""
    protocol: str = "Redfish"
    registries: tuple[str, ...] = ()
    """Only of these message registries; none: of all."""
    reports: bool = False
    """Metric reports, and not events."""


class EventDesk:
    """The events of one BMC."""

    def __init__(self, site: Site, name: str) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.streams: set[Pipe] = set()
        self.sent = 0
        self._site = site
        self._name = name
        self._count = 0

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self.subscriptions or self.streams)

    @property
    def reported(self) -> bool:
        """Whether anybody wants metric reports."""
        return any(one.reports for one in self.subscriptions.values())

    def report(self, report: Json) -> None:
        """Send a metric report to everybody who wants them."""
        for subscription in self.subscriptions.values():
            if subscription.reports:
                body = encode(report | {"Context": subscription.context})
                self._site.send(subscription.destination, body, self._name)

    def subscribe(self, subscription: Subscription) -> str:
        """The id of the new subscription."""
        self._count += 1
        self.subscriptions[str(self._count)] = subscription
        return str(self._count)

    def forget(self) -> None:
        """What a restart does to a BMC's memory."""
        self.subscriptions = {k: v for k, v in self.subscriptions.items() if v.protocol != "Redfish"}
        for stream in list(self.streams):
            stream.close()

    def stream(self, pipe: Pipe) -> None:
        """Send events here too, as server-sent events."""
        self.streams.add(pipe)
        pipe.lost = lambda: self.streams.discard(pipe)
        pipe.write(b": welcome\n\n")

    def tell(
        self,
        now: float,
        severity: str,
        message: str,
        message_id: str,
        origin: str,
        *,
        arguments: tuple[str, ...] = (),
        entry: str = "",
    ) -> None:
        """Tell everybody who listens."""
        if not self.heard:
            return
        self.sent += 1
        record: Json = {
            "MemberId": "0",
            "EventType": "Alert",
            "EventId": str(self.sent),
            "EventTimestamp": self._site.date(now),
            "Severity": severity,
            "MessageSeverity": severity,
            "Message": message,
            "MessageId": message_id,
            "MessageArgs": list(arguments),
            "OriginOfCondition": link(origin),
        }
        if entry:
            record["LogEntry"] = link(entry)
        event: Json = {
            "@odata.type": "#Event.v1_7_0.Event",
            "Id": str(self.sent),
            "Name": "Event",
            "Events": [record],
        }
        for pipe in list(self.streams):
            pipe.write(b"id: %d\ndata: %b\n\n" % (self.sent, encode(event)))
        for subscription in self.subscriptions.values():
            if subscription.reports:
                continue
            if subscription.registries and message_id.partition(".")[0] not in subscription.registries:
                continue
            if subscription.protocol.startswith("Syslog"):
                head = f"<{3 * 8 + _SYSLOG[severity]}>1 {record['EventTimestamp']} {self._name} bmc - - -"
                self._site.send(subscription.destination, f"{head} {message}".encode(), self._name)
            else:
                body = encode(event | {"Context": subscription.context})
                self._site.send(subscription.destination, body, self._name)
