"""Opens boots: uses up a generation of a node, and makes the fragment that tells the node of it."""

from __future__ import annotations

from collections.abc import Callable

from strata.core.node import Node
from strata.provisioning.boot.addresses import Addresses
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.fragment import Site, node_fragment
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.identity.identity import Identity
from strata.provisioning.networks import Networks


class Opener:
    """The one place where a boot begins, whichever way its fragment reaches the node."""

    def __init__(
        self,
        networks: Networks,
        identity: Identity,
        profiles: Profiles,
        addresses: Addresses,
        builds: Builds,
        site: Site,
        clock: Callable[[], float],
    ) -> None:
        self._networks = networks
        self._identity = identity
        self._profiles = profiles
        self._addresses = addresses
        self._builds = builds
        self._site = site
        self._clock = clock
        self.opened: dict[str, float] = {}
        """When the last boot of each node was opened here (Unix seconds)."""

    async def open(self, node: Node, generation: int, profile: str, peer: str = "") -> bytes:
        """Begin boot ``generation`` of ``node``: its fragment. Secret: it holds the token. Raises ``Denied`` where that
        generation has begun before, ``NotFound`` where there is nothing to boot, ``Refused`` where there is what
        the node must not boot: another architecture's, or not as it was signed (also if that is so since the node has
        fetched it)."""
        await self._builds.soundness.require(self._profiles.minos(profile, node.architecture))
        label, minos = self._profiles.label(profile, node.architecture), self._addresses.minos(node, profile)
        token = await self._identity.open_boot(node.name, generation, peer)
        now = self.opened[node.name] = self._clock()
        return node_fragment(self._site, self._networks, node, generation, token, label, minos, now)
