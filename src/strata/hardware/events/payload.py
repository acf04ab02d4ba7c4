"""What BMCs send, say in their logs and measure, as events. Everything in it is hostile until it is cleaned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest
from strata.hardware.bmc.protocol import EMPTY, LogEntry, Reading, Severity
from strata.hardware.events.records import EventSource, HardwareEvent
from strata.hardware.events.site import Site
from strata.hardware.events.words import (
    KEY_MOST,
    MESSAGE_MOST,
    RANK,
    believable,
    bounded,
    key_of,
    moment,
    plain,
    power_told,
    sensor_key,
    severity_of,
)

AT_ONCE = 128
"""Events that are taken from one payload or one reading of a log; how many more there were is told in one."""


def from_payload(payload: object, site: Site, source: EventSource, now: float) -> list[HardwareEvent]:
    """The events in a Redfish ``Event``; none in a metric report. ``BadRequest`` if it is neither."""
    if not isinstance(payload, Mapping):
        raise BadRequest("not a JSON object", where="body", hint="send a Redfish Event")
    records = payload.get("Events")
    if is_report(payload):
        return []
    if not isinstance(records, list):
        raise BadRequest("no array of events", where="Events", hint="send a Redfish Event")
    found = [_event(record, site, source, now) for record in records[:AT_ONCE] if isinstance(record, Mapping)]
    if len(found) < min(len(records), AT_ONCE):
        raise BadRequest("an event is not a JSON object", where="Events", hint="send a Redfish Event")
    return found + _more(len(records) - AT_ONCE, site, source, now)


def is_report(payload: Mapping[str, object]) -> bool:
    """Whether it is a metric report, which is not about anything that happened."""
    kind = str(payload.get("@odata.type"))[:80]
    return payload.get("Events") is None and ("MetricValues" in payload or "MetricReport" in kind)


def _event(record: Mapping[str, object], site: Site, source: EventSource, now: float) -> HardwareEvent:
    message_id = plain(record.get("MessageId"), 120)
    origin = record.get("OriginOfCondition")
    path = plain(origin.get("@odata.id") if isinstance(origin, Mapping) else origin, 200)
    told = record.get("MessageArgs")
    args = [plain(arg, 80) for arg in told[:8]] if isinstance(told, list) else []
    message = plain(record.get("Message")) or filled(message_id, args)
    sensor = args[0] if args and "SensorEvent." in message_id else ""
    stamp = record.get("EventTimestamp")
    time, doubtful = moment(stamp, now)
    # What power is, is told where the BMC says of which node, and when.
    power = power_told(message_id, args) if stamp and not doubtful and site.node_itself(path) else ""
    return HardwareEvent(
        time=time,
        severity=severity_of(record.get("MessageSeverity"), record.get("Severity")),
        message=message,
        source=source,
        key=key_of(message_id, message, sensor=sensor, origin=path),
        node=site.node_of(path),
        bmc=site.root,
        message_id=message_id,
        fields=_given(
            path=path, args=", ".join(args), event=plain(record.get("EventId"), 80), bmc_time=doubtful, power=power
        ),
    )


def from_log(entries: Sequence[LogEntry], site: Site, now: float) -> list[HardwareEvent]:
    """New entries of a BMC's log."""
    return [_logged(entry, site, now) for entry in entries[-AT_ONCE:]] + _more(len(entries) - AT_ONCE, site, "log", now)


def _logged(entry: LogEntry, site: Site, now: float) -> HardwareEvent:
    message, message_id, sensor = plain(entry.message), plain(entry.message_id, 120), plain(entry.sensor, 80)
    path = plain(entry.origin, 200)
    time, doubtful = believable(entry.time, now)
    return HardwareEvent(
        time=time,
        severity=entry.severity,
        message=message or message_id or f"log entry {plain(entry.id, 80)}",
        source="log",
        # With a path the sensor is only its end, or the kind of sensor: the path says more.
        key=key_of(message_id, message, sensor="" if path else sensor, origin=path),
        # What is in the log of a node, and does not say whose it is, is that node's.
        node=site.node_of(path) or site.node_of(entry.log),
        bmc=site.root,
        message_id=message_id,
        fields=_given(entry=plain(entry.id, 80), path=path, sensor=sensor, bmc_time=doubtful),
    )


def from_readings(
    readings: Iterable[Reading], before: Mapping[str, Severity], site: Site, node: str, now: float
) -> tuple[list[HardwareEvent], dict[str, Severity]]:
    """What changed for worse or better since ``before`` (keys of sensors that were not well), and what is not well now.
    A sensor that cannot be read is neither."""
    found: dict[str, tuple[Severity, Reading]] = {}
    for reading in readings:
        key = sensor_key(plain(reading.name, 80))
        judged = health(reading) or before.get(key, "ok")
        # Two of one name are one: as bad as the worse of them.
        if key not in found or RANK[judged] > RANK[found[key][0]]:
            found[key] = (judged, reading)
    unwell: dict[str, Severity] = {key: judged for key, (judged, _) in found.items() if judged != "ok"}
    events = [
        HardwareEvent(
            time=now,
            severity=judged,
            message=_measured(reading, judged),
            source="poll",
            key=key,
            node=node,
            bmc=site.root,
            fields=_given(sensor=plain(reading.name, 80)),
        )
        for key, (judged, reading) in found.items()
        if judged != before.get(key, "ok")
    ]
    return events, unwell


def fit(event: HardwareEvent) -> HardwareEvent:
    """The event with its texts made fit to be kept, whoever made it; the same one where they are."""
    texts = (event.message, *event.fields.values())
    if all(len(text) <= MESSAGE_MOST and text.isprintable() for text in texts) and len(event.key) <= KEY_MOST:
        return event
    fields = {name: plain(value) for name, value in event.fields.items()}
    return msgspec.structs.replace(event, message=plain(event.message), key=bounded(event.key), fields=fields)


def health(reading: Reading) -> Severity | None:
    """How well it is: as the BMC judges, else by its thresholds; None: nobody can tell. What was taken out is no
    trouble any more."""
    if reading.doubt == EMPTY:
        return "ok"
    if reading.health is not None:
        return reading.health
    if reading.value is None or (reading.high is None and reading.low is None):
        return None
    too_high = reading.high is not None and reading.value >= reading.high
    too_low = reading.low is not None and reading.value <= reading.low
    return "critical" if too_high or too_low else "ok"


def filled(message_id: str, args: Sequence[str]) -> str:
    """For an event without a text: we do not have every registry, so its id and arguments have to do."""
    return plain(": ".join(filter(None, (message_id or "an event without a message", ", ".join(args)))))


def _measured(reading: Reading, severity: Severity) -> str:
    value = "" if reading.value is None else f": {reading.value:g} {plain(reading.unit, 20)}".rstrip()
    limit = "" if severity == "ok" or reading.high is None else f" (critical at {reading.high:g})"
    return f"{plain(reading.name, 80)} is {'well again' if severity == 'ok' else severity}{value}{limit}"


def _more(count: int, site: Site, source: EventSource, now: float) -> list[HardwareEvent]:
    if count <= 0:
        return []
    text = f"{count} more events came with these and were passed over"
    key = "bmc/too-many-events"
    return [
        HardwareEvent(
            time=now, severity="warning", message=text, source=source, key=key, node=site.node_of(""), bmc=site.root
        )
    ]


def _given(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
