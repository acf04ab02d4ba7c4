"""What the API shows and takes of the hardware: the records behind the REST contract. Knows no HTTP and no BMC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from strata.control.texts import PLAIN, In, NoteText, Out, ReasonText, SelectText
from strata.hardware.bmc import Boot, Identity, Media, Severity
from strata.hardware.events.event import EventSource
from strata.hardware.inventory.found import ComponentKind

Scalar = str | int | float | bool | None
AddressText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=256)]
SecretText = Annotated[str, Meta(min_length=1, max_length=1024)]

# -- many nodes at once


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


# -- controllers


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


# -- inventory


class DiscoverRequest(In, frozen=True, kw_only=True):
    """Where to look, and what to do with what is found. Several sources may be given."""

    addresses: Annotated[tuple[AddressText, ...], Meta(max_length=100_000)] = ()
    """URLs, host names or addresses."""
    csv: Annotated[str, Meta(max_length=32 * 2**20)] = ""
    """With a header: ``address`` and any of ``name,location,nid,role,mac,serial,labels``. Credentials are refused."""
    leases: Annotated[str, Meta(max_length=32 * 2**20)] = ""
    """A lease file of ISC dhcpd, dnsmasq or Kea: whoever in it looks like a controller."""
    dhcp: bool = False
    """The controllers that appeared in DHCP."""
    ranges: Annotated[tuple[AddressText, ...], Meta(max_length=64)] = ()
    """``10.1.0.0/20`` or ``10.1.0.1-10.1.3.254``; at most 65,536 addresses each."""
    ssdp: bool = False
    """Ask the local networks for Redfish services."""
    known: bool = False
    """Look again at every controller that is known (of the inventory and of nodes)."""
    mapping: Annotated[str, Meta(max_length=32 * 2**20)] = ""
    """A location mapping (CSV): any of ``address,mac,serial,switch,port`` → ``location,name,nid``."""
    adopt: bool = False
    """Make nodes of the machines that are found."""
    accept: Annotated[tuple[AddressText, ...], Meta(max_length=100_000)] = ()
    """Look at these, and take them as they are even where another controller was before."""
    name: Annotated[str, Meta(pattern=PLAIN, max_length=63)] = "n{number:05}"
    """How nodes that nothing names are called: ``{number}``, ``{serial}``, ``{location}``, ``{hostname}``."""


class NotAdopted(Out, frozen=True, kw_only=True):
    """A machine of which no node was made, and why."""

    machine: str
    why: str


class DiscoveryReport(Out, frozen=True, kw_only=True):
    """What a discovery has come to so far."""

    job: str = ""
    found: int = 0
    new: int = 0
    changed: int = 0
    swapped: int = 0
    """Where another controller answers than before; a person accepts it, or not."""
    silent: int = 0
    """Addresses that were given and at which nobody answers."""
    failed: int = 0
    """Others that could not be read: the job says why."""
    troubled: int = 0
    """Found, but not whole: a part could not be read."""
    conflicts: int = 0
    located: int = 0
    adopted: int = 0
    updated: int = 0
    refused: tuple[NotAdopted, ...] = ()
    """The first hundred."""
    refused_count: int = 0


class ComponentView(Out, frozen=True, kw_only=True):
    """One part."""

    controller: str
    node: str
    id: str
    kind: ComponentKind
    name: str
    parent: str
    slot: str
    vendor: str
    model: str
    part: str
    serial: str
    firmware: str
    health: Severity | None
    macs: tuple[str, ...]
    facts: Mapping[str, str | int | float | bool]
    shape: str = ""


class ControllerSummary(Out, frozen=True, kw_only=True):
    """One discovered controller."""

    address: str
    identity: Identity
    seen: float
    nodes: tuple[str, ...]
    machines: int
    components: Mapping[str, int]
    """How many of each kind."""
    trouble: tuple[str, ...]


class ControllerPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[ControllerSummary, ...]
    next: str
    total: int


class ControllerView(Out, frozen=True, kw_only=True):
    """One of them, with its parts."""

    summary: ControllerSummary
    components: tuple[ComponentView, ...]


class NodeHardware(Out, frozen=True, kw_only=True):
    """What a node is made of."""

    node: str
    controller: str
    identity: Identity
    seen: float
    serial: str
    uuid: str
    components: tuple[ComponentView, ...]


class ComponentQuery(Out, frozen=True, kw_only=True):
    """Which components."""

    select: str = "*"
    kind: str = ""
    text: str = ""
    """Part of a name, model, part number or serial."""
    limit: int = 100
    after: str = ""


class ComponentPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[ComponentView, ...]
    next: str


class HardwareChange(Out, frozen=True, kw_only=True):
    """One change of what hardware there is."""

    time: float
    what: Literal["added", "removed", "swapped", "moved", "changed", "controller-swapped"]
    controller: str
    node: str
    component: str
    kind: str
    old: str
    """Serial (or value) before."""
    new: str
    detail: str


class HardwareConflict(Out, frozen=True, kw_only=True):
    """Two things that cannot both be true. Nothing was guessed: a person decides."""

    what: Literal["duplicate-mac", "duplicate-serial", "duplicate-uuid", "controller-swapped", "location-taken"]
    value: str
    where: tuple[str, ...]
    since: float
    hint: str


# -- events and alerts


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


class Acknowledgement(In, frozen=True, kw_only=True):
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


# -- fabric


class SwitchView(Out, frozen=True, kw_only=True):
    """One switch."""

    id: str
    name: str
    fabric: str
    location: str
    model: str
    ports: int
    nodes: str
    """Folded names of the nodes on it."""


class LinkView(Out, frozen=True, kw_only=True):
    """A cable. An end is ``switch:port`` or ``node:nic``."""

    a: str
    b: str
    up: bool | None
    speed_gbps: float | None
    source: Literal["redfish", "lldp", "file"]


class FabricView(Out, frozen=True, kw_only=True):
    """How things are cabled."""

    switches: tuple[SwitchView, ...]
    links: tuple[LinkView, ...]
    conflicts: tuple[str, ...] = ()


class SwitchNodes(Out, frozen=True, kw_only=True):
    """Nodes on one switch."""

    switch: str
    nodes: str
    count: int


# -- consoles


class ConsoleLine(Out, frozen=True, kw_only=True):
    """One line of a console, or one kernel message that came by the network."""

    id: int
    """Its place in the node's stream: what to resume after."""
    time: float
    source: Literal["serial", "syslog", "netconsole", "agent", "strata"]
    text: str


