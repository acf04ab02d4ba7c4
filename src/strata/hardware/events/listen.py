"""How each BMC is made to tell: it pushes where it can, else it is listened to, else it is polled.

A subscription of ours is known by its context. A BMC forgets its subscriptions when it restarts, so each is
looked at now and then and made again where it is gone; others' are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Literal

from strata.core.errors import BadRequest, NotOffered, OutcomeUnknown, StrataError
from strata.core.fault_isolation import contained
from strata.fleet.tasks import all_cancelled
from strata.hardware.bmc.redfish.events import CONTEXT, REPORTS, RedfishSubscriptions
from strata.hardware.events.inbox import Inbox
from strata.hardware.events.site import Site

log = logging.getLogger(__name__)

DESTINATION = "/v1/hardware/events/in/"
"""Where BMCs push to, on our public address; the token follows."""

Way = Literal["push", "sse", "poll"]


class Listener:
    """Arranges it for each BMC. ``public_url``: where BMCs reach us; empty: they cannot."""

    def __init__(
        self, subscriptions: RedfishSubscriptions, inbox: Inbox, *, public_url: str = "", streams: int = 500
    ) -> None:
        self._subscriptions = subscriptions
        self._inbox = inbox
        self._public_url = public_url.rstrip("/")
        self._streams = streams
        """Most BMCs that are listened to at a time; the rest are polled."""
        self._lacks: dict[str, set[Way]] = {}
        self._pushing: set[str] = set()
        self._reportless: set[str] = set()
        """BMCs that push no metric reports."""
        self._reading: dict[str, asyncio.Task[None]] = {}

    def way(self, root: str) -> Way:
        """How the BMC's events come now."""
        return "push" if root in self._pushing else "sse" if root in self._reading else "poll"

    async def arrange(self, site: Site) -> Way:
        """See to it that the BMC tells us, in the best way that it offers. Raises a ``StrataError``
        when it cannot be asked at all."""
        if not site.root.startswith(("http://", "https://")):
            return "poll"
        lacks = self._lacks.setdefault(site.root, set())
        if self._public_url and "push" not in lacks:
            self._pushing.discard(site.root)
            try:
                await self._subscribed(site)
                self._pushing.add(site.root)
                return "push"
            except NotOffered:
                lacks.add("push")
            except OutcomeUnknown:
                return "poll"  # the next look finds out whether it is there
        if "sse" not in lacks and site.root not in self._reading and len(self._reading) < self._streams:
            task = asyncio.create_task(self._read(site, lacks), name=f"events of {site.root}")
            self._reading[site.root] = task
        return self.way(site.root)

    async def leave(self, site: Site) -> None:
        """Have the BMC tell us nothing more, as far as it can be asked."""
        task = self._reading.get(site.root)
        if task is not None:
            task.cancel()
        if site.root not in self._pushing:
            return
        self._pushing.discard(site.root)
        with suppress(StrataError), contained(site.root):
            for path, _, context in await self._subscriptions.listening(site.address):
                if context in (CONTEXT, REPORTS):
                    await self._subscriptions.unsubscribe(site.address, path)

    async def stop(self) -> None:
        """Stop listening. Subscriptions stay: we will be back, or another of us is."""
        await all_cancelled(self._reading.values())

    async def _subscribed(self, site: Site) -> None:
        """One subscription of each kind to our destination is there, and none to an older one."""
        destination = f"{self._public_url}{DESTINATION}{self._inbox.token(site.root)}"
        there: set[str] = set()
        for path, target, context in await self._subscriptions.listening(site.address):
            if context not in (CONTEXT, REPORTS):
                continue
            if target == destination and context not in there:
                there.add(context)
            else:
                await self._subscriptions.unsubscribe(site.address, path)
        if CONTEXT not in there:
            await self._subscriptions.subscribe(site.address, destination, CONTEXT)
        if REPORTS not in there and site.root not in self._reportless:
            try:
                await self._subscriptions.subscribe(site.address, destination, REPORTS)
            except NotOffered:
                self._reportless.add(site.root)
            except StrataError as error:
                # Events come all the same; what nodes draw is asked for where nobody tells.
                log.debug("no metric reports", extra={"bmc": site.root, "reason": str(error)})

    async def _read(self, site: Site, lacks: set[Way]) -> None:
        """Listen until it breaks off; the next look begins again."""
        try:
            stream = self._subscriptions.stream(site.address)
            async with aclosing(stream):  # type: ignore[type-var]
                with contained(site.root):
                    async for payload in stream:
                        with suppress(BadRequest):  # nonsense among the rest
                            self._inbox.deliver(payload, site, "sse")
        except NotOffered:
            lacks.add("sse")
        except StrataError as error:
            log.debug("events broke off", extra={"bmc": site.root, "reason": str(error)})
        finally:
            self._reading.pop(site.root, None)
