"""Opens the hardware layer on a fleet: clients of BMCs, discovery, inventory, events, alerts, consoles."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from strata.core.column import Column
from strata.core.errors import BadRequest
from strata.fleet.access.sealing import Seal
from strata.fleet.alarm import Alarm
from strata.fleet.files import share
from strata.fleet.fleet import Fleet, Part
from strata.hardware.alerts.node_troubles import NodeTroubles
from strata.hardware.alerts.service import AlertService, open_alerts
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.dialects import dialects
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.bmc.redfish.wire import Tls
from strata.hardware.bmc.service import BmcService
from strata.hardware.consoles.capture import CaptureSettings, ConsoleCapture
from strata.hardware.consoles.kernel_messages import KernelMessages
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.panic import PanicWatch
from strata.hardware.consoles.search import ConsoleSearch
from strata.hardware.consoles.service import ConsoleService
from strata.hardware.credentials.credentials import BmcCredentials
from strata.hardware.credentials.pins import Pins
from strata.hardware.credentials.rotation import Rotation, login_checks
from strata.hardware.credentials.service import BmcCredentialService
from strata.hardware.discovery.crawl import crawl
from strata.hardware.discovery.sweep import Discovery
from strata.hardware.emergency.service import EmergencyService
from strata.hardware.events.hub import EventHub, EventSettings, PowerTold
from strata.hardware.events.poller import BAD, SILENT
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.site import bmc_addresses
from strata.hardware.fabric.service import FabricService, cabling
from strata.hardware.feeds.driver import FeedDriver
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.service import InventoryService
from strata.hardware.inventory.store import Inventory
from strata.hardware.settings import HardwareSettings
from strata.store.audit import Ledger
from strata.store.protocol import Store


class Reach:
    """How this process reaches BMCs: their credentials and certificates, and the clients that use them."""

    def __init__(self, settings: HardwareSettings, seal: Seal, store: Store, ledger: Ledger) -> None:
        self.seal = seal
        self.credentials = BmcCredentials(store, ledger, self.seal)
        self.pins = Pins(store, ledger)
        self.tls = _tls(settings, self.pins)
        self._given: dict[str, Credentials] = {}
        self.dialects = dialects(self._login)
        room = RedfishSettings(connections=share("bmcs", most=RedfishSettings().connections))
        self.bmcs = Bmcs(RedfishClient(self._login, settings=room, tls=self.tls), self.dialects)

    async def start(self) -> None:
        """Load what is known of credentials and certificates."""
        await self.credentials.start()
        await self.pins.start()

    async def stop(self) -> None:
        """Log out everywhere."""
        await self.bmcs.close()
        await self.pins.stop()
        await self.credentials.stop()

    def give(self, prefix: str, credentials: Credentials) -> None:
        """What to log in with at addresses that begin with ``prefix``, unless somebody sets a credential there."""
        self._given[prefix] = credentials

    def _login(self, address: str) -> Credentials:
        # A credential that somebody set counts there as well, or a rotated password would be a lost one.
        for prefix, given in self._given.items():
            if address.startswith(prefix) and not self.credentials.route(address):
                return given
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
            where=f"hardware.bmc_tls {settings.bmc_tls}",
            hint="give a PEM file, 'pin' or 'system'",
        ) from None


async def open_hardware(fleet: Fleet, reach: Reach | None = None) -> None:
    """All rooms of the hardware layer. ``reach``: another way to BMCs."""
    settings, state_dir = fleet.section(HardwareSettings), fleet.settings.state_dir
    reach = fleet.put(reach or Reach(settings, fleet.of(Seal), fleet.store, fleet.ledger), Reach)
    await fleet.keep(reach)
    bmcs = reach.bmcs
    driver = fleet.put(BmcDriver(bmcs))
    fleet.parts.push_async_callback(driver.close)
    fleet.drive(driver)
    fleet.drive(fleet.put(FeedDriver(fleet.registry, fleet.controller.engine, fleet.controller.clock.now)))

    hub = EventHub(
        state_dir / "events.db",
        fleet.store,
        fleet.ledger,
        reach.seal,
        bmcs,
        RedfishSubscriptions(bmcs.redfish),
        owner=fleet.settings.controller_id,
        addresses=bmc_addresses(fleet.registry),
        mine=fleet.controller.leads if settings.poll else lambda _: False,
        looked=fleet.controller.look_soon,
        turn=fleet.background.turn,
        told=tells(fleet, driver),
        settings=EventSettings(public_url=settings.public_url, streams=share("events", most=EventSettings().streams)),
    )
    fleet.put(hub)
    troubles = NodeTroubles(fleet, hub)
    fleet.reasons.append(open_alerts(hub.alerts))
    fleet.alarms.append(_alerts_of_alarms(fleet, hub, bmcs))
    fleet.silences.always.add(driver.name)
    nodes = NodesByBmc(fleet.registry)
    inventory = await fleet.keep(Inventory(fleet.store, sink=hub.take, node_at=nodes.at))
    redfish = partial(crawl, bmcs.redfish)

    others = {scheme: dialect.inventory for scheme, dialect in reach.dialects.items()}
    discovery = Discovery({"http": redfish, "https": redfish, **others})
    found = fleet.put(InventoryService(fleet, inventory, discovery, nodes))
    fleet.forgets.append(found.prune)
    rotation = Rotation(reach.credentials, bmcs.open, login_checks(reach.tls, reach.dialects))
    credentials = BmcCredentialService(fleet, reach.credentials, rotation, reach.pins, bmcs.unlock)
    fleet.put(await fleet.keep(credentials))
    emergency = fleet.put(EmergencyService(fleet, bmcs))
    fleet.parts.push_async_callback(emergency.stop)
    fleet.put(BmcService(fleet, bmcs.open, reach.seal))
    fleet.put(AlertService(fleet, hub))
    fleet.put(FabricService(fleet, lambda: cabling(inventory), nodes.at, file=settings.topology))
    console = fleet.put(await fleet.keep(ConsoleLog(console_dir(state_dir))))
    consoles = _consoles(fleet, reach, hub, console)

    async def begin() -> None:
        for part in consoles:
            await fleet.keep(part)
        await fleet.keep(hub)
        for alert in hub.alerts.alerts.values():
            kind, _, about = alert.key.partition("/")
            if not alert.over and alert.node and (alert.key == SILENT or kind == "look-failed"):
                fleet.silences.knew(driver.name if alert.key == SILENT else about, alert.node)
        await fleet.keep(troubles)

    fleet.begin(begin)


def tells(fleet: Fleet, driver: BmcDriver) -> Callable[[Sequence[PowerTold]], None]:
    """Gives the engine what BMCs say of power by themselves, as facts."""
    controller, registry = fleet.controller, fleet.registry

    def tell(told: Sequence[PowerTold]) -> None:
        known = [(index, one) for one in told if (index := registry.find(one.node)) >= 0]
        led = [(index, one) for index, one in known if controller.engine.progress.epoch[index] > 0]
        driver.was_told({one.node: (registry.node_at(index).bmc, one.power) for index, one in led})
        now = controller.clock.wall()
        for when in sorted({one.time for _, one in led}):
            some = [(index, one) for index, one in led if one.time == when]
            nodes = np.array([index for index, _ in some], dtype=np.int64)
            power = Column.of([one.power for _, one in some])
            controller.tell(nodes, {"power": power}, "bmc event", ago=max(0.0, now - when))

    return tell


def console_dir(state_dir: Path) -> Path:
    """What consoles printed."""
    return state_dir / "consoles"


def _alerts_of_alarms(fleet: Fleet, hub: EventHub, bmcs: Bmcs) -> Callable[[Alarm], None]:
    """What has alarms become alerts. A BMC that nothing is seen of is one alert, whether a look of the engine or of the
    poller found out, and however many nodes are behind it."""

    def take(alarm: Alarm) -> None:
        event = event_of(alarm)
        if alarm.kind == "look-failed" and alarm.about == BmcDriver.name:
            index = fleet.registry.find(alarm.node)
            node = fleet.registry.nodes[index] if index >= 0 else None
            if node is not None and not node.bmc:
                return  # there is none to be silent
            site = hub.site_of(node.bmc) if node is not None else None
            subject, root = (site.node_of(""), site.root) if site is not None else (alarm.node, "")
            # One that answers, and nothing that can be used, is not silent; that it answers well the poller says.
            silent = alarm.severity == "ok" or node is None or bmcs.silent(node.bmc)
            event = msgspec.structs.replace(event, key=SILENT if silent else BAD, node=subject, bmc=root)
        # That something is over is news only where somebody was told that it was not.
        if event.severity != "ok" or event.key in hub.alerts.troubles(event.node):
            hub.take([event])

    return take


def event_of(alarm: Alarm) -> HardwareEvent:
    """An alarm of another layer is an event like those of hardware, and so becomes an alert."""
    about = alarm.about or alarm.node or alarm.peer or "unknown"
    return HardwareEvent(
        time=time.time(),
        severity=alarm.severity,
        message=f"{alarm.message} (from {alarm.peer})" if alarm.peer else alarm.message,
        source="strata",
        key=f"{alarm.kind}/{about}",
        node=alarm.node,
    )


def _consoles(fleet: Fleet, reach: Reach, hub: EventHub, log: ConsoleLog) -> tuple[Part, ...]:
    """Captured consoles and kernel messages, and who listens to them for trouble."""
    settings, registry = fleet.section(HardwareSettings), fleet.registry
    panics = fleet.put(PanicWatch(log, hub.take))
    fleet.parts.push_async_callback(panics.close)
    mine = fleet.controller.leads

    def captured() -> Mapping[str, str]:
        """Name → where its console is, of the nodes that this process looks after."""
        if not settings.consoles:
            return {}
        return {n.name: n.bmc for n in registry.nodes if n is not None and n.bmc and mine(n.name)}

    room = CaptureSettings(most=share("consoles", most=CaptureSettings().most))
    capture = ConsoleCapture(log, reach.bmcs.open, captured, settings=room, turn=fleet.background.turn)
    if settings.consoles:
        fleet.of(BmcDriver).before_on.append(capture.before_power)
    messages = KernelMessages(
        log,
        _sender(fleet),
        syslog=settings.syslog,
        netconsole=settings.netconsole,
    )
    fleet.put(ConsoleService(fleet, log, ConsoleSearch(console_dir(fleet.settings.state_dir)), capture))
    return capture, messages


def _sender(fleet: Fleet) -> Callable[[str], str | None]:
    """Which node a datagram is from: the label ``address`` of nodes says."""
    registry = fleet.registry
    nodes = registry.kept(lambda: {n.labels.get("address"): n.name for n in registry.nodes if n is not None})
    return lambda address: nodes().get(address)
