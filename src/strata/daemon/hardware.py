"""The hardware layer of one controller, put together: clients of BMCs, discovery, events, consoles, and their faces.

``Reach`` comes before the engine's drivers, which use it; ``open_machine`` when there is a controller.
"""

from __future__ import annotations

import resource
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

from strata.control.inventory_nodes import NodesByBmc
from strata.control.machine import Machine
from strata.control.open_alerts import open_alerts
from strata.control.service import Service
from strata.control.service_alerts import AlertService, bmc_addresses, led_here, look_soon
from strata.control.service_bmcs import BmcService
from strata.control.service_consoles import ConsoleService
from strata.control.service_credentials import BmcCredentialService
from strata.control.service_emergency import EmergencyService
from strata.control.service_fabric import FabricService, cabling
from strata.control.service_inventory import InventoryService
from strata.control.settings import HardwareSettings, Settings
from strata.core.errors import BadRequest
from strata.hardware.access.credentials import BmcCredentials
from strata.hardware.access.login_check import login_checks
from strata.hardware.access.pins import Pins
from strata.hardware.access.rotation import Rotation
from strata.hardware.access.sealing import Seal
from strata.hardware.consoles.capture import CaptureSettings, ConsoleCapture
from strata.hardware.consoles.kernel_messages import KernelMessages
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.panic import PanicWatch
from strata.hardware.consoles.search import ConsoleSearch
from strata.hardware.controllers import Controllers, Dialect
from strata.hardware.discovery.crawl import crawl
from strata.hardware.discovery.sweep import Discovery
from strata.hardware.events.hub import EventHub, EventSettings
from strata.hardware.events.redfish import RedfishSubscriptions
from strata.hardware.inventory.found import Found
from strata.hardware.inventory.store import Inventory
from strata.hardware.ipmi.client import IpmiClient
from strata.hardware.ipmi.controller import IpmiController
from strata.hardware.ipmi.inventory import inventory as ipmi_inventory
from strata.hardware.ipmi.store import IpmiStore
from strata.hardware.redfish.client import Credentials, RedfishClient
from strata.hardware.redfish.wire import Tls
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.virtual.bmc_server import SIMULATED_ACCOUNT


class Reach:
    """How this process reaches BMCs: their credentials and certificates, and the clients that use them."""

    def __init__(self, settings: Settings, store: Store, ledger: Ledger) -> None:
        self.seal = Seal.load(settings.secrets_key, make=not settings.hardware.secrets_key)
        self.credentials = BmcCredentials(store, self.seal)
        self.pins = Pins(store, ledger)
        self.tls = _tls(settings.hardware, self.pins)
        self._simulator = settings.simulated.address.rstrip("/")
        self.ipmi = IpmiClient(self._login)
        self.ipmi_store = IpmiStore(self.ipmi)
        dialect = Dialect(self.open_ipmi, self.ipmi.forget, self.ipmi.close)
        self.controllers = Controllers(RedfishClient(self._login, tls=self.tls), {"ipmi": dialect})

    async def start(self) -> None:
        """Load what is known of credentials and certificates."""
        await self.credentials.start()
        await self.pins.start()

    async def stop(self) -> None:
        """Log out everywhere."""
        await self.controllers.close()
        await self.pins.stop()
        await self.credentials.stop()

    def open_ipmi(self, address: str) -> IpmiController:
        """The controller at an ``ipmi://`` address."""
        return IpmiController(self.ipmi, self.ipmi_store, address)

    def _login(self, address: str) -> Credentials:
        # A credential that somebody set counts there as well, or a rotated password would be a lost one.
        simulated = self._simulator and address.startswith(f"{self._simulator}/")
        if simulated and not self.credentials.route(address):
            return Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password)
        return self.credentials.lookup(address)


def _tls(settings: HardwareSettings, pins: Pins) -> Tls:
    """How certificates of BMCs are judged: by what was seen first, or by an authority."""
    if settings.bmc_tls == "pin":
        return pins
    if settings.bmc_tls == "system":
        return True
    try:
        return ssl.create_default_context(cafile=settings.bmc_tls)
    except (OSError, ssl.SSLError) as error:
        raise BadRequest(
            f"no certificate of an authority can be read there: {error}",
            where=f"--bmc-tls {settings.bmc_tls}",
            hint="give a PEM file, 'pin' or 'system'",
        ) from None


class Opened(NamedTuple):
    """The hardware layer, and what the layers above use of it."""

    machine: Machine
    hub: EventHub
    prune: Callable[[float], Awaitable[None]]
    """Forgets what is older than a time."""
    console: ConsoleLog
    sighted: Callable[[str, str, str, str], None]
    """Takes the MAC, address, vendor class and name of a machine that was given an address."""


