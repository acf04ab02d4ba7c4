"""What the API shows and takes of nodes' controllers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from strata.control.texts import PLAIN, AddressText, In, Out, SelectText
from strata.hardware.bmc import Boot, Identity, Media, Severity

Scalar = str | int | float | bool | None


class BmcView(Out, frozen=True, kw_only=True):
    """A node's controller, as it is now."""

    node: str
    address: str
    reachable: bool
    trouble: str
    """Why it cannot be used; empty: it can."""
    identity: Identity | None = None
    power: str = "unknown"
    boot: Boot | None = None
    media: tuple[Media, ...] = ()


class ReadingView(Out, frozen=True, kw_only=True):
    """One sensor."""

    name: str
    kind: str
    unit: str
    value: float | None
    health: Severity | None
    high: float | None
    low: float | None
    doubt: str


class NodeReadings(Out, frozen=True, kw_only=True):
    """The sensors of one node. ``trouble``: why there are none."""

    node: str
    time: float
    readings: tuple[ReadingView, ...]
    trouble: str = ""


class LogEntryView(Out, frozen=True, kw_only=True):
    """One record of a controller's own log."""

    id: str
    time: float | None
    severity: Severity
    message: str
    message_id: str
    sensor: str


class PowerLimitView(Out, frozen=True, kw_only=True):
    """A cap in watts. ``watts`` null: none is set."""

    id: str
    name: str
    watts: float | None
    least: float | None
    most: float | None
    via: str


class BiosView(Out, frozen=True, kw_only=True):
    """Firmware settings of a node."""

    node: str
    current: Mapping[str, Scalar]
    staged: Mapping[str, Scalar]


class FirmwareView(Out, frozen=True, kw_only=True):
    """One piece of firmware."""

    id: str
    name: str
    version: str
    updateable: bool
    component: str


class NodeFirmware(Out, frozen=True, kw_only=True):
    """The firmware of one node. ``trouble``: why there is none."""

    node: str
    firmware: tuple[FirmwareView, ...]
    trouble: str = ""


class FirmwareUpdate(In, frozen=True, kw_only=True):
    """Have the selected nodes' controllers fetch and install an image."""

    select: SelectText
    uri: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=2048)]
    targets: Annotated[tuple[AddressText, ...], Meta(max_length=64)] = ()
    apply_time: Literal["", "Immediate", "OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset"] = ""
    at_once: Annotated[int, Meta(ge=1, le=1000)] = 10
    """How many at a time; it stops when more than a tenth of a batch (and at least one) fails."""


class ServiceSettingsView(Out, frozen=True, kw_only=True):
    """Time and log servers of a controller; null: it does not say."""

    node: str
    ntp: tuple[str, ...] | None
    syslog: tuple[str, ...] | None


class ServiceSettingsChange(In, frozen=True, kw_only=True):
    """What to change; absent: left as it is."""

    ntp: Annotated[tuple[AddressText, ...], Meta(max_length=8)] | None = None
    syslog: Annotated[tuple[AddressText, ...], Meta(max_length=8)] | None = None
