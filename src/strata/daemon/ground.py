"""What the engine's ``node`` driver stands on: who nodes are, what they boot, their agents.

Comes before the controller; ``provisioning`` puts the rest around it when there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from strata.api.web_account import web_account
from strata.control.ca import Authority, Issued
from strata.control.node_driver import BootWay
from strata.control.peer_boot import BootElsewhere
from strata.control.service import Service
from strata.control.service_boot import wanted_profile
from strata.control.settings import Settings
from strata.core.errors import NotFound, Refused, Unavailable
from strata.core.node import Node
from strata.daemon.agents import AgentLayer
from strata.daemon.hardware import Reach
from strata.daemon.holding import holdable
from strata.hardware.bmc import Boot
from strata.hardware.events.event import EventSink, HardwareEvent
from strata.provisioning.alarm import Alarm
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.profiles import DEFAULT, Profiles
from strata.provisioning.boot.service import Asked, BootService
from strata.provisioning.dhcp.boot_files import ARM_FILE, EFI_FILE
from strata.provisioning.dhcp.responder import Heard
from strata.provisioning.dhcp.tftp import find_ipxe, ipxe_folders
from strata.provisioning.directory import Directory
from strata.provisioning.identity.alarms import FoldedAlarms
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.repository import Images
from strata.provisioning.minos.soundness import Soundness, require_sound
from strata.provisioning.networks import Networks, read
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.protocol import Store

NODE_TTL = 86400.0
"""Seconds that a node's certificate lasts; agents renew theirs long before."""


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
        self._placed: dict[str, str] = {}
        self.networks: Networks | None = None
        if settings.provisioning.networks is not None:
            self.networks = read(settings.provisioning.networks)
        self.directory = Directory()
        self.signer = Signer.open(settings.signing_dir)
        self.authority = authority
        self.alarms = FoldedAlarms(self._alarm)
        self.builds = Builds(settings.minos_dir, Soundness(settings.minos_dir, self.signer.public_pem, self.alarms))
        self.ipxe = ipxe_folders(settings.state_dir)
        account = web_account(settings.listen.account) if settings.listen.tls else None
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
            cannot_boot=self._cannot_boot,
            way=self._way,
            by_itself=self._by_itself,
            override=self._override,
            owner=lambda mac: node.name if (node := self.directory.by_mac(mac)) else None,
            measured=lambda node, metrics: self.measured(node, metrics),
            damaged=self.images.arrived_damaged,
            alarm=self.alarms,
            logged=lambda node, lines: self.logged(node, lines),
            hold_most=settings.provisioning.hold_most or holdable(),
        )

    async def start(self, parts: AsyncExitStack) -> None:
        """Load what the store knows; nobody is answered yet."""
        for part in (self.images, self.identity, self.profiles):
            await part.start()
            parts.push_async_callback(part.stop)

    def _alarm(self, alarm: Alarm) -> None:
        """An alarm of this layer is an alert like those of hardware."""
        about = alarm.node or alarm.peer or alarm.about or "unknown"
        event = HardwareEvent(
            time=time.time(),
            severity="warning" if alarm.kind in ("rogue-machine", "rogue-relay") else "critical",
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

    def _label(self, profile: str, arch: str) -> str:
        try:
            return self.profiles.label(profile, arch)
        except (NotFound, Refused):
            return ""

    def _cannot_boot(self, name: str) -> str:
        node = self.directory.by_name(name)
        if node is None:
            return ""
        try:
            digest = self.profiles.minos(self.profile_of(name), node.architecture)
            require_sound(digest, self.builds.soundness.known(digest) or ())
            file = _efi_file(node)
            if self.profiles.get(self.profile_of(name)).method == "http" and find_ipxe(file, self.ipxe) is None:
                raise NotFound(f"there is no {file}", where="iPXE", hint=f"put it into {self.ipxe[0]} and start anew")
        except (NotFound, Refused) as error:
            return f"it has nothing to boot: {error}"
        return ""

    async def _way(self, name: str) -> BootWay:
        """How a node is started, by the method of its profile."""
        boot = self._override(name)
        if boot is not None:
            return BootWay(boot=boot)
        if self.boot is None:
            raise Unavailable("this service makes no boot media", where=name)
        return BootWay(boot=Boot(target="media"), media=await self.boot.media.begin(name))

    def _override(self, name: str) -> Boot | None:
        """From where a node boots by the method of its profile; None: from a medium that has to be made."""
        method = self.profiles.get(self.profile_of(name)).method
        if method == "media":
            return None
        if method == "http" and self.networks is not None:
            node = self.directory.by_name(name)
            uri = f"http://{self._server_of(node)}:{self.networks.boot_port}/boot/efi/{_efi_file(node)}"
            return Boot(target="http", uri=uri)
        return Boot(target="pxe")

    def _by_itself(self, name: str) -> bool:
        """Whether firmware in its usual order may be taken to find it: it tries PXE on most machines."""
        try:
            return self.profiles.get(self.profile_of(name)).method == "ipxe"
        except NotFound:
            return True

    def _by_medium(self, name: str) -> bool:
        return self.profiles.is_by_medium(self.profile_of(name))

    def _server_of(self, node: Node | None) -> str:
        assert self.networks is not None
        for interface in node.interfaces if node else ():
            if (subnet := self.networks.subnet_of(interface.address)) is not None:
                return str(subnet.server)
        return str(self.networks.subnets[0].server)

    def heard(self, machine: Heard) -> None:
        """Some machine was given an address."""
        if machine.kind == "leased":
            if machine.node and machine.port:
                self._placed[machine.address] = machine.mac
            self.sighted(machine.mac, machine.address, machine.vendor_class, machine.hostname)

    def leased(self, address: str) -> str:
        """The MAC of the machine that got a node's address by the place where it is cabled; empty: none did."""
        return self._placed.get(address, "")

    def _asked(self, name: str) -> float:
        asked = self.boot.asked(name) if self.boot is not None else Asked()
        fragment, script = asked.fragment, asked.script
        if self.elsewhere is not None:
            fragment = max(fragment, self.elsewhere.fragment(name))
            script = max(script, self.elsewhere.script(name))
        # Who waits for a medium asks in vain.
        return fragment if self._by_medium(name) else max(script, fragment)


def _efi_file(node: Node | None) -> str:
    """The iPXE that the node's firmware loads by HTTP."""
    return ARM_FILE if node is not None and node.architecture == "aarch64" else EFI_FILE
