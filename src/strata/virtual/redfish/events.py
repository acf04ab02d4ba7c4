"""The event service of a simulated BMC: subscriptions (HTTP push, syslog), the stream (SSE), and what they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strata.virtual.bmc.http import Pipe, Reply
from strata.virtual.redfish.body import (
    ODATA,
    OK,
    ROOT,
    Json,
    action,
    created,
    done,
    encode,
    link,
    missing,
    only,
    read_json,
    refuse,
    resource,
)
from strata.virtual.redfish.router import Call, Tree
from strata.virtual.redfish.site import Site

if TYPE_CHECKING:
    from strata.virtual.redfish.bmc import Bmc

MOST_SUBSCRIPTIONS = 16
SERVICE = f"{ROOT}/EventService"
_SYSLOG = {"OK": 6, "Warning": 4, "Critical": 2}
_SCHEMES = {"Redfish": ("http://", "https://"), "SyslogUDP": ("syslog://",)}
_TEXTS = ("Destination", "Context", "Protocol", "SubscriptionType", "EventFormatType", "DeliveryRetryPolicy")
_LISTS = ("EventTypes", "RegistryPrefixes", "ResourceTypes", "HttpHeaders", "SyslogFilters")
_PROPERTIES = {**dict.fromkeys(_TEXTS, (str,)), **dict.fromkeys(_LISTS, (list,)), "VerifyCertificate": (bool,)}
_SCHEMA = "EventDestination.v1_14_0"

TREE: Tree[Bmc] = Tree()


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
                self._send(subscription, report)

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
        kind = "#Event.v1_7_0.Event"
        event: Json = {"@odata.type": kind, "Id": str(self.sent), "Name": "Event", "Events": [record]}
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
                self._send(subscription, event)

    def _send(self, subscription: Subscription, message: Json) -> None:
        self._site.send(subscription.destination, encode(message | {"Context": subscription.context}), self._name)


@TREE.view("EventService", "EventService.v1_10_0")
def _service(bmc: Bmc, call: Call) -> Json:
    return {
        "Name": "Events",
        "ServiceEnabled": True,
        "Status": OK,
        "DeliveryRetryAttempts": 3,
        "DeliveryRetryIntervalSeconds": 1,
        "EventFormatTypes": _formats(bmc),
        "RegistryPrefixes": ["OEM", "ResourceEvent", "SensorEvent"],
        "ServerSentEventUri": f"{SERVICE}/SSE",
        "Subscriptions": link(f"{SERVICE}/Subscriptions"),
        "Actions": action(SERVICE, "EventService.SubmitTestEvent"),
    }


def _formats(bmc: Bmc) -> list[str]:
    return ["Event", "MetricReport"] if "TelemetryService" in bmc.services else ["Event"]


@TREE.members("EventService/Subscriptions", _SCHEMA, lambda bmc, call: bmc.events.subscriptions)
def _subscription(bmc: Bmc, call: Call) -> Json:
    return _shown(bmc.events.subscriptions[call.ids[0]])


def _shown(found: Subscription) -> Json:
    syslog = found.protocol != "Redfish"
    return {
        "Name": "Subscription",
        "Destination": found.destination,
        "Context": found.context,
        "Protocol": found.protocol,
        "SubscriptionType": "Syslog" if syslog else "RedfishEvent",
        "RegistryPrefixes": list(found.registries),
        **({} if syslog else {"EventFormatType": "MetricReport" if found.reports else "Event"}),
        "Status": OK,
    }


@TREE.handles("POST EventService/Subscriptions")
def _subscribe(bmc: Bmc, call: Call) -> Reply:
    body = only(read_json(call.request.body), **_PROPERTIES)
    destination, protocol = body.get("Destination"), body.get("Protocol")
    if not isinstance(destination, str) or protocol is None:
        refuse(400, "CreateFailedMissingReqProperties", "Destination and Protocol are needed.")
    if protocol not in _SCHEMES or not destination.startswith(_SCHEMES[str(protocol)]):
        refuse(400, "PropertyValueNotInList", f"Protocol is one of {', '.join(_SCHEMES)}, with a URI of that kind.")
    if len(bmc.events.subscriptions) >= MOST_SUBSCRIPTIONS:
        refuse(503, "EventSubscriptionLimitExceeded", f"There are {MOST_SUBSCRIPTIONS} subscriptions already.")
    if body.get("EventFormatType", "Event") not in _formats(bmc):
        refuse(400, "PropertyValueNotInList", f"EventFormatType is one of {', '.join(_formats(bmc))}.")
    registries = body.get("RegistryPrefixes")
    found = Subscription(
        destination=destination[:2048],
        context=str(body.get("Context") or "")[:1024],
        protocol=str(protocol),
        registries=tuple(map(str, registries)) if isinstance(registries, list) else (),
        reports=body.get("EventFormatType") == "MetricReport",
    )
    name = bmc.events.subscribe(found)
    bmc.attend(call.now)
    return created(resource(f"{SERVICE}/Subscriptions/{name}", _SCHEMA, **_shown(found)))


@TREE.handles("DELETE EventService/Subscriptions/*")
def _unsubscribe(bmc: Bmc, call: Call) -> Reply:
    gone = bmc.events.subscriptions.pop(call.ids[0], None)
    return missing(call.path) if gone is None else done()


@TREE.handles("GET EventService/SSE")
def _stream(bmc: Bmc, call: Call) -> Reply:
    bmc.attend(call.now)
    head = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache"), *ODATA)
    return Reply(200, headers=head, takeover=bmc.events.stream)


@TREE.handles("POST EventService/Actions/EventService.SubmitTestEvent")
def _test_event(bmc: Bmc, call: Call) -> Reply:
    message = str(read_json(call.request.body).get("Message") or "A test event.")[:1024]
    bmc.events.tell(call.now, "OK", message, "ResourceEvent.1.3.TestMessage", SERVICE)
    return done()
