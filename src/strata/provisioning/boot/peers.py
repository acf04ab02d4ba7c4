"""Nodes boot through any controller; whether one of them runs is known to the controller that leads it.

A node's boot data are not given out while its agent is attached, to whichever controller, or while it is known to be
switched off. And who leads a node must know that it is booting, lest it starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from strata.core.errors import StrataError
from strata.fleet.controller.known_power import PATIENCE, KnownPower
from strata.fleet.peers.door import Handler, each
from strata.fleet.peers.leaders import LeaderClient
from strata.fleet.peers.peers import Peer
from strata.fleet.tasks import all_cancelled, beside
from strata.provisioning.agents.hub import Hub
from strata.provisioning.boot.service import Asked

log = logging.getLogger(__name__)

ATTACHED, OFF, NEWS = "boot/attached", "boot/off", "boot/news"
SETTLING = 45.0
"""Seconds for which a new leader does not know which nodes run: their agents come to it meanwhile."""
_LOOKS = 10  # times that another controller is asked what a look has shown
WARN_EVERY = 60.0
"""Seconds between two warnings for the same reason."""


class BootNews(msgspec.Struct, frozen=True, kw_only=True):
    """What its leader should know of a node: that it asked for something to boot, that what ran there is over, or that
    it asks though its agent is attached."""

    node: str
    what: Literal["script", "fragment", "begun", "doubt"]


class BootElsewhere:
    """What boot services of several controllers tell each other. ``close`` ends what is under way."""

    def __init__(
        self,
        hub: Hub,
        elsewhere: LeaderClient,
        power: KnownPower,
        *,
        led_for: Callable[[str], float],
        arrived: Callable[[str], bool],
    ) -> None:
        """``led_for``: seconds for which this controller has led a node. ``arrived``: whether a node's last boot got to
        its end."""
        self._hub = hub
        self._elsewhere = elsewhere
        self._power = power
        self._led_for = led_for
        self._arrived = arrived
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[str, Asked] = {}
        self._warned: dict[str, float] = {}

    async def close(self) -> None:
        """Tell nobody any more."""
        await all_cancelled(self._tasks)

    # what the boot service asks and tells

    def attached(self, name: str) -> bool | Awaitable[bool | None]:
        """Whether the node's agent speaks to some controller; None: that is not known now."""
        try:
            peer = self._elsewhere.leader(name)
        except StrataError as error:
            self._warn("not known whether a node runs: it waits", name, error)
            return _unknown()
        if peer is not None:
            return self._attached_there(peer, name)
        if (known := self._attached_here(name)) is not None:
            return known
        return _unknown()

    async def speaks(self, name: str) -> bool | None:
        """The same of a node that boots though its agent is attached: one that is attached here is asked. Another
        controller asks its own meanwhile, and knows when it is asked next."""
        if self._tell(name, "doubt"):
            return True
        await self._hub.doubt(name)
        return self._attached_here(name)

    async def off(self, name: str) -> bool | None:
        """Whether the node is known to be switched off, to whoever leads it. None: that is not known in time."""
        try:
            peer = self._elsewhere.leader(name)
            if peer is None:
                return await self._power.looked(name)
            known: bool | None = None
            for _ in range(_LOOKS):
                # Not waited for there: others are asked about in the same request.
                known = await self._elsewhere.ask(peer, OFF, name, bool | None)
                if known is not None:
                    break
                await asyncio.sleep(PATIENCE / _LOOKS)
            return known
        except StrataError as error:
            # Nobody knows anything about its power, and that keeps no node from booting.
            self._warn("not known whether a node has power", name, error)
            return False

    def asked(self, name: str, what: Literal["script", "fragment"]) -> None:
        """The node asked for something to boot here."""
        if not self._tell(name, what):
            self._power.off(name)  # it seems to run: if it is believed to be off, it is looked at

    def begun(self, name: str) -> None:
        """What ran on the node is over, or does not speak for it any more."""
        if not self._tell(name, "begun"):
            self._hub.begins_anew(name)

    # what its leader knows by that

    def told(self, name: str) -> Asked:
        """When the node last asked another controller for its script, and was given its boot data by one."""
        return self._told.get(name, _NEVER)

    def routes(self) -> Mapping[str, Handler]:
        """What other controllers are answered."""

        async def attached(name: str) -> bool | None:
            return self._attached_here(name)

        async def off(name: str) -> bool | None:
            return self._power.off(name)

        async def news(told: BootNews) -> None:
            if told.what == "begun":
                self._hub.begins_anew(told.node)
            elif told.what == "doubt":
                self._hub.doubt(told.node)
            else:
                self._power.off(told.node)
                self._told[told.node] = msgspec.structs.replace(self.told(told.node), **{told.what: time.time()})

        return {ATTACHED: each(str, attached), OFF: each(str, off), NEWS: each(BootNews, news)}

    def _attached_here(self, name: str) -> bool | None:
        if self._hub.attached(name):
            return True
        return None if self._arrived(name) and self._led_for(name) < SETTLING else False

    async def _attached_there(self, peer: Peer, name: str) -> bool | None:
        try:
            known: bool | None = await self._elsewhere.ask(peer, ATTACHED, name, bool | None)
            return known
        except StrataError as error:
            self._warn("not known whether a node runs: it waits", name, error)
            return None

    def _tell(self, name: str, what: Literal["script", "fragment", "begun", "doubt"]) -> bool:
        """Tell the node's leader, if that is another controller."""
        try:
            peer = self._elsewhere.leader(name)
        except StrataError:
            return False  # who leads it next looks for itself
        if peer is None:
            return False
        beside(self._tasks, self._told_to(peer, BootNews(node=name, what=what)))
        return True

    async def _told_to(self, peer: Peer, what: BootNews) -> None:
        try:
            await self._elsewhere.ask(peer, NEWS, what, None)
        except StrataError as error:
            self._warn("a controller was not told of a boot", what.node, error)

    def _warn(self, what: str, node: str, error: StrataError) -> None:
        """Once a while for each reason: a controller that is away concerns all nodes that boot meanwhile."""
        now = time.time()
        if now - self._warned.get(error.detail, -WARN_EVERY) >= WARN_EVERY:
            self._warned = {why: at for why, at in self._warned.items() if now - at < WARN_EVERY} | {error.detail: now}
            log.warning(what, extra={"node": node, "reason": error.detail})


_NEVER = Asked()


async def _unknown() -> None:
    """Nobody knows."""
