"""The site's power limit and the policy that is enabled, kept by one controller of all: the one that leads shard 0.

Where there is a limit or a policy, every cap and every start of a node goes through one ledger (``power.capping``),
which a ``SiteKeeper`` has a governor for. This is what others ask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strata.control.cap_sender import CapSender, Sent, Watts
from strata.control.columns import Mask
from strata.control.power_inrush import Inrushes
from strata.control.power_policies import PolicyBook
from strata.control.power_queue import QueueBook
from strata.control.power_requests import PowerRequests
from strata.control.power_running import RunningJobs
from strata.control.power_views.policies import SitePowerView
from strata.control.service import Service
from strata.control.settings import PowerSettings
from strata.control.site_keeper import SiteKeeper
from strata.control.site_limits import SiteLimits
from strata.control.site_nodes import SiteNodes
from strata.control.site_starts import NOT_YET, SiteStarts
from strata.core.driver import Batch
from strata.power.capmc.machine import Parameters
from strata.power.capping.terms import Rows
from strata.power.columns import PowerColumns, Uids, placed
from strata.power.governor import Governor
from strata.power.plant import Answers
from strata.power.recurring import Recurring
from strata.power.units import show_watts

LOOK_EVERY = 0.5
"""Seconds between two looks at who leads, and at what is enabled."""


class SitePower:
    """One for a process; acts only while it leads."""

    def __init__(
        self,
        fleet: Service,
        columns: PowerColumns,
        sender: CapSender,
        running: RunningJobs,
        queue: QueueBook,
        policies: PolicyBook,
        settings: PowerSettings,
    ) -> None:
        self._fleet = fleet
        self._policies = policies
        self._nodes = SiteNodes(fleet, columns)
        self._limits = SiteLimits(settings, policies, self._nodes)
        inrushes = Inrushes(fleet)
        self._keeper = SiteKeeper(fleet, columns, sender, running, queue, policies, self._nodes, self._limits, inrushes)
        requests = PowerRequests(fleet.controller.store, fleet.controller.name)
        self._starts = SiteStarts(self._keeper, self._limits, policies, inrushes, requests)
        self._looks = Recurring("site power", self._look, lambda: LOOK_EVERY, trouble="the site's power is not kept")

    async def start(self) -> None:
        """Begin."""
        await self._looks.start()

    async def stop(self) -> None:
        """Stop. Caps stay as they are."""
        await self._looks.stop()
        await self._keeper.let_go()

    async def _look(self) -> None:
        await self._keeper.look()
        if self._keeper.governor is not None:
            await self._starts.answer()

    @property
    def governed(self) -> bool:
        """Whether there is anything to keep to."""
        return self._limits.there

    def view(self) -> SitePowerView:
        """How things stand."""
        governor, record = self._keeper.governor, self._policies.enabled
        status = governor.status() if governor is not None else None
        limit = self._limits.site
        return SitePowerView(
            limit=limit if math.isfinite(limit) else None,
            ramp=self._limits.ramp,
            band=self._limits.band,
            policy=record.name if record else "",
            controller=self._keeper.holder,
            static=self._nodes.static if status else None,
            allowed=status.allowed_w + self._nodes.static if status else None,
            over=status.over_w if status else None,
            in_flight=status.in_flight if status else None,
            error=self._looks.error or (status.error if status else ""),
        )

    def parameters(self) -> Parameters:
        """As CAPMC tells of it."""
        return self._limits.parameters()

    def kept_by(self) -> str:
        """Why nobody sets caps past the ledger; empty: they may."""
        if not self.governed:
            return ""
        record = self._policies.enabled
        what = f"the power policy {record.name}" if record else "the site's power limit"
        return f"{what} keeps the caps of nodes: set them with capmc set_power_cap, or in a policy"

    async def permits(self, batch: Batch) -> Sequence[str]:
        """Whether nodes may be switched on: empty, or why not."""
        return await self._starts.permits(batch, self._other())

    # -- caps that schedulers set (``cap_jobs.CapBooks``)

    def no_room(self, uids: Uids, watts: Watts) -> str:
        """Why these caps cannot be, all together; empty: they can, or there is nothing to keep to."""
        record, governor = self._policies.enabled, self._keeper.governor
        if not self.governed:
            return ""
        if record is not None and record.policy().sets_caps:
            return f"caps are set by the power policy {record.name}"
        if governor is None:
            return NOT_YET if self._keeper.leads else f"the site's power is kept by another controller{self._other()}"
        rows, in_force, _ = self._booked(governor, uids, watts)
        short = governor.short(rows, in_force)
        if short > 0:
            limit = show_watts(self._limits.site)
            more = "" if math.isinf(short) else f"; {show_watts(short)} too much"
            return f"the caps would add up to more than the site's limit of {limit} leaves{more}"
        return ""

    async def book(self, uids: Uids, watts: Watts) -> Watts:
        """The caps that may be set now on the way to these (NaN: none yet); they are booked then."""
        granted, governor = watts.copy(), self._keeper.governor
        if not self.governed:
            return granted
        if governor is None:
            return np.full(len(uids), np.nan)
        rows, in_force, there = self._booked(governor, uids, watts)
        booked = await governor.book(rows, in_force)
        granted[there] = np.where(booked == in_force, watts[there], booked)
        return granted

    def settle(self, uids: Uids, watts: Watts, sent: Sent) -> None:
        """What became of them."""
        governor = self._keeper.governor
        if governor is not None:
            rows, in_force, there = self._booked(governor, uids, watts)
            governor.settle(rows, in_force, Answers(sent.done[there], sent.refused[there]))

    def _booked(self, governor: Governor, uids: Uids, watts: Watts) -> tuple[Rows, Watts, Mask]:
        """Caps as the ledger has them, and of which of ``uids`` it has any. Without a cap a node draws the most that it
        can."""
        places, there = placed(self._keeper.uids, uids)
        rows, asked = places[there], watts[there]
        return rows, np.where(asked == 0, governor.highest(rows), asked), there

    def _other(self) -> str:
        holder = self._keeper.holder
        return f", {holder}" if holder and holder != self._fleet.controller.name else ""
