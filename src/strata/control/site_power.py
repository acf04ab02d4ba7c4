"""The site's power limit and the policy that is enabled, kept by one controller of all: the one that leads shard 0.

Where there is a limit or a policy, every cap and every start of a node goes through one ledger (``power.capping``). It
is kept in the store before anything is sent; when the controller dies, the next one to lead goes on from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from strata.control.cap_sender import CapSender, Sent, Watts
from strata.control.columns import Mask
from strata.control.power_inrush import Inrushes
from strata.control.power_plant import FleetPlant
from strata.control.power_policies import PolicyBook, PolicyRecord
from strata.control.power_queue import QueueBook
from strata.control.power_ratings import SharedRatings
from strata.control.power_requests import PowerRequests, Verdict, Verdicts
from strata.control.power_running import RunningJobs
from strata.control.power_shelf import LedgerShelf, forget
from strata.control.power_views import SitePowerView
from strata.control.service import Service
from strata.control.service_power import led_nodes
from strata.control.settings import PowerSettings
from strata.control.site_limits import SiteLimits
from strata.control.site_nodes import SiteNodes
from strata.core import intset
from strata.core.driver import Batch
from strata.core.errors import BadRequest, StrataError
from strata.core.intset import Runs
from strata.power.capmc.machine import Parameters
from strata.power.capping import Rows
from strata.power.columns import PowerColumns, Uids
from strata.power.governor import Governor
from strata.power.plant import Answers
from strata.power.policy import Policy
from strata.power.units import show_watts
from strata.store.protocol import Put

log = logging.getLogger(__name__)

PARKED = "power/parked"
LOOK_EVERY = 0.5
"""Seconds between two looks at who leads, and at what is enabled."""
FIRST_LOOK = 45.0
"""Seconds after the start for which is waited until all nodes have told what they draw at most. Those that tell nothing
count with what the policy says."""
SHARD = 0
"""Who leads it keeps the machine's power."""


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
        self._columns = columns
        self._sender = sender
        self._running = running
        self._queue = queue
        self._policies = policies
        self._requests = PowerRequests(fleet.controller.store, fleet.controller.name)
        self._ratings = SharedRatings(fleet.controller.store, fleet.controller.name, columns)
        self._measured_here = led_nodes(fleet.controller)
        self._task: asyncio.Task[None] | None = None
        self._governor: Governor | None = None
        self._heir: Governor | None = None
        self._shelf: LedgerShelf | None = None
        self._made_of: tuple[str, str] | None = None
        self._nodes = SiteNodes(fleet, columns)
        self._limits = SiteLimits(settings, policies, self._nodes)
        self._inrushes = Inrushes(fleet)
        self._starting = asyncio.Lock()
        self._waits_since: float | None = None
        self._uids: Uids = np.empty(0, np.int64)
        self._parked: set[int] = set()
        self._error = ""

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="site power")

    async def stop(self) -> None:
        """Stop. Caps stay as they are."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._let_go()

    # -- what others ask

    @property
    def governed(self) -> bool:
        """Whether there is anything to keep to."""
        return self._limits.there

    def view(self) -> SitePowerView:
        """How things stand."""
        governor, record = self._governor, self._policies.enabled
        status = governor.status() if governor is not None else None
        holder, _ = self._fleet.controller.leadership.holders.get(SHARD, ("", 0))
        limit = self._limits.site
        return SitePowerView(
            limit=limit if math.isfinite(limit) else None,
            ramp=self._limits.ramp,
            band=self._limits.band,
            policy=record.name if record else "",
            controller=holder,
            static=self._nodes.static if status else None,
            allowed=status.allowed_w + self._nodes.static if status else None,
            over=status.over_w if status else None,
            in_flight=status.in_flight if status else None,
            error=self._error or (status.error if status else ""),
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
        if not self.governed:
            return [""] * len(batch)
        verdicts = await (self._start_nodes(batch.uids) if self._leads() else self._requests.ask(batch.uids))
        record = self._policies.enabled
        words = {
            Verdict.GRANTED: "",
            Verdict.NO_POWER: f"the site's limit of {show_watts(self._limits.site)} leaves no power for it now",
            Verdict.PACED: f"the power policy {record.name if record else ''} lets no more nodes start at once behind "
            "its cabinet or power strip",
            Verdict.NO_ANSWER: f"the controller that keeps the machine's power{self._other()} did not answer",
            Verdict.NOT_YET: _NOT_YET,
        }
        return [words[Verdict(one)] for one in verdicts.tolist()]

    # -- caps that schedulers set (``cap_jobs.CapBooks``)

    def no_room(self, uids: Uids, watts: Watts) -> str:
        """Why these caps cannot be, all together; empty: they can, or there is nothing to keep to."""
        record = self._policies.enabled
        if not self.governed:
            return ""
        if record is not None and _sets_caps(record.policy()):
            return f"caps are set by the power policy {record.name}"
        if self._governor is None:
            return _NOT_YET if self._leads() else f"the site's power is kept by another controller{self._other()}"
        rows, there = self._rows(uids)
        short = self._governor.short(rows, self._in_force(rows, watts[there]))
        if short > 0:
            limit = show_watts(self._limits.site)
            more = "" if math.isinf(short) else f"; {show_watts(short)} too much"
            return f"the caps would add up to more than the site's limit of {limit} leaves{more}"
        return ""

    async def book(self, uids: Uids, watts: Watts) -> Mask:
        """Which of these caps may be set now; they are booked then."""
        granted = np.ones(len(uids), np.bool_)
        if not self.governed:
            return granted
        if self._governor is None:
            return ~granted
        rows, there = self._rows(uids)
        granted[there] = await self._governor.book(rows, self._in_force(rows, watts[there]))
        return granted

    def settle(self, uids: Uids, watts: Watts, sent: Sent) -> None:
        """What became of them."""
        if self._governor is not None:
            rows, there = self._rows(uids)
            self._governor.settle(
                rows, self._in_force(rows, watts[there]), Answers(sent.done[there], sent.refused[there])
            )

    # -- running

    async def _run(self) -> None:
        while True:
            try:
                await self._tick()
                self._error = ""
            except StrataError as error:
                if str(error) != self._error:
                    log.warning("the site's power is not kept", extra={"reason": str(error)})
                self._error = str(error)
            except Exception:
                log.exception("keeping the site's power failed")
                self._error = "an internal error; the log has it"
            await asyncio.sleep(LOOK_EVERY)

    async def _tick(self) -> None:
        """See to it that the right governor runs here, or none."""
        leads = self._leads()
        if not leads:
            self._waits_since = None
            await self._let_go()
        await self._ratings.exchange(self._measured_here().uids)
        if not leads:
            return
        if not self.governed:
            if self._governor is not None or self._made_of is None:
                # What was kept would be wrong when it is next asked for: caps are set without it now.
                await self._let_go()
                await forget(self._fleet.controller.store)
                self._made_of = ("", "")
            return
        record = self._policies.enabled
        policy = self._limits.policy
        self._nodes.look(policy.nodes)
        uids = self._nodes.capped
        if self._governor is None and not self._measured():
            return
        made_of = (record.digest, record.name) if record else ("", "")
        lost = self._shelf is not None and self._shelf.lost
        if self._governor is None or lost or made_of != self._made_of or not np.array_equal(uids, self._uids):
            await self._let_go()
            self._uids = uids
            await self._take_over(record, policy)
            self._made_of = made_of
        assert self._governor is not None
        self._governor.limits = self._limits.shared()
        await self._requests.answer(self._start_nodes)

    async def _take_over(self, record: PolicyRecord | None, policy: Policy) -> None:
        controller = self._fleet.controller
        entry = await controller.store.get(PARKED)
        self._parked = set(intset.unpack(msgspec.msgpack.decode(entry.value, type=Runs)).tolist()) if entry else set()
        plant = FleetPlant(
            self._fleet,
            self._uids,
            policy,
            self._columns,
            self._sender,
            self._running,
            self._queue,
            self._inrushes,
            author=f"policy:{policy.name or (record.name if record else '')}",
            park=self._park,
            parked=self._parked,
        )
        self._shelf = LedgerShelf(controller.store, self._uids, self._leads)
        self._governor = Governor(policy, plant.ratings(), plant, self._shelf)
        self._governor.limits = self._limits.shared()
        await self._governor.start()
        log.info("keeping the site's power", extra={"policy": policy.name, "nodes": len(self._uids)})

    async def _let_go(self) -> None:
        governor, self._governor = self._governor, None
        if governor is not None:
            self._made_of = None
            await governor.stop()

    def _leads(self) -> bool:
        leadership = self._fleet.controller.leadership
        return SHARD in leadership.epochs and self._fleet.controller.clock.now() < leadership.valid_until

    def _measured(self) -> bool:
        """Whether it is known what nodes draw at most, or was waited for long enough. Before that, nothing is lowered
        for no reason and nothing raised by mistake."""
        now = self._fleet.controller.clock.now()
        self._waits_since = now if self._waits_since is None else self._waits_since
        return self._nodes.measured or now >= self._waits_since + FIRST_LOOK

    async def _start_nodes(self, uids: Uids) -> Verdicts:
        """Which may be switched on. Those that are not capped have their power: they count as if they always were."""
        async with self._starting:
            found = np.full(len(uids), Verdict.NOT_YET, np.int8)
            if self._governor is None or not self._governor.knows:
                return found
            if self._heir is not self._governor:
                # What a predecessor let start may not be seen yet.
                self._inrushes.begin(self._uids[self._governor.booting()])
                self._heir = self._governor
            part = self._governor.policy.inrush
            allowed = np.flatnonzero(np.ones(len(uids)) if part is None else self._inrushes.allowed(part, uids))
            rows, there = self._rows(uids[allowed])
            power = np.ones(len(allowed), np.bool_)
            power[there] = await self._governor.power_on(rows)
            found[:] = Verdict.PACED
            found[allowed] = np.where(power, Verdict.GRANTED, Verdict.NO_POWER)
            self._inrushes.begin(uids[allowed[power]])
            return found

    async def _park(self, uids: Uids, off: bool) -> None:
        """Remember whom a policy stops, before it does."""
        if off:
            self._parked.update(uids.tolist())
        else:
            self._parked.difference_update(uids.tolist())
        value = msgspec.msgpack.encode(intset.pack(sorted(self._parked)))
        await self._fleet.controller.store.txn([Put(PARKED, value)])

    def _rows(self, uids: Uids) -> tuple[Rows, Mask]:
        """Where nodes are in the ledger, and which of them are."""
        at = np.searchsorted(self._uids, uids)
        there: Mask = np.append(self._uids, -1)[at] == uids
        return at[there].astype(np.int64), there

    def _in_force(self, rows: Rows, watts: Watts) -> Watts:
        """Without a cap a node draws the most that it can."""
        if self._governor is None:
            raise BadRequest("this controller does not keep the site's power")
        return np.where(watts == 0, self._governor.highest(rows), watts)

    def _other(self) -> str:
        holder, _ = self._fleet.controller.leadership.holders.get(SHARD, ("", 0))
        return f", {holder}" if holder and holder != self._fleet.controller.name else ""


_NOT_YET = "it is not known yet what the machine may draw: ask again soon"


def _sets_caps(policy: Policy) -> bool:
    return policy.cap is not None or bool(policy.queues) or policy.over_provisioned is not None
