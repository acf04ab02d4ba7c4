"""What one can ask of a node's BMC, whichever protocol it speaks: the types and the one protocol of them.

``RedfishBmc`` and ``IpmiBmc`` implement it. Everything here tells what was seen, never what was hoped:
a value that the BMC did not give, or that cannot be true, is None with a reason in ``doubt``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from strata.core.errors import NotOffered
from strata.core.state import Fence

PowerAction = Literal["on", "off", "graceful-off", "cycle", "graceful-restart", "nmi"]
BootTarget = Literal["none", "pxe", "http", "media", "disk", "setup"]
Severity = Literal["ok", "warning", "critical"]
ReadingKind = Literal[
    "temperature", "fan", "power", "energy", "voltage", "current", "humidity", "frequency", "utilisation", "other"
]


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node boots from, next time (``once``) or from now on. ``uri``: of the UEFI HTTP boot file."""

    target: BootTarget
    once: bool = True
    uri: str = ""
    uefi: bool | None = None
    """None: leave the mode as it is."""


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual drive and what is in it (empty: nothing)."""

    id: str
    kind: str
    image: str = ""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the BMC says that it, and the machine that it controls, are."""

    vendor: str = ""
    model: str = ""
    serial: str = ""
    uuid: str = ""
    firmware: str = ""
    """Of the BMC itself."""
    protocol: str = "redfish"
    quirks: tuple[str, ...] = ()
    """Names of the vendor strategies in use."""


EMPTY = "nothing is there"
"""The doubt of a sensor in an empty place: a bay without a supply is no trouble."""
STATE = "a state, not a number"
"""The doubt of what tells how something is, and measures nothing."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One sensor, as it was read."""

    name: str
    kind: ReadingKind
    unit: str
    value: float | None
    health: Severity | None = None
    """As the BMC judges it; None: it does not say."""
    high: float | None = None
    """The upper critical threshold."""
    low: float | None = None
    doubt: str = ""
    """Why ``value`` is None: ``EMPTY``, ``STATE``, absent, not a number, absurd."""


CLOCK_AHEAD = 300.0
"""Seconds that a BMC's clock may be ahead of ours before its times are not believed."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a BMC's own log."""

    id: str
    time: float | None
    severity: Severity
    message: str
    message_id: str = ""
    sensor: str = ""
    origin: str = ""
    """The path of the resource that it is about, where the BMC says so."""
    log: str = ""
    """The path of the log that it is in, where the BMC may have several."""


class PowerLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A cap in watts that the BMC keeps by itself. ``watts`` None: no cap is set."""

    id: str
    """What it limits: the chassis, a processor, an accelerator (a path that ``set_power_limit`` takes)."""
    name: str
    watts: float | None
    least: float | None = None
    most: float | None = None
    via: Literal["PowerControl", "EnvironmentMetrics", "Control", "DCMI"] = "PowerControl"


class Firmware(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of firmware."""

    id: str
    name: str
    version: str
    updateable: bool = False
    component: str = ""
    """What it runs in, as the BMC calls it."""


class Bios(msgspec.Struct, frozen=True, kw_only=True):
    """Firmware settings: those in force, and those that are staged until the next restart."""

    current: Mapping[str, str | int | float | bool | None]
    staged: Mapping[str, str | int | float | bool | None] = {}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Work that goes on inside a BMC. ``id`` is empty where there is nothing to follow: look at the effect."""

    id: str
    state: Literal["running", "done", "failed", "unknown"]
    percent: int | None = None
    messages: tuple[str, ...] = ()


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the BMC gets its time and sends its log. None: it does not say (or: leave it as it is)."""

    ntp: tuple[str, ...] | None = None
    syslog: tuple[str, ...] | None = None


