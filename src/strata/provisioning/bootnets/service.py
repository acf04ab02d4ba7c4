"""Keeps the declared networks, and what this controller serves level with them and with its own addresses.

The networks that the boot service goes by are one object. It is changed in place when others are declared, or when the
machine gets or loses an address; then whoever listens somewhere is told to listen where it says now. Where that cannot
be, everything stays as it was, and an alert says why.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from strata.core.errors import StrataError
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm, AlarmSeverity
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.provisioning.bootnets.here import Here, Own, here, own_addresses, require_sound
from strata.provisioning.bootnets.records import NetworkEntry, NetworkList, NetworkView
from strata.provisioning.networks import Networks

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between looks at the machine's own addresses."""
AGAIN = 60.0
"""Seconds after which what could not be listened on is tried again: those that can are silent for a moment then."""

Follower = Callable[[], Awaitable[None]]


class BootNetworks:
    """``start``, then ``stop``. ``networks``: what the boot service goes by; None: machines are not booted here."""

    def __init__(
        self, fleet: Fleet, networks: Networks | None, own: Callable[[], Sequence[Own]] = own_addresses
    ) -> None:
        self._fleet = fleet
        self._networks = networks
        self._file = networks.subnets if networks is not None else ()
        self._file_ipv6 = networks.ipv6 if networks is not None else ()
        self._own = own
        self._refused: tuple[object, ...] = ()
        self._tried = 0.0
        self._trouble = ""
        self.records = fleet.records(
            NetworkEntry, kind="network", listed_by="strata network list", changed=lambda *_: self._round.soon()
        )
        self.followers: list[Follower] = []
        """Told, in this order, when the networks have changed; ``StrataError``: it cannot be so."""
        self._round = Recurring("boot networks", self.look, lambda: EVERY, trouble="boot networks cannot be followed")

    async def start(self) -> None:
        """Know what is declared."""
        await self.records.start()
        if self._networks is not None:
            self._take(self._here())  # who opens after us listens there from the beginning

    async def follow(self, follower: Follower) -> None:
        """Serve what is declared from now on, ``follower`` being told: whoever listens already does so."""
        self.followers.append(follower)
        await self._round.start()

    async def stop(self) -> None:
        """Follow no more."""
        await self._round.stop()
        await self.records.stop()

    async def all(self, who: Principal) -> NetworkList:
        """All networks that machines boot from, and where the controller that answers serves them."""
        found = self._here()
        items = [self._view(name, entry, found) for name, entry in self.records.sorted]
        named = {id(subnet) for subnet in found.names.values()}
        items += [
            NetworkView(
                name=str(subnet.network),
                network=str(subnet.network),
                origin="file",
                interface=subnet.interface,
                server=str(subnet.server),
                why="",
                entry=None,
            )
            for subnet in self._file
            if id(subnet) not in named
        ]
        return NetworkList(controller=self._fleet.controller.name, items=tuple(items))

    async def look(self) -> None:
        """Serve what is declared now, where the machine is now."""
        assert self._networks is not None
        found, before = self._here(), (self._networks.subnets, self._networks.ipv6)
        wanted = (found.subnets, (*self._file_ipv6, *found.ipv6))
        now = self._fleet.controller.clock.now()
        if wanted == before or (wanted == self._refused and now < self._tried + AGAIN):
            return
        self._take(found)
        try:
            await self._tell()
        except StrataError as error:
            self._networks.subnets, self._networks.ipv6 = before
            self._refused, self._tried, self._trouble = wanted, now, str(error)
            log.error("other boot networks cannot be served", extra={"reason": str(error)})
            self._alarm("critical", f"the networks that are declared cannot be served here: {error}")
            await self._tell()
            return
        log.info("boot networks", extra={"networks": [str(subnet.network) for subnet in self._networks.subnets]})
        if self._trouble:
            self._alarm("ok", "the networks that are declared are served")
        self._refused, self._trouble = (), ""

    # for the configuration

    def together(self, edits: Mapping[str, NetworkEntry | None]) -> None:
        """Raise ``BadRequest`` where the networks could not be served side by side."""
        after = {name: one for name, one in {**self.records.all, **edits}.items() if one is not None}
        require_sound(after)

    # parts

    def _here(self) -> Here:
        return here(self.records.all, self._own(), self._file)

    def _take(self, found: Here) -> None:
        assert self._networks is not None
        self._networks.subnets, self._networks.ipv6 = found.subnets, (*self._file_ipv6, *found.ipv6)

    async def _tell(self) -> None:
        for follower in self.followers:
            await follower()

    def _alarm(self, severity: AlarmSeverity, message: str) -> None:
        about = f"boot networks of {self._fleet.controller.name}"
        self._fleet.alarm(Alarm(kind="controller", severity=severity, message=message, about=about))

    def _view(self, name: str, entry: NetworkEntry, found: Here) -> NetworkView:
        subnet = found.names.get(name) if self._networks is not None else None
        why = found.unserved.get(name, self._trouble) if self._networks is not None else _NOT_HERE
        return NetworkView(
            name=name,
            network=entry.network,
            origin="repository",
            interface=subnet.interface if subnet is not None else "",
            server=str(subnet.server) if subnet is not None else "",
            why=why,
            entry=entry,
        )


_NOT_HERE = "this controller boots no machines (provisioning.networks in its configuration file)"
