"""The site's power limit and the policy that is enabled, kept by one controller of all that have the power layer.

Where there is a limit or a policy, every cap and every start of a node goes through one ledger (``capping.ledger``).
The controller that leads runs a ``Governor`` for the nodes and the policy of now; it keeps the ledger in the store
before anything is sent, and when it dies, the next one to lead goes on from there. Others ask it (``requests``).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Sequence

import numpy as np

from strata.core.driver import Batch
from strata.core.units import show_watts
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.power.capping.ledger_store import LedgerStore, forget
from strata.power.capping.sender import CapSender, Sent, Watts
from strata.power.capping.shared_ratings import SharedRatings
from strata.power.capping.terms import Rows
from strata.power.policies.records import PolicyRecords, SitePowerView
from strata.power.queue.service import PowerQueue
from strata.power.settings import PowerSettings
from strata.power.site.governed_fleet import GovernedFleet, PoweredDown
from strata.power.site.governor import Governor
from strata.power.site.inrush import Inrushes
from strata.power.site.limits import Parameters, SiteLimits, SiteNodes
from strata.power.site.requests import PowerRequests, Verdict, Verdicts
from strata.power.site.running import RunningJobs
from strata.power.telemetry.collector import led_nodes
from strata.power.telemetry.columns import PowerColumns, Uids, placed

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at who leads, and at what is enabled."""
FIRST_LOOK = 45.0
"""Seconds after the start for which is waited until all nodes have told what they draw at most. Those that tell nothing
count with what the policy says."""
DUTY = "power"
"""Who does it keeps the machine's power."""
NOT_YET = "it is not known yet what the machine may draw: ask again soon"