async def open_machine(service: Service, settings: Settings, reach: Reach, parts: AsyncExitStack) -> Opened:
    """All services of the hardware layer, running for as long as ``parts`` is open."""
    controllers, hardware = reach.controllers, settings.hardware
    store, ledger = service.controller.store, service.ledger

    hub = EventHub(
        settings.state_dir / "events.db",
        store,
        ledger,
        reach.seal,
        controllers,
        RedfishSubscriptions(controllers.redfish),
        owner=settings.controller_id,
        addresses=bmc_addresses(service.registry),
        mine=led_here(service.controller) if hardware.poll else lambda _: False,
        looked=look_soon(service.controller),
        settings=EventSettings(public_url=hardware.public_url),
    )
    service.troubles = open_alerts(hub.alerts)
    nodes = NodesByBmc(service.registry)
    inventory = Inventory(store, sink=hub.take, node_at=nodes.at)
    await inventory.start()
    parts.push_async_callback(inventory.stop)
    discovery = Discovery({"http": _redfish(reach), "https": _redfish(reach), "ipmi": _ipmi(reach)})

    credentials = BmcCredentialService(
        service,
        reach.credentials,
        Rotation(store, ledger, reach.credentials, controllers.open, login_checks(reach.tls)),
        reach.pins,
        controllers.unlock,
    )
    await credentials.start()
    parts.push_async_callback(credentials.stop)
    emergency = EmergencyService(service, controllers)
    parts.push_async_callback(emergency.stop)
    console_log = ConsoleLog(settings.console_dir)
    await console_log.start()
    parts.push_async_callback(console_log.stop)
    consoles = await _consoles(service, settings, reach, hub, console_log, parts)
    found = InventoryService(service, inventory, discovery, nodes)
    machine = Machine(
        bmcs=BmcService(service, controllers.open, reach.seal),
        inventory=found,
        alerts=AlertService(service, hub),
        fabric=FabricService(service, lambda: cabling(inventory), file=hardware.topology),
        consoles=consoles,
        credentials=credentials,
        emergency=emergency,
    )
    await hub.start()
    parts.push_async_callback(hub.stop)
    return Opened(machine, hub, found.prune, console_log, found.sightings.seen)


def _redfish(reach: Reach) -> Callable[[str], Awaitable[Found]]:
    async def walk(address: str) -> Found:
        return await crawl(reach.controllers.redfish, address)

    return walk


def _ipmi(reach: Reach) -> Callable[[str], Awaitable[Found]]:
    async def walk(address: str) -> Found:
        return await ipmi_inventory(reach.open_ipmi(address), reach.ipmi_store)

    return walk


async def _consoles(
    service: Service, settings: Settings, reach: Reach, hub: EventHub, log: ConsoleLog, parts: AsyncExitStack
) -> ConsoleService:
    """Captured consoles and kernel messages, and who listens to them for trouble."""
    panics = PanicWatch(log, hub.take)
    parts.push_async_callback(panics.close)
    mine, registry = led_here(service.controller), service.registry

    def captured() -> Mapping[str, str]:
        """Name → where its console is, of the nodes that this process looks after."""
        if not settings.hardware.consoles:
            return {}
        return {n.name: n.bmc for n in registry.roster.nodes if n is not None and n.bmc and mine(n.name)}

    # Each console is a connection; half of what may be open is for everything else.
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = CaptureSettings(most=min(CaptureSettings().most, files // 2))
    capture = ConsoleCapture(log, reach.controllers.open, captured, settings=room)
    await capture.start()
    parts.push_async_callback(capture.stop)
    messages = KernelMessages(
        log,
        _sender(service),
        syslog=settings.hardware.syslog,
        netconsole=settings.hardware.netconsole,
    )
    await messages.start()
    parts.push_async_callback(messages.stop)
    return ConsoleService(service, log, ConsoleSearch(settings.console_dir), capture)


def _sender(service: Service) -> Callable[[str], str | None]:
    """Which node a datagram is from: the label ``address`` of nodes says."""
    known: dict[str, str] = {}
    stamp = (-1, -1)

    def node_of(address: str) -> str | None:
        nonlocal stamp
        registry = service.registry
        now = (int(registry.revisions.max(initial=0)), len(registry))
        if now != stamp:
            stamp = now
            known.clear()
            for node in registry.roster.nodes:
                if node is not None and "address" in node.labels:
                    known[node.labels["address"]] = node.name
        return known.get(address)

    return node_of
