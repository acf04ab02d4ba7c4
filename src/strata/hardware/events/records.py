"""What the API shows of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from strata.core.texts import Out
from strata.hardware.bmc.protocol import Severity

EventSource = Literal["push", "sse", "poll", "log", "console", "syslog", "netconsole", "discovery", "strata"]


class HardwareEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event. Two with the same ``node`` (or ``bmc``) and ``key`` are about the same trouble."""

    time: float
    severity: Severity
    """``ok`` also says that the trouble with this key is over."""
    message: str
    source: EventSource
    key: str
    """What it is about, for de-duplication: ``sensor/CPU1 Temp``, ``log/Memory.ECC``, ``console/panic``."""
    node: str = ""
    """Name of the node, where there is one."""
    bmc: str = ""
    """Address of the BMC, where one is concerned."""
    message_id: str = ""
    """From a Redfish message registry, where there is one."""
    fields: Mapping[str, str] = {}
    """More, by name: ``dump`` (a reference to a kept dump), ``path``, ``serial``."""


EventSink = Callable[[Sequence[HardwareEvent]], None]
"""Takes events. Never blocks and never raises: who notices something has other work to do."""


class EventView(HardwareEvent, frozen=True, kw_only=True, omit_defaults=False):
    """One event, as it is numbered in this controller's log."""

    id: int


class EventPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[EventView, ...]
    next: str
