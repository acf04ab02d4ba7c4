"""Fault states: how a node's history names them, when it goes into one and when it comes out.

A node is in a fault state when a step failed too often, or what was achieved was lost too often; the fault is named by
what was said of the last failure. It is out of it when what failed has come about all the same, when its time has come
for one more try, or when a person or a new desire says so. Whoever takes the node over knows it from the history.
"""

from __future__ import annotations

EVENT = "event"
"""The name under which history keeps what is not a fact: failures and faults."""

_BEGUN = "fault: "
_OVER = "fault cleared"


def begun(reason: str) -> str:
    """The event of going into the fault state that ``reason`` names."""
    return f"{_BEGUN}{reason or 'failed too often'}"


def over(how: str) -> str:
    """The event of coming out of it."""
    return f"{_OVER}: {how}"


def named(event: str) -> str | None:
    """The fault that begins with an event; empty: one that is over; None: it says nothing of faults."""
    if event.startswith(_BEGUN):
        return event.removeprefix(_BEGUN)
    return "" if event.startswith(_OVER) else None
