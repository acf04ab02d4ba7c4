"""What the API asks of the hardware layer: one protocol per subject, and the record that holds them all.

As in ``facade``: every method takes ``who`` asks, the API has checked the role, and the service applies the scope.
``select`` is a selector of nodes. Errors are those of ``strata.core.errors``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

from strata.control.fleet_views.jobs import JobView
from strata.control.machine_views.alerts import AlertPage, AlertView, WebhookSpec, WebhookView
from strata.control.machine_views.bmcs import (
    BiosView,
    BmcView,
    FirmwareUpdate,
    LogEntryView,
    NodeFirmware,
    NodeReadings,
    PowerLimitView,
    ServiceSettingsChange,
    ServiceSettingsView,
)
from strata.control.machine_views.consoles import ConsoleHits, ConsoleLine, ConsoleQuery, ConsoleView
from strata.control.machine_views.credentials import BmcCredentialSpec, BmcCredentialView, CertificateAcceptance
from strata.control.machine_views.discovery import DiscoverRequest, DiscoveryReport
from strata.control.machine_views.emergency import EmergencyReport, EmergencyRequest
from strata.control.machine_views.events import EventPage, EventView
from strata.control.machine_views.fabric import FabricView, SwitchNodes
from strata.control.machine_views.inventory import (
    ComponentPage,
    ComponentQuery,
    ControllerPage,
    ControllerView,
    HardwareChange,
    HardwareConflict,
    NodeHardware,
)
from strata.control.machine_views.many import ManyOutcome
from strata.control.principal import Principal
from strata.hardware.bmc import Boot, PowerAction

Many = ManyOutcome | JobView
"""What became of a request for many nodes; for very many it is a job, to be looked at later."""


class BmcFacade(Protocol):
    """Nodes' controllers, one or many at a time. A wish for a state (on, off) becomes a desire, which the engine
    fulfils with all its brakes; what is no state (cycle, NMI) is done at once, unless a brake is on."""

    async def power(self, who: Principal, select: str, action: PowerAction, *, force: bool = False) -> Many:
        """``force``: do not ask the guards (a cycle or an NMI of a node with jobs)."""
        ...

    async def boot(self, who: Principal, select: str, boot: Boot) -> Many:
        """Set the boot override."""
        ...

    async def identify(self, who: Principal, select: str, on: bool) -> Many:
        """Switch the identify light."""
        ...

    async def info(self, who: Principal, node: str) -> BmcView:
        """What is known of the node's controller: identity, health of the connection, boot override, media, limits."""
        ...

    async def sensors(self, who: Principal, select: str) -> Sequence[NodeReadings]:
        """Sensors of each node, read now. A node that cannot be read says why."""
        ...

    async def log(self, who: Principal, node: str, after: str, limit: int) -> Sequence[LogEntryView]:
        """The system event log of the node's controller."""
        ...

    async def limits(self, who: Principal, node: str) -> Sequence[PowerLimitView]:
        """What can be capped, and to what it is."""
        ...

    async def set_limit(self, who: Principal, select: str, limit: str, watts: float | None) -> Many:
        """Cap (None: uncap). ``limit`` empty: the node's own."""
        ...

    async def bios(self, who: Principal, node: str) -> BiosView:
        """Firmware settings, current and staged."""
        ...

    async def stage_bios(
        self, who: Principal, select: str, attributes: Mapping[str, str | int | float | bool | None]
    ) -> Many:
        """Stage settings for the next restart."""
        ...

    async def firmware(self, who: Principal, select: str) -> Sequence[NodeFirmware]:
        """What firmware there is."""
        ...

    async def update_firmware(self, who: Principal, request: FirmwareUpdate) -> JobView:
        """A tracked update of many nodes."""
        ...

    async def settings(self, who: Principal, node: str) -> ServiceSettingsView:
        """Time and log servers of the node's controller."""
        ...

    async def set_settings(self, who: Principal, select: str, settings: ServiceSettingsChange) -> Many:
        """Change them."""
        ...

    async def insert_media(self, who: Principal, select: str, image: str) -> Many:
        """Put an image into the virtual drives; empty ejects."""
        ...


class InventoryFacade(Protocol):
    """What hardware there is, and was. Components of nodes outside the caller's scope are not there."""

    async def discover(self, who: Principal, request: DiscoverRequest) -> JobView:
        """Look for controllers; a tracked job. With ``adopt`` it makes nodes of the machines behind them."""
        ...

    async def discovery(self, who: Principal, job: str) -> DiscoveryReport:
        """What a discovery has come to so far."""
        ...

    async def controllers(self, who: Principal, limit: int, after: str) -> ControllerPage:
        """Discovered controllers, by address."""
        ...

    async def controller(self, who: Principal, address: str) -> ControllerView:
        """One of them, with all its parts."""
        ...

    async def of_node(self, who: Principal, node: str) -> NodeHardware:
        """The hardware of a node: its machine and the parts that are in it. ``NotFound`` if it was not discovered."""
        ...

    async def components(self, who: Principal, query: ComponentQuery) -> ComponentPage:
        """Components of the fleet, filtered."""
        ...

    async def history(self, who: Principal, select: str, since: float | None, limit: int) -> Sequence[HardwareChange]:
        """What was added, removed, swapped or moved; newest first."""
        ...

    async def conflicts(self, who: Principal) -> Sequence[HardwareConflict]:
        """What does not fit together: duplicate MACs and serials, swapped controllers, two nodes in one place."""
        ...

    async def forget(self, who: Principal, address: str) -> None:
        """Remove a discovered controller from the inventory (its history stays)."""
        ...


