"""One thing that happened to hardware, whoever noticed it: pushed by a BMC, polled, printed on a console, found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from strata.hardware.bmc import Severity

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
    """Address of the controller, where one is concerned."""
    message_id: str = ""
    """From a Redfish message registry, where there is one."""
    fields: Mapping[str, str] = {}
    """More, by name: ``dump`` (a reference to a kept dump), ``path``, ``serial``."""


EventSink = Callable[[Sequence[HardwareEvent]], None]
"""Takes events. Never blocks and never raises: who notices something has other work to do."""
