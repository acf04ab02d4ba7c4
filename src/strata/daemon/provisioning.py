"""The provisioning layer of one controller, put together: who nodes are, what they boot, what runs on them.

``Ground`` comes before the engine, whose ``node`` driver is in it; ``open_provisioning`` when there is a controller.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from strata.api.nginx import worker_account
from strata.api.services import Services
from strata.control.ca import Authority, Issued
from strata.control.node_driver import BootWay
from strata.control.peer_answers import agent_routes
from strata.control.peer_boot import BootElsewhere
from strata.control.peer_files import ROUTE as READ
from strata.control.peer_files import PeerFiles
from strata.control.service import Service
from strata.control.service_boot import BootControl, wanted_profile
from strata.control.service_images import ImageService
from strata.control.settings import Settings
from strata.core.errors import NotFound
from strata.core.node import Node
from strata.daemon.agents import AgentLayer
from strata.daemon.hardware import Opened, Reach
from strata.daemon.neighbours import Neighbours
from strata.hardware.bmc import Boot
from strata.hardware.consoles.text import clean
from strata.hardware.events.event import EventSink, HardwareEvent
from strata.provisioning.addresses import Pool, misplaced
from strata.provisioning.alarm import Alarm
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.fragment import Site
from strata.provisioning.boot.media import Media
from strata.provisioning.boot.nginx_files import BootFiles
from strata.provisioning.boot.profiles import DEFAULT, Profiles
from strata.provisioning.boot.service import Asked, BootService
from strata.provisioning.boot.service import Ground as BootGround
from strata.provisioning.dhcp.responder import Heard
from strata.provisioning.dhcp.service import DhcpService
from strata.provisioning.dhcp.tftp import IPXE
from strata.provisioning.directory import Directory
from strata.provisioning.identity.alarms import FoldedAlarms
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.repository import Images
from strata.provisioning.networks import Networks, read
from strata.provisioning.replication.replication import Replication
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.protocol import Store

NODE_TTL = 86400.0
"""Seconds that a node's certificate lasts; agents renew theirs long before."""
_REFRESH = 0.5
_TAIL_LINES = 300
_KERNEL = re.compile(r"\[ *\d+\.\d+\]")
_BINARIES = ("ipxe.efi", "snponly.efi")