class AlertFacade(Protocol):
    """Events and the alerts that they raise."""

    async def events(
        self, who: Principal, select: str, severity: str, since: float | None, limit: int, after: str
    ) -> EventPage:
        """Events, newest first."""
        ...

    async def follow(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[EventView]]:
        """Events as they come, from after sequence number ``since`` on (None: from now). Ended by ``aclose()``."""
        ...

    async def alerts(self, who: Principal, *, all_: bool, limit: int, after: str) -> AlertPage:
        """Open alerts, worst and newest first; ``all_``: also those that are over."""
        ...

    async def acknowledge(self, who: Principal, ids: Sequence[str], note: str) -> Sequence[AlertView]:
        """Say that a person looks after them."""
        ...

    async def webhooks(self, who: Principal) -> Sequence[WebhookView]:
        """Where alerts are sent."""
        ...

    async def put_webhook(self, who: Principal, name: str, spec: WebhookSpec) -> WebhookView:
        """Create or replace one. Its secret is kept and never shown."""
        ...

    async def delete_webhook(self, who: Principal, name: str) -> None:
        """Remove one."""
        ...

    def admit(self, token: str) -> None:
        """``Denied`` unless ``token`` was given to a BMC: what somebody else pushes is not even read."""
        ...

    async def receive(self, token: str, body: bytes) -> None:
        """A BMC's push. ``token`` was given to that BMC alone; ``Denied`` if it is not one of ours."""
        ...


class FabricFacade(Protocol):
    """How things are cabled."""

    async def graph(self, who: Principal) -> FabricView:
        """Switches, ports and links."""
        ...

    async def near(self, who: Principal, select: str) -> Sequence[SwitchNodes]:
        """Which of the selected nodes share a switch, as nodesets: placement hints."""
        ...


class ConsoleFacade(Protocol):
    """What consoles print."""

    async def consoles(self, who: Principal, select: str) -> Sequence[ConsoleView]:
        """Which consoles are captured, and how well."""
        ...

    async def tail(self, who: Principal, node: str, lines: int) -> Sequence[ConsoleLine]:
        """The last lines."""
        ...

    async def search(self, who: Principal, query: ConsoleQuery) -> ConsoleHits:
        """Lines that match, over many nodes."""
        ...

    async def follow(self, who: Principal, node: str, since: int | None) -> AsyncIterator[Sequence[ConsoleLine]]:
        """Lines as they come, from after ``since`` on (None: from now). Ended by ``aclose()``."""
        ...

    async def dumps(self, who: Principal, node: str) -> Sequence[str]:
        """The excerpts that are kept of a node's troubles, oldest first, as ``FIRST-LAST``."""
        ...

    async def dump(self, who: Principal, node: str, lines: str) -> Sequence[ConsoleLine]:
        """The lines of one of them: what an event's ``dump`` (``console:NODE:FIRST-LAST``) refers to."""
        ...


class BmcCredentialFacade(Protocol):
    """Who we are to the controllers. Secrets go in and never come out."""

    async def credentials(self, who: Principal) -> Sequence[BmcCredentialView]:
        """All of them, without secrets."""
        ...

    async def put(self, who: Principal, spec: BmcCredentialSpec) -> BmcCredentialView:
        """Create or replace the credential of a pattern of addresses."""
        ...

    async def delete(self, who: Principal, pattern: str) -> None:
        """Forget one."""
        ...

    async def rotate(self, who: Principal, select: str) -> JobView:
        """Give every selected node's controller a new random password of its own; a tracked job."""
        ...

    async def accept_certificate(self, who: Principal, acceptance: CertificateAcceptance) -> None:
        """Accept another certificate from a controller than the one that was seen first."""
        ...


class EmergencyFacade(Protocol):
    """The red button."""

    async def power_off(self, who: Principal, request: EmergencyRequest) -> EmergencyReport:
        """Freeze the selection, then take its power away at once: no guard, no budget. Needs the right words."""
        ...


class Machine(msgspec.Struct, kw_only=True, frozen=True):
    """All of it."""

    bmcs: BmcFacade
    inventory: InventoryFacade
    alerts: AlertFacade
    fabric: FabricFacade
    consoles: ConsoleFacade
    credentials: BmcCredentialFacade
    emergency: EmergencyFacade
