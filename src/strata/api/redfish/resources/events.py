"""EventService: events of the hardware, pushed to subscribers or streamed to whoever listens."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from strata.api import sse
from strata.api.redfish.protocol.bodies import change, missing, one_of, parameters
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.messages import STRATA, clean
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Routes, Stream, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources.forms import HEALTH, service, when
from strata.api.redfish.resources.push import ATTEMPTS, RETRY_AFTER, EventPush, Subscription, event_body, message_of
from strata.api.services import Watchers
from strata.core.errors import StrataError
from strata.core.urls import refuse_login, shown
from strata.fleet.access.principal import Principal, Right
from strata.hardware.alerts.service import AlertService
from strata.hardware.events.records import EventView

_SERVICE = f"{ROOT}/EventService"
_SUBSCRIPTIONS = f"{_SERVICE}/Subscriptions"
SSE = f"{_SERVICE}/SSE"
_TEST = "EventService.SubmitTestEvent"
_READ = Right("read", "alert")
_SEE = Right("read", "webhook")
_DESTINATION = re.compile(r"https?://[^\x00-\x20\x7f]{1,2000}\Z")
_WRITABLE: Mapping[str, type] = {"Context": str, "VerifyCertificate": bool}
_CREATABLE: Mapping[str, type] = {
    **_WRITABLE,
    "Name": str,
    "Destination": str,
    "Protocol": str,
    "EventFormatType": str,
    "SubscriptionType": str,
    "DeliveryRetryPolicy": str,
    "Severities": list,
    "RegistryPrefixes": list,
}
_ONLY: Mapping[str, str] = {
    "Protocol": "Redfish",
    "EventFormatType": "Event",
    "SubscriptionType": "RedfishEvent",
    "DeliveryRetryPolicy": "RetryForever",
}
_SEVERITY_OF = {grade: severity for severity, grade in HEALTH.items()}

_encode = msgspec.json.Encoder().encode

ROUTES = Routes()


@ROUTES.get(_SERVICE, _READ)
async def _service(call: Call) -> Json:
    return service(
        _SERVICE,
        "Events",
        enabled=call.services.find(EventPush) is not None,
        DeliveryRetryAttempts=ATTEMPTS,
        DeliveryRetryIntervalSeconds=RETRY_AFTER,
        EventFormatTypes=["Event"],
        RegistryPrefixes=["Strata"],
        Severities=list(_SEVERITY_OF),
        ServerSentEventUri=SSE,
        Subscriptions=link(_SUBSCRIPTIONS),
        Actions={f"#{_TEST}": {"target": f"{_SERVICE}/Actions/{_TEST}"}},
    )


@ROUTES.get(_SUBSCRIPTIONS, _SEE)
async def subscriptions(call: Call) -> Json:
    paths = [f"{_SUBSCRIPTIONS}/{s.id}" for s in _push(call).all()]
    return collection(_SUBSCRIPTIONS, "EventDestination", "Event subscriptions", paths)


@ROUTES.get(f"{_SUBSCRIPTIONS}/{{subscription}}", _SEE)
async def subscription(call: Call) -> Json:
    return _resource(call, _push(call).get(call.params["subscription"]))


@ROUTES.post(_SUBSCRIPTIONS, Right("create", "webhook"))
async def subscribe(call: Call) -> Reply:
    """Send events somewhere from now on."""
    given = change(call, _CREATABLE, {})
    for name in ("Destination", "Protocol"):
        if given.get(name) is None:
            raise missing(name)
    for name, only in _ONLY.items():
        if given.get(name) is not None:
            one_of(given[name], (only,), name)
    if not _DESTINATION.match(given["Destination"]):
        raise rejected(400, "PropertyValueError", "Destination", about="Destination", hint="give an http(s) URL")
    refuse_login(
        given["Destination"], "Destination", hint="give the receiver an address with a secret part in its path"
    )
    for prefix in given.get("RegistryPrefixes") or ():
        one_of(str(prefix), ("Strata",), "RegistryPrefixes")
    wanted = [str(item) for item in given.get("Severities") or ()]
    made = await _push(call).create(
        call.who,
        Subscription(
            id="",
            destination=given["Destination"],
            context=_context(given),
            severities=tuple(_SEVERITY_OF[one_of(item, _SEVERITY_OF, "Severities")] for item in wanted),
            verify=given.get("VerifyCertificate") is not False,
            created=0.0,
            author="",
        ),
    )
    return Reply(status=201, body=_resource(call, made), headers={"Location": f"{_SUBSCRIPTIONS}/{made.id}"})


@ROUTES.patch(f"{_SUBSCRIPTIONS}/{{subscription}}", Right("change", "webhook"))
async def update(call: Call) -> Json:
    """Change what a receiver sees in each message, or whether its certificate matters."""
    found = _push(call).get(call.params["subscription"])
    given = change(call, _WRITABLE, _resource(call, found))
    verify = given.get("VerifyCertificate")
    changed = msgspec.structs.replace(
        found,
        context=_context(given) if "Context" in given else found.context,
        verify=found.verify if verify is None else verify,
    )
    await _push(call).replace(call.who, changed)
    return _resource(call, changed)


@ROUTES.delete(f"{_SUBSCRIPTIONS}/{{subscription}}", Right("delete", "webhook"))
async def unsubscribe(call: Call) -> Reply:
    await _push(call).delete(call.who, call.params["subscription"])
    return Reply(status=204)


@ROUTES.post(f"{_SERVICE}/Actions/{_TEST}", Right("change", "webhook"))
async def submit_test_event(call: Call) -> Reply:
    """Send an event that means nothing to every receiver."""
    accepted: Mapping[str, type] = {
        "EventId": str,
        "EventTimestamp": str,
        "Message": str,
        "MessageArgs": list,
        "MessageId": str,
        "MessageSeverity": str,
        "Severity": str,
        "EventType": str,
        "EventGroupId": int,
        "OriginOfCondition": str,
    }
    given = parameters(call, _TEST, accepted)
    grade = given.get("MessageSeverity") or given.get("Severity") or "OK"
    text = clean(given.get("Message") or "A test event")
    record: dict[str, Any] = {
        "MemberId": "0",
        "EventType": given.get("EventType") or "Alert",
        "EventId": clean(given.get("EventId") or "test"),
        "EventTimestamp": clean(given.get("EventTimestamp") or when(time.time())),
        "Severity": one_of(grade, _SEVERITY_OF, "MessageSeverity", _TEST),
        "MessageSeverity": grade,
        "Message": text,
        "MessageId": clean(given.get("MessageId") or f"{STRATA}.TestEvent"),
        "MessageArgs": [clean(str(arg)) for arg in given.get("MessageArgs") or [text]][:20],
    }
    if given.get("OriginOfCondition"):
        record["OriginOfCondition"] = link(clean(given["OriginOfCondition"]))
    _push(call).publish_message(message_of([record], "test", ""))
    return Reply(status=204)


@ROUTES.get(SSE, _READ, media="text/event-stream")
async def stream(call: Call) -> Stream:
    """Events as they come, as server-sent events."""
    watchers = call.of(Watchers)
    watchers.check_room()
    resume = call.resume.strip()
    since = int(resume) if resume.isascii() and resume.isdigit() and len(resume) < 18 else None
    events = await call.of(AlertService).follow(call.who, "*", since)
    lines = _lines(events, watchers, _push(call), call.who)
    # Begun here, so that closing it lets go of the events whatever happens to the connection.
    await anext(lines)
    return Stream(lines=lines)


async def _lines(
    events: AsyncIterator[Sequence[EventView]], watchers: Watchers, push: EventPush, who: Principal
) -> AsyncGenerator[bytes, None]:
    """The stream. Ends when the client goes or is sent away, or when the service stops."""
    subscription, sent_away = push.open_stream(who)
    try:
        async with contextlib.aclosing(sse.watched(events, watchers, sent_away)) as parts:
            await anext(parts)
            yield b""
            yield b": Strata\n\n"
            async for batch in parts:
                if batch is None:
                    yield sse.STILL_HERE
                elif batch:
                    yield b"id: %d\ndata: %s\n\n" % (batch[-1].id, _encode(event_body(batch, subscription.context)))
    except StrataError:
        # The answer has begun, so its status cannot say it; the client reconnects and resumes.
        return
    finally:
        push.close_stream(subscription.id)


def _push(call: Call) -> EventPush:
    return call.of(EventPush)


def _context(given: Mapping[str, Any]) -> str:
    return clean(given.get("Context") or "")


def _resource(call: Call, subscription: Subscription) -> Json:
    trouble = _push(call).trouble(subscription.id)
    wanted = subscription.severities or tuple(HEALTH)
    # Whoever subscribed finds its own again by it; to others it would give the right to speak to the receiver.
    own = subscription.author == call.who.name
    destination = subscription.destination if own else shown(subscription.destination)
    return resource(
        f"{_SUBSCRIPTIONS}/{subscription.id}",
        "EventDestination",
        "Event subscription",
        Destination=f"{call.base}{SSE}" if subscription.stream else destination,
        Context=subscription.context,
        Protocol="Redfish",
        EventFormatType="Event",
        SubscriptionType="SSE" if subscription.stream else "RedfishEvent",
        DeliveryRetryPolicy="RetryForever",
        RegistryPrefixes=["Strata"],
        Severities=[HEALTH[severity] for severity in wanted],
        VerifyCertificate=subscription.verify,
        Status={"State": "Enabled", "Health": "Warning" if trouble else "OK"},
    )
