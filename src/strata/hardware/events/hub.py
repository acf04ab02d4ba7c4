"""Everything about events in one place: where they come from, the log of them, the alerts, who is told.

pushes ─► inbox ─┐
streams ─► inbox ┤             ┌─► log (numbered, followed)
polls ───────────┼─► hub.take ─┼─► alerts ─► webhooks
consoles, … ─────┘             └─► power as a fact, or a look at the nodes whose state changed
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from strata.core.errors import Conflict, Corrupt, Unavailable
from strata.fleet.access.sealing import Seal
from strata.fleet.recurring import Recurring
from strata.hardware.alerts.alerts import Alerts, AlertSettings
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.events.inbox import Inbox, InboxSettings
from strata.hardware.events.listen import Listener
from strata.hardware.events.log import EventLog, LogSettings
from strata.hardware.events.payload import fit
from strata.hardware.events.poller import Looker, Poller, PollSettings
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.site import Site, root_of, sites_of
from strata.hardware.events.words import tells_of_state
from strata.hardware.webhooks.webhooks import PostSettings, Webhooks
from strata.store.audit import Ledger
from strata.store.protocol import Put, Store

log = logging.getLogger(__name__)

_KEY = "event-key/push"
_PUT_OFF = "upkeep put off"

FRESH = 10.0
"""Seconds after which what a BMC told of power is old, by its own clock: it may have been sent again and again, or its
clock is wrong. Then the node is looked at."""


class PowerTold(NamedTuple):
    """What a BMC's event says of a node's power."""

    node: str
    power: str
    """``on`` or ``off``."""
    time: float
    """When it was so, as the BMC says."""


class EventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Times in seconds."""

    public_url: str = ""
    """Where BMCs reach us (``https://strata.example:8443``). Empty: they cannot, and nothing is subscribed."""
    streams: int = 500
    """BMCs that are listened to (server-sent events) where they cannot push: each holds a connection."""
    refresh_every: float = 30.0
    """How soon a new node's BMC is known."""
    upkeep_every: float = 3600.0
    log: LogSettings = LogSettings()
    alerts: AlertSettings = AlertSettings()
    inbox: InboxSettings = InboxSettings()
    post: PostSettings = PostSettings()
    poll: PollSettings = PollSettings()


