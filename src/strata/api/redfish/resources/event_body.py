"""Events as Redfish clients get them, pushed or streamed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from strata.api.redfish.protocol.messages import STRATA, clean
from strata.hardware.events.records import EventView

Json = dict[str, Any]

GRADES: Mapping[str, str] = {"ok": "OK", "warning": "Warning", "critical": "Critical"}


def timestamp(seconds: float) -> str:
    """A time as Redfish writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def event_body(events: Sequence[EventView], context: str) -> Json:
    """Several events in one message; ``context`` is what the subscriber wants to see in it."""
    return message_of([_record(number, event) for number, event in enumerate(events)], str(events[-1].id), context)


def message_of(records: Sequence[Json], ident: str, context: str) -> Json:
    """The message around some records."""
    body: Json = {
        "@odata.type": "#Event.v1_9_0.Event",
        "Id": ident,
        "Name": "Events of the machine",
        "Events": list(records),
    }
    if context:
        body["Context"] = context
    return body


def _record(number: int, event: EventView) -> Json:
    text = clean(f"{event.node or event.bmc}: {event.message}" if event.node or event.bmc else event.message)
    grade = GRADES.get(event.severity, "Warning")
    record: Json = {
        "MemberId": str(number),
        "EventId": str(event.id),
        "EventType": "Alert",
        "EventTimestamp": timestamp(event.time),
        "Severity": grade,
        "MessageSeverity": grade,
        "Message": text,
        "MessageId": f"{STRATA}.Event",
        "MessageArgs": [text],
    }
    if event.node:
        record["OriginOfCondition"] = {"@odata.id": f"/redfish/v1/Systems/{event.node}"}
    return record
