"""How each node is started: by which method, from where, and whether there is anything for it to boot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strata.core.errors import NotFound, Refused, Unavailable
from strata.core.node import Node
from strata.fleet.fleet import Fleet
from strata.hardware.bmc.protocol import Boot
from strata.provisioning.agents.driver import BootWay
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.peers import BootElsewhere
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.requests import wanted_profile
from strata.provisioning.boot.service import Asked, BootService
from strata.provisioning.dhcp.boot_files import ARM_FILE, EFI_FILE
from strata.provisioning.dhcp.tftp import find_ipxe
from strata.provisioning.directory import Directory
from strata.provisioning.minos.soundness import require_sound
from strata.provisioning.networks import Networks


class BootWays:
    """What the ``node`` driver asks about booting. ``boot``: None where this controller answers no machines."""

    def __init__(
        self,
        fleet: Fleet,
        directory: Directory,
        profiles: Profiles,
        builds: Builds,
        elsewhere: BootElsewhere,
        *,
        networks: Networks | None,
        boot: BootService | None,
        ipxe: Sequence[Path],
    ) -> None:
        self._fleet = fleet
        self._directory = directory
        self._profiles = profiles
        self._builds = builds
        self._elsewhere = elsewhere
        self._networks = networks
        self._boot = boot
        self._ipxe = ipxe

    def profile_of(self, name: str) -> str:
        """The boot profile that a node's owners want."""
        return wanted_profile(self._fleet, name)

    def label(self, profile: str, arch: str) -> str:
        """A boot profile as agents of an architecture report it, with its digest; empty: nothing can be booted."""
        try:
            return self._profiles.label(profile, arch)
        except (NotFound, Refused):
            return ""

    def cannot_boot(self, name: str) -> str:
        """Why a node has nothing to boot; empty: it has something."""
        node = self._directory.by_name(name)
        if node is None:
            return ""
        try:
            digest = self._profiles.minos(self.profile_of(name), node.architecture)
            require_sound(digest, self._builds.soundness.known(digest) or ())
            file = _efi_file(node)
            if self._profiles.get(self.profile_of(name)).method == "http" and find_ipxe(file, self._ipxe) is None:
                raise NotFound(f"there is no {file}", where="iPXE", hint=f"put it into {self._ipxe[0]} and start anew")
        except (NotFound, Refused) as error:
            return f"it has nothing to boot: {error}"
        return ""

    async def way(self, name: str) -> BootWay:
        """How a node is started, by the method of its profile."""
        boot = self.override(name)
        if boot is not None:
            return BootWay(boot=boot)
        if self._boot is None:
            raise Unavailable("this service makes no boot media", where=name)
        return BootWay(boot=Boot(target="media"), media=await self._boot.begin_from_medium(name))

    def override(self, name: str) -> Boot | None:
        """From where a node boots by the method of its profile; None: from a medium that has to be made."""
        method = self._profiles.get(self.profile_of(name)).method
        if method == "media":
            return None
        if method == "http" and self._networks is not None:
            node = self._directory.by_name(name)
            uri = f"http://{self._server_of(node)}:{self._networks.boot_port}/boot/efi/{_efi_file(node)}"
            return Boot(target="http", uri=uri)
        return Boot(target="pxe")

    def by_itself(self, name: str) -> bool:
        """Whether firmware in its usual order may be taken to find it: it tries PXE on most machines."""
        try:
            return self._profiles.get(self.profile_of(name)).method == "ipxe"
        except NotFound:
            return True

    def _server_of(self, node: Node | None) -> str:
        assert self._networks is not None
        for interface in node.interfaces if node else ():
            if (subnet := self._networks.subnet_of(interface.address)) is not None:
                return str(subnet.server)
        if not self._networks.subnets:
            raise Unavailable(
                "this controller is on no boot network", where="boot", hint="strata network list says why"
            )
        return str(self._networks.subnets[0].server)

    def asked(self, name: str) -> float:
        """When the node last asked for something to boot (Unix seconds), this controller or another."""
        here, there = self._boot.asked(name) if self._boot is not None else Asked(), self._elsewhere.told(name)
        fragment, script = max(here.fragment, there.fragment), max(here.script, there.script)
        # Who waits for a medium asks in vain.
        return fragment if self._profiles.is_by_medium(self.profile_of(name)) else max(script, fragment)


def _efi_file(node: Node | None) -> str:
    """The iPXE that the node's firmware loads by HTTP."""
    return ARM_FILE if node is not None and node.architecture == "aarch64" else EFI_FILE
