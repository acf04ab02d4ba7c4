"""Where machines that boot find the next thing: scripts, kernels, initrds. Pure."""

from __future__ import annotations

from strata.core.node import Node
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.script import Kernel
from strata.provisioning.networks import Networks


class Addresses:
    """The addresses of one controller on its boot networks. ``server`` is always our own, in the machine's subnet."""

    def __init__(self, networks: Networks, profiles: Profiles, builds: Builds) -> None:
        self._networks = networks
        self._profiles = profiles
        self._builds = builds

    def base(self, server: str) -> str:
        """Of everything that the boot service itself answers."""
        return f"http://{server}:{self._networks.boot_port}"

    def script(self, name: str, server: str, query: str) -> str:
        """Of a node's next script."""
        return f"http://{server}:{self._networks.boot_port}/boot/script/{name}?{query}"

    def kernel(self, profile: str, arch: str, server: str) -> Kernel:
        """Of what machines of an architecture boot by a profile now, which nginx serves; ``NotFound`` where there is
        nothing, ``Refused`` where it is for others. Whether it is sound is for who gives the address away to ask."""
        base = f"http://{server}:{self._networks.boot_port + 1}/{self._profiles.minos(profile, arch)}"
        return Kernel(base=base, parameters=self._profiles.parameters(profile))

    def minos(self, node: Node, profile: str) -> dict[str, str]:
        """Where a running node finds the kernel and initrd of its boot, and their digests; empty where it cannot."""
        subnets = (self._networks.subnet_of(interface.address) for interface in node.interfaces)
        server = next((str(subnet.server) for subnet in subnets if subnet is not None), None)
        digests = self._builds.digests(self._profiles.minos(profile, node.architecture))
        return {"url": self.kernel(profile, node.architecture, server).base, **digests} if server and digests else {}
