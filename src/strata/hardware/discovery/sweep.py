"""Looks at many BMCs at a time. Whoever is slow or silent holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from strata.core.errors import DeviceError, StrataError
from strata.core.fault_isolation import contained
from strata.hardware.bmc.pace import Pace, Place
from strata.hardware.discovery.crawl import NOBODY
from strata.hardware.discovery.crawl_values import serial, text, uuid
from strata.hardware.discovery.sources_scan import ScanSettings, settle
from strata.hardware.inventory.records import Found

Crawler = Callable[[str], Awaitable[Found]]
"""Reads everything that the BMC at an address tells. Raises a ``StrataError`` where it tells nothing."""


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many at a time. Times in seconds."""

    at_once: int = 48
    """BMCs that are read at a time, as long as they answer promptly."""
    patience: float = 1.0
    """One that takes longer gives its place up (and goes on)."""
    at_most: int = 1024
    """BMCs that are read at a time, the slow ones included."""
    longest: float = 120.0
    """For one BMC, all in all."""
    scan: ScanSettings = ScanSettings()


class Look(NamedTuple):
    """What came of looking at one address."""

    address: str
    """As it was given."""
    found: Found | None
    why: str = ""
    """Why nothing was found."""
    silent: bool = False
    """Nobody answered there."""


class Discovery:
    """Reads BMCs, each with the crawler of its scheme (``https``, ``ipmi``)."""

    def __init__(self, crawlers: Mapping[str, Crawler], *, settings: DiscoverySettings | None = None) -> None:
        self.settings = settings or DiscoverySettings()
        self._crawlers = crawlers

    async def look(self, addresses: Sequence[str]) -> AsyncGenerator[Look, None]:
        """Look at every address; what came of each, in the order in which they finish. One that does not answer is
        tried once more, with all the time that it may need, while the others go on."""
        done: asyncio.Queue[Look] = asyncio.Queue()
        feeding = asyncio.create_task(self._feed(addresses, done))
        try:
            for _ in addresses:
                yield await done.get()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _feed(self, addresses: Sequence[str], done: asyncio.Queue[Look]) -> None:
        settings = self.settings

        async def one(address: str, place: Place) -> None:
            seen = await self._try(address)
            if seen.silent:
                place.yields()
                seen = await self._try(address)
            done.put_nowait(seen)

        def lost(address: str, error: StrataError) -> None:
            done.put_nowait(Look(address, None, str(error)))

        pace = Pace(at_once=settings.at_once, patience=settings.patience, at_most=settings.at_most)
        await pace.each(addresses, one, lost)

    async def _try(self, address: str) -> Look:
        try:
            async with asyncio.timeout(self.settings.longest):
                with contained(address):
                    return Look(address, await self._crawl(address))
        except TimeoutError:
            return Look(address, None, f"not read in {self.settings.longest:.0f} s")
        except StrataError as wrong:
            silent = isinstance(wrong, DeviceError) and wrong.detail.startswith(_NO_ANSWER)
            return Look(address, None, wrong.detail if silent else str(wrong), silent)

    async def _crawl(self, address: str) -> Found:
        url = address
        if "://" not in url:
            url = await settle(url, settings=self.settings.scan)
            if not url:
                raise DeviceError(NOBODY, node=address)
        scheme = url.partition("://")[0]
        crawler = self._crawlers.get(scheme)
        if crawler is None:
            known = ", ".join(sorted(self._crawlers))
            raise DeviceError(f"{scheme} is not supported", node=address[:80], hint=f"known are {known}")
        return tidied(await crawler(url))


def tidied(found: Found) -> Found:
    """``found`` with texts cut and cleaned, and without the serials that makers left in by mistake. (What was read by
    Redfish is so already.)"""
    if found.identity.protocol == "redfish":
        return found
    replace = msgspec.structs.replace
    who = found.identity
    return replace(
        found,
        identity=replace(
            who,
            vendor=text(who.vendor),
            model=text(who.model),
            serial=serial(who.serial),
            uuid=uuid(who.uuid),
            firmware=text(who.firmware),
        ),
        machines=tuple(replace(one, serial=serial(one.serial), uuid=uuid(one.uuid)) for one in found.machines),
        components=tuple(
            replace(
                part,
                name=text(part.name),
                vendor=text(part.vendor),
                model=text(part.model),
                part=text(part.part),
                serial=serial(part.serial),
                firmware=text(part.firmware),
            )
            for part in found.components
        ),
        trouble=tuple(text(trouble, 300) for trouble in found.trouble),
    )


_NO_ANSWER = (NOBODY, "no answer in")