class Bmc(Protocol):
    """One BMC. Calls raise ``DeviceError`` (``NotOffered`` where it has no such thing), ``OutcomeUnknown`` when what
    was asked may have happened, ``Conflict`` when a newer fence or version is there, ``Unavailable`` when it was
    not begun in time. None of them is ever sent twice by itself. What a
    protocol does not have need not be said: a subclass answers ``NotOffered`` to it."""

    address: str

    async def identity(self) -> Identity:
        """Who it is."""

    async def power(self) -> str | None:
        """``on``, ``off``, or None where it does not say."""

    async def set_power(
        self, action: PowerAction, *, fence: Fence | None = None, begin_before: float = float("inf")
    ) -> None:
        """Ask for it; returning means that it was accepted, no more."""

    async def boot(self) -> Boot:
        """The boot override that is set."""
        raise not_offered(self, "a boot override")

    async def set_boot(self, boot: Boot) -> None:
        """Set the boot override."""
        raise not_offered(self, "a boot override")

    async def media(self) -> Sequence[Media]:
        """Virtual drives."""
        raise not_offered(self, "virtual drives")

    async def insert_media(self, image: str) -> None:
        """Put the image at this URI into the virtual drive (CD); an empty one ejects."""
        raise not_offered(self, "virtual drives")

    async def identify(self, on: bool) -> None:
        """The identify light."""
        raise not_offered(self, "an identify light")

    async def readings(self) -> Sequence[Reading]:
        """All sensors, power and thermal among them."""
        raise not_offered(self, "sensors")

    async def log(self, *, after: str = "", limit: int = 1000) -> Sequence[LogEntry]:
        """The system event log, oldest first, from after the entry ``after`` on."""
        raise not_offered(self, "an event log")

    async def clear_log(self) -> None:
        """Empty the system event log."""
        raise not_offered(self, "an event log")

    async def power_limits(self) -> Sequence[PowerLimit]:
        """What can be capped."""
        raise not_offered(self, "power limits")

    async def set_power_limit(self, limit: str, watts: float | None) -> None:
        """Cap ``limit`` (the id of one of ``power_limits``); None takes the cap off."""
        raise not_offered(self, "power limits")

    async def bios(self) -> Bios:
        """Firmware settings."""
        raise not_offered(self, "firmware settings")

    async def stage_bios(self, attributes: Mapping[str, str | int | float | bool | None]) -> Task:
        """Have these settings take effect at the next restart."""
        raise not_offered(self, "firmware settings")

    async def firmware(self) -> Sequence[Firmware]:
        """What firmware there is."""
        raise not_offered(self, "firmware versions")

    async def update_firmware(
        self, *, uri: str = "", image: bytes = b"", targets: Sequence[str] = (), apply_time: str = ""
    ) -> Task:
        """Have the BMC fetch ``uri`` (SimpleUpdate) or take ``image`` (pushed). ``apply_time``: a value of
        ``@Redfish.OperationApplyTime``, empty for the BMC's own choice."""
        raise not_offered(self, "firmware updates")

    async def task(self, task: str) -> Task:
        """How far the work with this id is."""
        raise not_offered(self, "tasks")

    async def set_password(self, user: str, password: str) -> None:
        """Change an account's password."""
        raise not_offered(self, "accounts")

    async def settings(self) -> ServiceSettings:
        """Time and log servers."""
        raise not_offered(self, "time and log servers")

    async def set_settings(self, settings: ServiceSettings) -> None:
        """Change those that are not None."""
        raise not_offered(self, "time and log servers")

    def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
        """What the node's serial console prints, until ``aclose()``; an empty piece first says that it is open. What is
        put into ``keys`` is typed there. Raises when it cannot be had or breaks off."""
        raise not_offered(self, "a console")


def not_offered(bmc: Bmc, what: str) -> NotOffered:
    """The protocol has no such thing."""
    scheme = bmc.address.partition(":")[0]
    return NotOffered(
        f"{scheme}:// has no {what}", node=bmc.address, hint="reach the BMC by Redfish, if it speaks that too"
    )