class Ground:
    """What the engine's driver stands on. Some of it comes later, when there is a controller."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        ledger: Ledger,
        reach: Reach,
        authority: Authority,
        way_out: Sequence[str] = (),
    ) -> None:
        """``way_out``: stands before commands that need a network which this process is not in."""
        self.service: Service | None = None
        self.boot: BootService | None = None
        self.events: EventSink = lambda events: None
        self.logged: Callable[[str, Sequence[tuple[float, str, str]]], None] = lambda node, lines: None
        self.measured: Callable[[str, Mapping[str, Any]], None] = lambda node, metrics: None
        self.sighted: Callable[[str, str, str, str], None] = lambda mac, address, vendor_class, hostname: None
        self.elsewhere: BootElsewhere | None = None
        self.networks: Networks | None = None
        if settings.provisioning.networks is not None:
            self.networks = read(settings.provisioning.networks)
        self.directory = Directory()
        self.signer = Signer.open(settings.signing_dir)
        self.authority = authority
        self.builds = Builds(settings.minos_dir)
        self.alarms = FoldedAlarms(self._alarm)
        account = worker_account(settings.state_dir)
        self.images = Images(
            settings.images_dir,
            store,
            ledger,
            self.signer,
            self.alarms,
            readers=account.pw_gid if account else None,
            logins=settings.state_dir / "registries.json",
            prefix=way_out,
        )
        self.identity = Identity(store, self._sign, self.alarms, owner=self._owner)
        self.profiles = Profiles(store, ledger, self.builds.digest)
        self.agents = AgentLayer(
            store,
            self.identity,
            self.images,
            settings.state_dir,
            open_controller=reach.controllers.open,
            asked=self._asked,
            profile=self._label,
            way=self._way,
            by_itself=lambda name: not self._by_medium(name),
            owner=lambda mac: node.name if (node := self.directory.by_mac(mac)) else None,
            measured=lambda node, metrics: self.measured(node, metrics),
            logged=lambda node, lines: self.logged(node, lines),
        )

    async def start(self, parts: AsyncExitStack) -> None:
        """Load what the store knows; nobody is answered yet."""
        for part in (self.images, self.identity, self.profiles):
            await part.start()
            parts.push_async_callback(part.stop)

    def _alarm(self, alarm: Alarm) -> None:
        """An alarm of this layer is an alert like those of hardware."""
        about = alarm.node or alarm.peer or "unknown"
        event = HardwareEvent(
            time=time.time(),
            severity="warning" if alarm.kind == "rogue-machine" else "critical",
            message=f"{alarm.message} (from {alarm.peer})" if alarm.peer else alarm.message,
            source="strata",
            key=f"{alarm.kind}/{about}",
            node=alarm.node,
        )
        self.events([event])

    def _sign(self, csr: bytes, node: str) -> Issued:
        return self.authority.sign_csr(csr, node, "node", (), NODE_TTL)

    def _owner(self, address: str) -> str | None:
        found = self.directory.by_address(address)
        return found.name if found else None

    def profile_of(self, name: str) -> str:
        """The boot profile that a node's owners want."""
        return wanted_profile(self.service, name) if self.service is not None else DEFAULT

    def _label(self, profile: str) -> str:
        try:
            return self.profiles.label(profile)
        except NotFound:
            return ""

    async def _way(self, name: str) -> BootWay:
        """How a node is started, by the method of its profile."""
        method = self.profiles.get(self.profile_of(name)).method
        if method == "http" and self.networks is not None:
            server = self._server_of(self.directory.by_name(name))
            uri = f"http://{server}:{self.networks.boot_port}/boot/efi/ipxe.efi"
            return BootWay(boot=Boot(target="http", uri=uri))
        if method == "media" and self.boot is not None:
            return BootWay(boot=Boot(target="media"), media=await self.boot.medium(name))
        return BootWay(boot=Boot(target="pxe"))

    def _by_medium(self, name: str) -> bool:
        found = self.profiles.all.get(self.profile_of(name))
        return found is not None and found.method == "media"

    def _server_of(self, node: Node | None) -> str:
        assert self.networks is not None
        for interface in node.interfaces if node else ():
            if (subnet := self.networks.subnet_of(interface.address)) is not None:
                return str(subnet.server)
        return str(self.networks.subnets[0].server)

    def heard(self, machine: Heard) -> None:
        """Some machine was given an address."""
        if machine.kind == "leased":
            self.sighted(machine.mac, machine.address, machine.vendor_class, machine.hostname)

    def _asked(self, name: str) -> float:
        asked = self.boot.asked(name) if self.boot is not None else Asked()
        fragment, script = asked.fragment, asked.script
        if self.elsewhere is not None:
            fragment = max(fragment, self.elsewhere.fragment(name))
            script = max(script, self.elsewhere.script(name))
        # Who waits for a medium asks in vain.
        return fragment if self._by_medium(name) else max(script, fragment)


async def open_provisioning(
    service: Service,
    services: Services,
    settings: Settings,
    ground: Ground,
    hardware: Opened,
    neighbours: Neighbours,
    parts: AsyncExitStack,
) -> None:
    """Everything that answers machines and agents, for as long as ``parts`` is open."""

    def logged(node: str, lines: Sequence[tuple[float, str, str]]) -> None:
        hardware.console.append(node, "agent", [f"{clean(source)}: {clean(text)}" for _, source, text in lines])

    ground.service = service
    ground.events = hardware.hub.take
    ground.logged = logged
    ground.sighted = hardware.sighted
    refreshing = asyncio.create_task(_follow_nodes(service, ground.directory), name="node directory")
    parts.push_async_callback(_ended, refreshing)
    service.edits.known = {"image": ground.agents.sets.get, "minos": ground.profiles.get}
    replication = Replication(
        service.controller.store,
        service.ledger,
        ground.images,
        settings.minos_dir,
        ground.signer,
        ground.alarms,
        me=neighbours.peers.me.controller,
        announce=service.controller.leadership.announce,
        others=lambda: [peer.controller for peer in neighbours.peers.others()],
        read=PeerFiles(neighbours.peers, neighbours.elsewhere.client).read,
    )
    await replication.start()
    parts.push_async_callback(replication.stop)
    ground.builds.shared = replication.builds.latest
    services.images = ImageService(
        ground.images, service.jobs_, used_by=ground.agents.sets.using, copies=replication.holdings.copies
    )
    services.agents = await ground.agents.start(service, neighbours.elsewhere)
    parts.push_async_callback(ground.agents.stop)
    ground.elsewhere = elsewhere = BootElsewhere(
        ground.agents.hub,
        neighbours.elsewhere,
        led_for=_led_for(service),
        arrived=lambda name: ground.identity.record(name).redeemed > 0,
    )
    parts.push_async_callback(elsewhere.close)
    routes = neighbours.door.routes
    routes.update(agent_routes(ground.agents.hub, services.agents.agents, ground.agents.limits_here))
    routes.update(elsewhere.routes())
    routes[READ] = replication.library.answer
    if ground.networks is not None:
        ground.boot = await _open_boot(
            service, settings, ground, elsewhere, ground.networks, hardware, neighbours, parts
        )
        services.boot = BootControl(service, ground.boot, ground.profiles, ground.identity)


