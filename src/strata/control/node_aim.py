"""Controllers told from where their nodes shall boot, before the power goes on: told afterwards, it is too late."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from strata.core.driver import Batch
from strata.core.errors import NotOffered, StrataError
from strata.hardware.bmc import Boot, Controller
from strata.hardware.pace import Pace, Place

log = logging.getLogger(__name__)

AT_MOST = 20.0
"""Seconds for which nodes wait for their power until their controllers were told; who was not is told by the boot."""


class Aim:
    """Remembers which nodes' controllers took what they were told for the boot that is under way."""

    def __init__(
        self,
        open_controller: Callable[[str], Controller],
        ahead: Callable[[str], Boot | None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ahead``: what is to be told before a node gets its power; None: nothing."""
        self._open = open_controller
        self._ahead = ahead
        self._monotonic = monotonic
        self._taken: set[str] = set()
        self._pace = Pace(at_once=64, patience=0.1, at_most=1024)

    def taken(self, name: str) -> bool:
        """Whether the node's controller took it, so that its next start is the boot that is wanted."""
        return name in self._taken

    def forget(self, name: str) -> None:
        """What was told is over."""
        self._taken.discard(name)

    async def before_power(self, batch: Batch) -> None:
        """These are about to be switched on: tell their controllers. Nobody is kept from the power by this."""
        self._taken.difference_update(batch.names)

        async def one(place: int, _: Place) -> None:
            name, address = batch.names[place], batch.bmcs[place]
            boot = self._ahead(name)
            if boot is not None and self._monotonic() <= batch.valid_until:
                await self.point(name, self._open(address), boot)

        def lost(place: int, error: StrataError) -> None:
            log.info("not told what to boot before its power", extra={"node": batch.names[place], "error": str(error)})

        try:
            async with asyncio.timeout(AT_MOST):
                await self._pace.each([place for place, address in enumerate(batch.bmcs) if address], one, lost)
        except TimeoutError:
            log.warning("controllers are slow to take what nodes shall boot", extra={"nodes": len(batch)})

    async def point(self, name: str, controller: Controller, boot: Boot) -> None:
        """Have the node's next start be this boot."""
        try:
            await controller.set_boot(boot)
        except NotOffered:
            if not boot.uri:
                raise
            # It takes no address: its DHCP will tell it.
            await controller.set_boot(msgspec.structs.replace(boot, uri=""))
        self._taken.add(name)
