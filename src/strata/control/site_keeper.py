"""Sees to it that the governor of the site's power runs where shard 0 is led, for the nodes and the policy of now.

It keeps its ledger in the store before anything is sent; when this controller dies, the next one to lead goes on from
it.
"""

from __future__ import annotations

import logging

import numpy as np

from strata.control.cap_sender import CapSender
from strata.control.led_nodes import led_nodes
from strata.control.power_inrush import Inrushes
from strata.control.power_parked import Parked
from strata.control.power_plant import FleetPlant
from strata.control.power_policies import PolicyBook, PolicyRecord
from strata.control.power_queue import QueueBook
from strata.control.power_ratings import SharedRatings
from strata.control.power_running import RunningJobs
from strata.control.power_shelf import LedgerShelf, forget
from strata.control.service import Service
from strata.control.site_limits import SiteLimits
from strata.control.site_nodes import SiteNodes
from strata.power.columns import PowerColumns, Uids
from strata.power.governor import Governor
from strata.power.policy import Policy

log = logging.getLogger(__name__)

FIRST_LOOK = 45.0
"""Seconds after the start for which is waited until all nodes have told what they draw at most. Those that tell nothing
count with what the policy says."""
SHARD = 0
"""Who leads it keeps the machine's power."""


class SiteKeeper:
    """One for a process. Level with who leads and with what is enabled after each ``look``."""

    def __init__(
        self,
        fleet: Service,
        columns: PowerColumns,
        sender: CapSender,
        running: RunningJobs,
        queue: QueueBook,
        policies: PolicyBook,
        nodes: SiteNodes,
        limits: SiteLimits,
        inrushes: Inrushes,
    ) -> None:
        self.governor: Governor | None = None
        """The one that runs here; None: the machine's power is not kept here, or not yet."""
        self.uids: Uids = np.empty(0, np.int64)
        """The nodes that it caps, ascending: each is a row of its ledger."""
        self._fleet = fleet
        self._columns = columns
        self._sender = sender
        self._running = running
        self._queue = queue
        self._policies = policies
        self._nodes = nodes
        self._limits = limits
        self._inrushes = inrushes
        self._parked = Parked(fleet.controller.store)
        self._ratings = SharedRatings(fleet.controller.store, fleet.controller.name, columns)
        self._measured_here = led_nodes(fleet.controller)
        self._shelf: LedgerShelf | None = None
        self._made_of: tuple[str, str] | None = None
        self._waits_since: float | None = None

    @property
    def leads(self) -> bool:
        """Whether the machine's power is to be kept here."""
        leadership = self._fleet.controller.leadership
        return SHARD in leadership.epochs and self._fleet.controller.clock.now() < leadership.valid_until

    @property
    def holder(self) -> str:
        """The controller where it is; empty: nobody knows."""
        return self._fleet.controller.leadership.holders.get(SHARD, ("", 0))[0]

    async def look(self) -> None:
        """See to it that the right governor runs here, or none."""
        leads = self.leads
        if not leads:
            self._waits_since = None
            await self.let_go()
        await self._ratings.exchange(self._measured_here().uids)
        if not leads:
            return
        if not self._limits.there:
            if self.governor is not None or self._made_of is None:
                # What was kept would be wrong when it is next asked for: caps are set without it now.
                await self.let_go()
                await forget(self._fleet.controller.store)
                self._made_of = ("", "")
            return
        record, policy = self._policies.enabled, self._limits.policy
        self._nodes.look(policy.nodes)
        uids = self._nodes.capped
        if self.governor is None and not self._measured():
            return
        made_of = (record.digest, record.name) if record else ("", "")
        lost = self._shelf is not None and self._shelf.lost
        if self.governor is None or lost or made_of != self._made_of or not np.array_equal(uids, self.uids):
            await self.let_go()
            self.uids = uids
            self.governor = await self._take_over(record, policy)
            self._made_of = made_of
        self.governor.limits = self._limits.shared()

    async def let_go(self) -> None:
        """Stop what runs here. Caps stay as they are."""
        governor, self.governor = self.governor, None
        if governor is not None:
            self._made_of = None
            await governor.stop()

    async def _take_over(self, record: PolicyRecord | None, policy: Policy) -> Governor:
        await self._parked.load()
        plant = FleetPlant(
            self._fleet,
            self.uids,
            policy,
            self._columns,
            self._sender,
            self._running,
            self._queue,
            self._inrushes,
            self._parked,
            author=f"policy:{policy.name or (record.name if record else '')}",
        )
        self._shelf = LedgerShelf(self._fleet.controller.store, self.uids, lambda: self.leads)
        governor = Governor(policy, plant.ratings(), plant, self._shelf)
        governor.limits = self._limits.shared()
        await governor.start()
        log.info("keeping the site's power", extra={"policy": policy.name, "nodes": len(self.uids)})
        return governor

    def _measured(self) -> bool:
        """Whether it is known what nodes draw at most, or was waited for long enough. Before that, nothing is lowered
        for no reason and nothing raised by mistake."""
        now = self._fleet.controller.clock.now()
        self._waits_since = now if self._waits_since is None else self._waits_since
        return self._nodes.measured or now >= self._waits_since + FIRST_LOOK
