"""What an alert is, and what becomes of it with each event: pure, no store and no clock of its own.

The acknowledgement is a record beside the alert, written by people only, while the alert is written by whoever sees
the events: the two never overwrite each other. It holds for one opening, up to the severity that the person saw; so an
alert that gets worse, or comes back, is open again without anybody having to reopen it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import AddressText, In, NoteText, Out, SecretText
from strata.fleet.alarm import OCCURRENCES
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.records import EventSource, HardwareEvent
from strata.hardware.events.words import RANK

State = Literal["open", "acknowledged", "over"]


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One trouble of one node or BMC. Holds text and numbers only, so the garbage collector may pass by."""

    id: str
    node: str
    bmc: str
    key: str
    severity: Severity
    """As the last event had it; when it is over: as it was before."""
    worst: Severity
    """Since it opened."""
    message: str
    message_id: str = ""
    first: float
    last: float
    count: int = 1
    over: bool = False
    changed: float
    """When it opened, got worse or ended: what somebody should be told of."""
    owner: str
    """The controller that saw it, and tells of it."""
    fields: Mapping[str, str] = {}
    once: bool = False
    """It happened, and is not something that is so: nobody will say that it is over."""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """A person looks after the alert that opened at ``first``, as bad as ``worst``."""

    by: str
    note: str
    time: float
    first: float
    worst: Severity


def identity(event: HardwareEvent) -> str:
    """Of the alert that an event is about: the same on every controller and after every restart."""
    subject = f"node\0{event.node}" if event.node else f"bmc\0{event.bmc}"
    return hashlib.blake2b(f"{subject}\0{event.key}".encode(), digest_size=10).hexdigest()


def opened(event: HardwareEvent, ident: str, now: float, owner: str) -> Alert:
    """A new trouble, or an old one that came back."""
    return Alert(
        id=ident,
        node=event.node,
        bmc=event.bmc,
        key=event.key,
        severity=event.severity,
        worst=event.severity,
        message=event.message,
        message_id=event.message_id,
        first=now,
        last=now,
        changed=now,
        owner=owner,
        fields=event.fields,
        once=_is_occurrence(event),
    )


_TOLD_ONCE: frozenset[EventSource] = frozenset({"push", "sse", "log", "console", "syslog", "netconsole"})


def _is_occurrence(event: HardwareEvent) -> bool:
    """What a device or a kernel reports when it happens; but sensors are looked at, and said to be well again."""
    if event.source == "strata":
        return event.key.partition("/")[0] in OCCURRENCES
    return event.source in _TOLD_ONCE and not event.key.startswith("sensor/")


def again(alert: Alert, event: HardwareEvent, now: float, owner: str) -> Alert:
    """The same trouble, once more."""
    worse = RANK[event.severity] > RANK[alert.worst]
    return msgspec.structs.replace(
        alert,
        severity=event.severity,
        worst=event.severity if worse else alert.worst,
        message=event.message,
        message_id=event.message_id,
        last=now,
        count=alert.count + 1,
        changed=now if worse else alert.changed,
        owner=owner if worse else alert.owner,
        fields=event.fields or alert.fields,
    )


def ended(alert: Alert, now: float, owner: str) -> Alert:
    """The trouble is over."""
    return msgspec.structs.replace(alert, over=True, last=now, changed=now, owner=owner)


def lapsed(alert: Alert, now: float, owner: str) -> Alert:
    """It happened long ago, and not since."""
    days = f"it was not seen again for {(now - alert.last) / 86400:.0f} days"
    return msgspec.structs.replace(alert, over=True, changed=now, owner=owner, fields={**alert.fields, "ended": days})


def holds(acknowledgement: Acknowledgement | None, alert: Alert) -> bool:
    """Whether a person looks after the alert as it is now."""
    return (
        acknowledgement is not None
        and acknowledgement.first == alert.first
        and RANK[acknowledgement.worst] >= RANK[alert.worst]
    )


def state_of(alert: Alert, acknowledgement: Acknowledgement | None) -> State:
    """In a word."""
    if alert.over:
        return "over"
    return "acknowledged" if holds(acknowledgement, alert) else "open"


class AlertView(Out, frozen=True, kw_only=True):
    """A trouble that somebody should know of. Many events about one trouble are one alert."""

    id: str
    node: str
    bmc: str
    key: str
    severity: Severity
    message: str
    first: float
    last: float
    count: int
    state: Literal["open", "acknowledged", "over"]
    by: str
    """Who acknowledged it."""
    note: str
    fields: Mapping[str, str]


class AlertPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[AlertView, ...]
    next: str
    open: int
    """How many there are that nobody looks after."""
    acknowledged: int
    """How many somebody looks after."""


class AcknowledgeRequest(In, frozen=True, kw_only=True):
    """A person looks after these alerts."""

    ids: Annotated[tuple[AddressText, ...], Meta(min_length=1, max_length=10_000)]
    note: NoteText = ""


class WebhookSpec(In, frozen=True, kw_only=True):
    """Where to send alerts. With a secret each delivery is signed (HMAC-SHA256 of the body)."""

    url: Annotated[str, Meta(pattern=r"^https?://[^\u0000-\u0020]+$(?!\n)", max_length=2048)]
    least: Severity = "warning"
    secret: SecretText | None = None


class WebhookView(Out, frozen=True, kw_only=True):
    """One of them."""

    name: str
    url: str
    least: Severity
    signed: bool
    delivered: int
    failing: str
    """Why the last delivery failed; empty: it did not."""
