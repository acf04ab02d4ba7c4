"""What the API shows and takes of nodes' BMCs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from strata.core.texts import PLAIN, AddressText, In, Out, SelectText
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.protocol import Bios, Boot, Firmware, Identity, Media, Reading, ServiceSettings, Severity

Scalar = str | int | float | bool | None


class BmcView(Out, frozen=True, kw_only=True):
    """A node's BMC, as it is now."""

    node: str
    address: str
    reachable: bool
    trouble: str
    """Why it cannot be used; empty: it can."""
    identity: Identity | None = None
    power: str = "unknown"
    boot: Boot | None = None
    media: tuple[Media, ...] = ()


class NodeReadings(Out, frozen=True, kw_only=True):
    """The sensors of one node. ``trouble``: why there are none."""

    node: str
    time: float
    readings: tuple[Reading, ...]
    trouble: str = ""


class LogEntryView(Out, frozen=True, kw_only=True):
    """One record of a BMC's own log."""

    id: str
    time: float | None
    severity: Severity
    message: str
    message_id: str
    sensor: str


class NodeFirmware(Out, frozen=True, kw_only=True):
    """The firmware of one node. ``trouble``: why there is none."""

    node: str
    firmware: tuple[Firmware, ...]
    trouble: str = ""


class FirmwareUpdate(In, frozen=True, kw_only=True):
    """Have the selected nodes' BMCs fetch and install an image."""

    select: SelectText
    uri: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=2048)]
    targets: Annotated[tuple[AddressText, ...], Meta(max_length=64)] = ()
    apply_time: Literal["", "Immediate", "OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset"] = ""
    at_once: Annotated[int, Meta(ge=1, le=1000)] = 10
    """How many at a time; it stops when more than a tenth of a batch (and at least one) fails."""


class NodeBios(Bios, frozen=True, kw_only=True):
    """Firmware settings of a node."""

    node: str


class NodeSettings(ServiceSettings, frozen=True, kw_only=True):
    """Time and log servers of a BMC; null: it does not say."""

    node: str


class ServiceSettingsChange(ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change; absent: left as it is."""

    ntp: Annotated[tuple[AddressText, ...], Meta(max_length=8)] | None = None
    syslog: Annotated[tuple[AddressText, ...], Meta(max_length=8)] | None = None


class Failed(Out, frozen=True, kw_only=True):
    """Nodes for which something was not done, and why."""

    nodes: str
    """A folded nodeset."""
    reason: str


class ManyOutcome(Out, frozen=True, kw_only=True):
    """What became of a request for many nodes."""

    done: str
    """A folded nodeset."""
    done_count: int
    failed: tuple[Failed, ...] = ()
    failed_count: int = 0
    revision: int = 0
    """The revision of the store that has it, where it became a desire."""


Many = ManyOutcome | Operation
"""What became of a request for many nodes; for very many it is an operation, to be looked at later."""