async def _open_boot(
    service: Service,
    settings: Settings,
    ground: Ground,
    elsewhere: BootElsewhere,
    networks: Networks,
    hardware: Opened,
    neighbours: Neighbours,
    parts: AsyncExitStack,
) -> BootService:
    """DHCP, TFTP and the boot server on the networks."""

    async def hold(name: str, reason: str) -> None:
        done = await service.edits.hold(service.registry.select(name), reason, "strata")
        await service.settled(done.revision)

    async def console_tail(name: str) -> str:
        texts = [line.text for line in await hardware.console.tail(name, _TAIL_LINES)]
        # The machine has begun the next boot already; what its kernel said last is what one wants to know.
        said = [place for place, text in enumerate(texts) if _KERNEL.match(text)]
        return "\n".join(texts[: said[-1] + 1] if said else texts)

    def held(name: str) -> bool:
        index = service.registry.find(name)
        return index >= 0 and bool(service.registry.held[index])

    account = worker_account(settings.state_dir)
    media = Media(settings.media_dir, reader=(account.pw_uid, account.pw_gid) if account else None)
    boot = BootService(
        networks,
        ground.directory,
        ground.identity,
        ground.profiles,
        Site(
            controllers=neighbours.peers.urls,
            ca=ground.authority.pem.decode(),
            release_keys=(ground.signer.public_pem,),
        ),
        BootGround(
            attached=elsewhere.attached,
            asked=elsewhere.asked,
            begun=elsewhere.begun,
            held=held,
            hold=hold,
            console_tail=console_tail,
            profile_of=ground.profile_of,
        ),
        ground.alarms,
        builds=ground.builds,
        media=media,
        binaries={name: (IPXE / name).read_bytes() for name in _BINARIES if (IPXE / name).is_file()},
    )
    await boot.start()
    parts.push_async_callback(boot.stop)
    service.edits.addresses = lambda is_taken: Pool(networks, is_taken).assign
    service.edits.misplaced = misplaced(networks)
    dhcp = DhcpService(networks, ground.directory, settings.state_dir, alarm=ground.alarms, heard=ground.heard)
    await dhcp.start()
    parts.push_async_callback(dhcp.stop)
    return boot


def _led_for(service: Service) -> Callable[[str], float]:
    """For how many seconds this controller has led a node."""
    controller = service.controller

    def seconds(name: str) -> float:
        controller.leadership.lapse()  # one that slept may lead no more, and has heard nobody meanwhile
        index = controller.registry.find(name)
        shard = int(controller.registry.uids[index]) % controller.settings.shards if index >= 0 else -1
        since = controller.leadership.since.get(shard)
        return controller.clock.now() - since if since is not None else 0.0

    return seconds


def boot_files(settings: Settings, networks: Networks | None) -> BootFiles | None:
    """What nginx serves on the boot networks."""
    if networks is None or not networks.subnets:
        return None
    hosts = tuple(dict.fromkeys(str(subnet.server) for subnet in networks.subnets))
    return BootFiles(hosts=hosts, port=networks.boot_port + 1, root=settings.minos_dir)


async def _follow_nodes(service: Service, directory: Directory) -> None:
    """Keep the directory level with the registry."""
    registry, stamp = service.registry, (-1, -1)
    while True:
        now = (int(registry.revisions.max(initial=0)), len(registry))
        if now != stamp:
            stamp = now
            directory.update(_nodes(service))
        await asyncio.sleep(_REFRESH)


def _nodes(service: Service) -> Iterator[Node]:
    return (node for node in service.registry.roster.nodes if node is not None)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