class SitePower:
    """One for a process; acts only while it leads."""

    def __init__(
        self,
        fleet: Fleet,
        columns: PowerColumns,
        sender: CapSender,
        running: RunningJobs,
        queue: PowerQueue,
        policies: PolicyRecords,
        settings: PowerSettings,
    ) -> None:
        store, me = fleet.controller.store, fleet.controller.name
        self._fleet, self._columns, self._sender = fleet, columns, sender
        self._duty = fleet.controller.leadership.duty(DUTY)
        self._running, self._queue, self._policies = running, queue, policies
        self._limits = SiteLimits(settings, policies, SiteNodes(fleet, columns))
        self._inrushes = Inrushes(fleet)
        self._requests = PowerRequests(store, me)
        self._powered_down = PoweredDown(fleet)
        self._ratings = SharedRatings(store, me, columns)
        self._measured_here = led_nodes(fleet.controller)
        self._governor: Governor | None = None
        """The one that runs here; None: the machine's power is not kept here, or not yet."""
        self._uids: Uids = np.empty(0, np.int64)
        """The nodes that it caps, ascending: each is a row of its ledger."""
        self._ledger_store: LedgerStore | None = None
        self._made_of: tuple[str, str] | None = None
        self._waits_since: float | None = None
        self._deciding = asyncio.Lock()
        self._heir: Governor | None = None
        self._looks = Recurring("site power", self._look, lambda: LOOK_EVERY, trouble="the site's power is not kept")

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        """Stop. Caps stay as they are."""
        await self._looks.stop()
        await self._let_go()

    def keep_to(self, settings: PowerSettings) -> None:
        """Keep to other limits from the next look on."""
        self._limits.settings = settings

    @property
    def governed(self) -> bool:
        """Whether there is anything to keep to."""
        return self._limits.there

    def parameters(self) -> Parameters:
        return self._limits.parameters()

    def view(self) -> SitePowerView:
        governor, record = self._governor, self._policies.enabled
        status = governor.status() if governor is not None else None
        limit, static = self._limits.site, self._limits.nodes.static
        return SitePowerView(
            limit=limit if math.isfinite(limit) else None,
            ramp=self._limits.settings.ramp or None,
            band=self._limits.settings.band or None,
            policy=record.name if record else "",
            controller=self._duty.by,
            static=static if status else None,
            allowed=status.allowed_w + static if status else None,
            over=status.over_w if status else None,
            in_flight=status.in_flight if status else None,
            error=self._looks.error or (status.error if status else ""),
        )

    # -- who keeps it

    @property
    def leads(self) -> bool:
        """Whether this controller is the one that keeps the machine's power, where there is anything to keep to."""
        return self._duty.here

    @property
    def _other(self) -> str:
        holder = self._duty.by
        return f", {holder}" if holder and holder != self._fleet.controller.name else ""

    async def _look(self) -> None:
        """See to it that the right governor runs here, or none; and answer other controllers."""
        leads = self.leads
        if not leads:
            self._waits_since = None
            await self._let_go()
        await self._ratings.exchange(self._measured_here().uids)
        if leads and not self._limits.there:
            if self._governor is not None or self._made_of is None:
                # What was kept would be wrong when it is next asked for: caps are set without it now.
                await self._let_go()
                await forget(self._fleet.controller.store)
                self._made_of = ("", "")
        elif leads:
            await self._govern()
        if self._governor is not None:
            await self._requests.answer(self._decide)

    async def _govern(self) -> None:
        record, policy = self._policies.enabled, self._limits.policy
        self._limits.nodes.look(policy.nodes)
        uids = self._limits.nodes.capped
        if self._governor is None and not self._measured():
            return
        made_of = (record.digest, record.name) if record else ("", "")
        lost = self._ledger_store is not None and self._ledger_store.lost
        if self._governor is None or lost or made_of != self._made_of or not np.array_equal(uids, self._uids):
            await self._let_go()
            self._uids = uids
            self._governor = await self._take_over(record.name if record else "")
            self._made_of = made_of
        self._governor.limits = self._limits.shared()

    async def _let_go(self) -> None:
        """Stop what runs here. Caps stay as they are."""
        governor, self._governor = self._governor, None
        if governor is not None:
            self._made_of = None
            await governor.stop()

    async def _take_over(self, name: str) -> Governor:
        await self._powered_down.load()
        policy = self._limits.policy
        machine = GovernedFleet(
            self._fleet,
            self._uids,
            policy,
            self._columns,
            self._sender,
            self._running,
            self._queue,
            self._inrushes,
            self._powered_down,
            author=f"policy:{policy.name or name}",
        )
        self._ledger_store = LedgerStore(self._fleet.controller.store, self._uids, lambda: self.leads)
        governor = Governor(policy, machine.ratings(), machine, self._ledger_store)
        governor.limits = self._limits.shared()
        await governor.start()
        log.info("keeping the site's power", extra={"policy": policy.name, "nodes": len(self._uids)})
        return governor

    def _measured(self) -> bool:
        """Whether it is known what nodes draw at most, or was waited for long enough. Before that, nothing is lowered
        for no reason and nothing raised by mistake."""
        now = self._fleet.controller.clock.now()
        self._waits_since = now if self._waits_since is None else self._waits_since
        return self._limits.nodes.measured or now >= self._waits_since + FIRST_LOOK

    # -- caps that schedulers set. Only those of whole nodes are booked: those of accelerators are part of them

    def kept_by(self) -> str:
        """Why nobody sets caps past the ledger; empty: they may."""
        if not self.governed:
            return ""
        record = self._policies.enabled
        what = f"the power policy {record.name}" if record else "the site's power limit"
        return f"{what} keeps the caps of nodes: set them with capmc set_power_cap, or in a policy"

    def set_by(self) -> str:
        """Why caps are nobody's to ask for; empty: they may be asked for."""
        record = self._policies.enabled
        if record is not None and record.policy().sets_caps:
            return f"caps are set by the power policy {record.name}"
        return ""

    def no_room(self, uids: Uids, watts: Watts) -> str:
        """Why these caps (0: none) cannot be, all together; empty: they can, or there is nothing to keep to."""
        governor = self._governor
        if not self.governed:
            return ""
        if why := self.set_by():
            return why
        if governor is None:
            return NOT_YET if self.leads else f"the site's power is kept by another controller{self._other}"
        rows, in_force, _ = self._booked(governor, uids, watts)
        short = governor.short(rows, in_force)
        if short > 0:
            limit = show_watts(self._limits.site)
            more = "" if math.isinf(short) else f"; {show_watts(short)} too much"
            return f"the caps would add up to more than the site's limit of {limit} leaves{more}"
        return ""

    async def book(self, uids: Uids, watts: Watts) -> Watts:
        """The caps that may be set now on the way to these (NaN: none yet); they are booked then. One that differs from
        what was asked for is a step: ask again once it is settled."""
        granted, governor = watts.copy(), self._governor
        if not self.governed:
            return granted
        if governor is None:
            return np.full(len(uids), np.nan)
        rows, in_force, there = self._booked(governor, uids, watts)
        booked = await governor.book(rows, in_force)
        granted[there] = np.where(booked == in_force, watts[there], booked)
        return granted

    def settle(self, uids: Uids, watts: Watts, sent: Sent) -> None:
        """What became of caps that were booked."""
        governor = self._governor
        if governor is not None:
            rows, in_force, there = self._booked(governor, uids, watts)
            governor.settle(rows, in_force, sent.done[there], sent.refused[there])

    def _booked(self, governor: Governor, uids: Uids, watts: Watts) -> tuple[Rows, Watts, Mask]:
        """Caps as the ledger has them, and of which of ``uids`` it has any. Without a cap a node draws the most that it
        can."""
        places, there = placed(self._uids, uids)
        rows, asked = places[there], watts[there]
        return rows, np.where(asked == 0, governor.highest(rows), asked), there

    # -- switching on: as far as the limit leaves power, and as fast as the policy says

    async def permits(self, batch: Batch) -> Sequence[str]:
        """Whether nodes may be switched on: for each empty, or why not."""
        if not self.governed:
            return [""] * len(batch)
        verdicts = await (self._decide(batch.uids) if self.leads else self._requests.ask(batch.uids))
        record = self._policies.enabled
        words = {
            Verdict.GRANTED: "",
            Verdict.NO_POWER: f"the site's limit of {show_watts(self._limits.site)} leaves no power for it now",
            Verdict.PACED: f"the power policy {record.name if record else ''} lets no more nodes start at once behind "
            "its cabinet or PDU",
            Verdict.NO_ANSWER: f"the controller that keeps the machine's power{self._other} did not answer",
            Verdict.NOT_YET: NOT_YET,
        }
        told = [words[Verdict(one)] for one in verdicts.tolist()]
        short = np.flatnonzero(verdicts == Verdict.NO_POWER)
        for place, why in zip(short.tolist(), self._why_not(batch.uids[short]), strict=False):
            told[place] = why
        return told

    def _why_not(self, uids: Uids) -> Iterator[str]:
        """With figures, where they are known: here, if the machine's power is kept here."""
        governor = self._governor
        rows, there = placed(self._uids, uids)
        needs = governor.needs(rows) if governor is not None and there.all() else None
        if needs is None:
            return
        limit, ramp = f"limit of {show_watts(self._limits.site)}", f"ramp of {show_watts(needs.ramp)} a minute"
        free = f", and {show_watts(max(0.0, needs.free))} is free"
        for as_is, least in zip(needs.as_is.tolist(), needs.least.tolist(), strict=True):
            hopeless = least > min(needs.free, needs.ramp)
            needed = least if hopeless else as_is
            by_limit = needed > needs.free or math.isinf(needs.ramp)
            yield (
                f"the site's {limit if by_limit else ramp} leaves no power for it now: "
                f"{'with its lowest cap ' if hopeless else ''}it needs {show_watts(needed)} to start"
                f"{free if by_limit else ''}"
                f"{'; it is capped lower first' if not hopeless and as_is > min(needs.free, needs.ramp) else ''}"
            )

    async def _decide(self, uids: Uids) -> Verdicts:
        """Which may be switched on. Those that are not capped have their power: they count as if they always were."""
        async with self._deciding:
            governor, found = self._governor, np.full(len(uids), Verdict.NOT_YET, np.int8)
            if governor is None or not governor.knows:
                return found
            if self._heir is not governor:
                # What a predecessor let start may not be seen yet.
                self._inrushes.begin(self._uids[governor.booting()])
                self._heir = governor
            part = governor.policy.inrush
            allowed = np.flatnonzero(np.ones(len(uids)) if part is None else self._inrushes.allowed(part, uids))
            rows, there = placed(self._uids, uids[allowed])
            power = np.ones(len(allowed), np.bool_)
            power[there] = await governor.power_on(rows[there])
            found[:] = Verdict.PACED
            found[allowed] = np.where(power, Verdict.GRANTED, Verdict.NO_POWER)
            self._inrushes.begin(uids[allowed[power]])
            return found
