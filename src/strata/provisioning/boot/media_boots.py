"""Boots from a medium: the fragment goes into an image that a node's controller fetches, and never over a boot network.

Decides who gets one and for how long; ``media`` makes the images.
"""

from __future__ import annotations

from strata.core.errors import NotFound, Refused, Unavailable
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.failed import FailedBoots
from strata.provisioning.boot.fragment import Site
from strata.provisioning.boot.ground import Ground
from strata.provisioning.boot.media import ARCHITECTURE, Media
from strata.provisioning.boot.opener import Opener
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.directory import Directory
from strata.provisioning.identity.identity import TOKEN_TTL, Identity


class MediaBoots:
    """Boots of nodes from media. ``start``, then ``stop``."""

    def __init__(
        self,
        directory: Directory,
        identity: Identity,
        profiles: Profiles,
        site: Site,
        ground: Ground,
        opener: Opener,
        failed: FailedBoots,
        builds: Builds,
        media: Media | None,
    ) -> None:
        """Without ``media`` no node can boot so."""
        self._directory = directory
        self._identity = identity
        self._profiles = profiles
        self._site = site
        self._ground = ground
        self._opener = opener
        self._failed = failed
        self._builds = builds
        self._media = media

    async def start(self) -> None:
        """Make ready to make media."""
        if self._media is not None:
            await self._media.start()

    async def stop(self) -> None:
        """Remove the media."""
        if self._media is not None:
            await self._media.stop()

    async def begin(self, name: str) -> str:
        """Begin a boot of ``name`` from a medium: the address that its controller shall fetch it from, over TLS."""
        node = self._directory.by_name(name)
        if node is None:
            raise NotFound("no such node", where=name)
        if self._media is None:
            raise Unavailable("this service makes no boot media", where=name)
        if self._ground.held(name):
            raise Refused("the node is held", by="hold", where=name, hint="strata node release NODE")
        if self._failed.too_many(name):
            self._failed.hold(name)
            raise Refused("the node did not arrive too often, and is held", by="hold", where=name)
        if node.architecture != ARCHITECTURE:
            raise Refused(
                f"boot media are made for {ARCHITECTURE}, and the node is {node.architecture}",
                by="architecture",
                where=name,
                hint="have it boot by another profile: strata node set NODE minos=PROFILE",
            )
        profile = self._ground.profile_of(name)
        build = self._builds.root / self._profiles.minos(profile, node.architecture)
        generation = self._identity.record(name).generation + 1
        fragment = await self._opener.open(node, generation, profile)
        parameters = self._profiles.parameters(profile)
        ends = self._opener.opened[name] + TOKEN_TTL
        file = await self._media.add(name, generation, build, parameters, fragment, ends)
        return f"{self._site.controllers()[0]}/v1/boot/media/{file}"

    def file(self, name: str) -> str | None:
        """The file of a medium; None: there is none of that name, or its token is spent."""
        medium = self._media.find(name) if self._media is not None else None
        if medium is None or self._media is None:
            return None
        record = self._identity.record(medium.node)
        if record.generation != medium.generation or record.redeemed:
            self._media.remove(medium.node)
            return None
        return medium.file