class ConsoleView(Out, frozen=True, kw_only=True):
    """How a node's console is captured."""

    node: str
    way: Literal["redfish", "ipmi", "socket", "none"]
    connected: bool
    trouble: str
    lines: int
    bytes: int
    last: float | None


class ConsoleSearch(Out, frozen=True, kw_only=True):
    """What to look for."""

    select: str = "*"
    text: str
    regex: bool = False
    since: float | None = None
    until: float | None = None
    limit: int = 100


class ConsoleHit(Out, frozen=True, kw_only=True):
    """A line that matched."""

    node: str
    line: ConsoleLine


class ConsoleHits(Out, frozen=True, kw_only=True):
    """All of them, or as many as were asked for. ``whole``: nothing was left out."""

    items: tuple[ConsoleHit, ...]
    whole: bool


# -- credentials


class BmcCredentialView(Out, frozen=True, kw_only=True):
    """A credential without its secret."""

    pattern: str
    user: str
    author: str
    changed: float
    used_by: int
    """Nodes whose controller it fits best."""
    doubt: str = ""
    """Why it is not used at present; empty: it is."""


class BmcCredentialSpec(In, frozen=True, kw_only=True):
    """A user and password for controllers. ``pattern``: an exact address, a glob of them, or ``default``."""

    pattern: AddressText
    user: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=256)]
    password: SecretText


class RotationRequest(In, frozen=True, kw_only=True):
    """Whose controllers get new passwords."""

    select: SelectText


class CertificateAcceptance(In, frozen=True, kw_only=True):
    """Accept the certificate with this fingerprint (SHA-256) from a controller; empty: the next one that it shows."""

    address: AddressText
    sha256: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f:]{64,95})?$(?!\n)", max_length=95)] = ""


# -- emergency


class EmergencyRequest(In, frozen=True, kw_only=True):
    """Take power away from nodes, chassis or whole cabinets, now."""

    select: SelectText
    reason: ReasonText
    confirm: Annotated[str, Meta(max_length=200)]
    """Must be ``power off N nodes`` with the right number, as the refusal of a wrong one says."""


class EmergencyReport(Out, frozen=True, kw_only=True):
    """What became of it."""

    outcome: ManyOutcome
    frozen: tuple[str, ...]
    """The freezes that keep it off; a person lifts them."""
    seconds: float