class EventHub:
    """Made by the composition root. ``take`` is an ``EventSink`` and may be used before ``start``."""

    def __init__(
        self,
        path: Path,
        store: Store,
        ledger: Ledger,
        seal: Seal,
        bmcs: Bmcs,
        subscriptions: RedfishSubscriptions,
        *,
        owner: str,
        addresses: Callable[[], Mapping[str, str]],
        mine: Callable[[str], bool] = lambda _: True,
        looked: Callable[[Sequence[str]], None] = lambda _: None,
        turn: Callable[[float], Awaitable[None]] | None = None,
        told: Callable[[Sequence[PowerTold]], None] | None = None,
        settings: EventSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``addresses``: BMCs as nodes have them → names of the nodes; the same object while nothing changed.
        ``mine``: whether this process looks after a node. ``looked``: have these nodes looked at, now. ``turn``: waited
        for before a BMC is polled, with what that costs (``Background.turn``).
        ``told``: takes what BMCs say of power; None: nobody believes them, and the nodes are looked at."""
        self.settings = settings or EventSettings()
        self.log = EventLog(path, settings=self.settings.log, clock=clock)
        self.webhooks = Webhooks(store, ledger, seal, self.log, owner=owner, settings=self.settings.post, clock=clock)
        self.alerts = Alerts(
            store, ledger, owner=owner, tell=self.webhooks.tell, settings=self.settings.alerts, clock=clock
        )
        self._store = store
        self._seal = seal
        self._bmcs = bmcs
        self._subscriptions = subscriptions
        self._addresses = addresses
        self._known: Mapping[str, str] | None = None
        self._sites: Mapping[str, Site] = {}
        self._mine = mine
        self._looked = looked
        self._turn = turn
        self._told = told
        self._clock = clock
        self._inbox: Inbox | None = None
        self.reported: Callable[[Site, Mapping[str, object]], None] = lambda site, report: None
        """Who takes the metric reports that BMCs push."""
        self.poller: Poller | None = None
        """Since ``start``."""
        self._upkeep = (
            Recurring("BMCs known", self.refresh, lambda: self.settings.refresh_every, trouble=_PUT_OFF),
            Recurring(
                "alerts looked through", self.alerts.upkeep, lambda: self.settings.upkeep_every, trouble=_PUT_OFF
            ),
        )

    async def start(self) -> None:
        """Load what is stored, then listen, poll and deliver."""
        await self.log.start()
        await self.alerts.start()
        await self.webhooks.start(self.alerts.alerts.values())
        self._inbox = Inbox(
            await self._key(),
            self.take,
            settings=self.settings.inbox,
            reports=lambda site, report: self.reported(site, report),
            clock=self._clock,
        )
        listener = Listener(
            self._subscriptions, self._inbox, public_url=self.settings.public_url, streams=self.settings.streams
        )
        looker = Looker(self._bmcs, listener, self._inbox, self.log, troubles=self.alerts.troubles, clock=self._clock)
        self.poller = Poller(looker, self.take, mine=self._mine, turn=self._turn, settings=self.settings.poll)
        await self.refresh()
        self.poller.start()
        for upkeep in self._upkeep:
            await upkeep.start()

    async def stop(self) -> None:
        """In reverse: what was noticed is still written."""
        for upkeep in self._upkeep:
            await upkeep.stop()
        if self.poller is not None:
            await self.poller.stop()
        await self.alerts.stop()
        await self.webhooks.stop()
        await self.log.stop()

    def take(self, events: Sequence[HardwareEvent]) -> None:
        """Something happened."""
        events = list(map(fit, events))
        self.log.take(events)
        self.alerts.take(events)
        changed, told = set[str](), dict[str, PowerTold]()
        for event in events:
            if not event.node or not tells_of_state(event.message_id):
                continue
            fact = self._fact(event)
            if fact is None:
                changed.add(event.node)
            elif event.node not in told or fact.time >= told[event.node].time:
                told[event.node] = fact
        if told and self._told is not None:
            self._told(list(told.values()))
        if changed:
            self._looked(sorted(changed))

    def _fact(self, event: HardwareEvent) -> PowerTold | None:
        """What the event says of power, if that is clear and new."""
        power = event.fields.get("power", "")
        if self._told is None or not power or event.source not in ("push", "sse"):
            return None  # an entry of a log was written before it was read
        # Most BMCs tell whole seconds: it was so at the latest when that second was over.
        now, latest = self._clock(), event.time + (1.0 if event.time.is_integer() else 0.0)
        return PowerTold(event.node, power, min(latest, now)) if now - latest <= FRESH else None

    @property
    def inbox(self) -> Inbox:
        """Where BMCs push to, since ``start``."""
        if self._inbox is None:
            raise Unavailable("the service does not take events yet", hint="try later")
        return self._inbox

    async def refresh(self) -> None:
        """Take note of BMCs that came and went."""
        addresses = self._addresses()
        if addresses is self._known or self._inbox is None or self.poller is None:
            return
        sites = await asyncio.to_thread(sites_of, addresses)
        await self._inbox.know(sites)
        await self.poller.know(sites)
        self._known, self._sites = addresses, sites

    def site_of(self, address: str) -> Site | None:
        """The BMC that is meant by an address that a node has; None where it is not known yet."""
        return self._sites.get(root_of(address))

    async def _key(self) -> bytes:
        """What destinations are made with: one for all controllers of a store, sealed like any secret in it.

        One that cannot be opened (a store was restored without its key file) is replaced: it is nobody's password,
        and subscriptions that were made with it are made again.
        """
        found = await self._store.get(_KEY)
        if found is not None:
            try:
                return self._seal.open(found.value, _KEY)
            except Corrupt as error:
                log.error("the key of pushed events is made anew", extra={"error": str(error)})
        sealed = self._seal.seal(secrets.token_bytes(32), _KEY)
        with suppress(Conflict):  # another was as fast
            await self._store.txn([Put(_KEY, sealed)], expect={_KEY: found.modified if found else 0})
        found = await self._store.get(_KEY)
        assert found is not None
        return self._seal.open(found.value, _KEY)
