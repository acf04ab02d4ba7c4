"""The event service of a simulated BMC: subscriptions and the stream."""

from __future__ import annotations

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.bmc import Bmc
from strata.virtual.redfish.body import (
    ODATA,
    OK,
    ROOT,
    Json,
    collection,
    created,
    done,
    link,
    missing,
    only,
    read_json,
    refuse,
    resource,
)
from strata.virtual.redfish.events import MOST_SUBSCRIPTIONS, Subscription
from strata.virtual.redfish.router import Call, Deeds, Views

SERVICE = f"{ROOT}/EventService"
_SCHEMES = {"Redfish": ("http://", "https://"), "SyslogUDP": ("syslog://",)}
_PROPERTIES = {
    "Destination": (str,),
    "Context": (str,),
    "Protocol": (str,),
    "SubscriptionType": (str,),
    "EventFormatType": (str,),
    "EventTypes": (list,),
    "RegistryPrefixes": (list,),
    "ResourceTypes": (list,),
    "HttpHeaders": (list,),
    "DeliveryRetryPolicy": (str,),
    "VerifyCertificate": (bool,),
    "SyslogFilters": (list,),
}


def _service(bmc: Bmc, call: Call) -> Json:
    return resource(
        call.path,
        "EventService.v1_10_0",
        "Events",
        ServiceEnabled=True,
        Status=OK,
        DeliveryRetryAttempts=3,
        DeliveryRetryIntervalSeconds=1,
        EventFormatTypes=_formats(bmc),
        RegistryPrefixes=["OEM", "ResourceEvent", "SensorEvent"],
        ServerSentEventUri=f"{SERVICE}/SSE",
        Subscriptions=link(f"{SERVICE}/Subscriptions"),
        Actions={"#EventService.SubmitTestEvent": {"target": f"{SERVICE}/Actions/EventService.SubmitTestEvent"}},
    )


def _formats(bmc: Bmc) -> list[str]:
    return ["Event", "MetricReport"] if "TelemetryService" in bmc.services else ["Event"]


def _subscriptions(bmc: Bmc, call: Call) -> Json:
    return collection(call.path, "EventDestination", bmc.events.subscriptions)


def _subscription(bmc: Bmc, call: Call) -> Json | None:
    found = bmc.events.subscriptions.get(call.ids[0])
    return None if found is None else _body(call.path, found)


def _body(path: str, found: Subscription) -> Json:
    syslog = found.protocol != "Redfish"
    return resource(
        path,
        "EventDestination.v1_14_0",
        "Subscription",
        Destination=found.destination,
        Context=found.context,
        Protocol=found.protocol,
        SubscriptionType="Syslog" if syslog else "RedfishEvent",
        RegistryPrefixes=list(found.registries),
        **({} if syslog else {"EventFormatType": "MetricReport" if found.reports else "Event"}),
        Status=OK,
    )


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
    return created(_body(f"{SERVICE}/Subscriptions/{name}", found))


def _unsubscribe(bmc: Bmc, call: Call) -> Reply:
    gone = bmc.events.subscriptions.pop(call.ids[0], None)
    return missing(call.path) if gone is None else done()


def _stream(bmc: Bmc, call: Call) -> Reply:
    bmc.attend(call.now)
    head = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache"), *ODATA)
    return Reply(200, headers=head, takeover=bmc.events.stream)


def _test_event(bmc: Bmc, call: Call) -> Reply:
    message = str(read_json(call.request.body).get("Message") or "A test event.")[:1024]
    bmc.events.tell(call.now, "OK", message, "ResourceEvent.1.3.TestMessage", SERVICE)
    return done()


VIEWS: Views[Bmc] = {
    "EventService": _service,
    "EventService/Subscriptions": _subscriptions,
    "EventService/Subscriptions/*": _subscription,
}

DEEDS: Deeds[Bmc] = {
    "POST EventService/Subscriptions": _subscribe,
    "DELETE EventService/Subscriptions/*": _unsubscribe,
    "GET EventService/SSE": _stream,
    "POST EventService/Actions/EventService.SubmitTestEvent": _test_event,
}
