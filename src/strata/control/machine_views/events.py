"""What the API shows of events."""

from __future__ import annotations

from collections.abc import Mapping

from strata.control.texts import Out
from strata.hardware.bmc import Severity
from strata.hardware.events.event import EventSource


class EventView(Out, frozen=True, kw_only=True):
    """One event."""

    id: int
    """Its sequence number on this controller."""
    time: float
    severity: Severity
    message: str
    source: EventSource
    key: str
    node: str
    bmc: str
    message_id: str
    fields: Mapping[str, str]


class EventPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[EventView, ...]
    next: str
