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
from strata.control.power_gauges import drawing
from strata.control.power_plant import FleetPlant
from strata.control.power_policies import PolicyBook, PolicyRecord
from strata.control.power_requests import PowerRequests
from strata.control.power_running import RunningJobs
from strata.control.power_shelf import LedgerShelf, forget
from strata.control.power_views import SitePowerView
from strata.control.service import Service
from strata.control.settings import PowerSettings
from strata.core import intset
from strata.core.driver import Batch
from strata.core.errors import BadRequest, StrataError
from strata.core.intset import Runs
from strata.power.capmc.machine import Parameters
from strata.power.capping import Limits, Rows
from strata.power.columns import PowerColumns, Uids
from strata.power.governor import Governor
from strata.power.plant import Answers
from strata.power.policy import NodePower, Policy
from strata.power.units import Seconds, show_watts
from strata.store.protocol import Put

log = logging.getLogger(__name__)

PARKED = "power/parked"
LOOK_EVERY = 0.5
"""Seconds between two looks at who leads, and at what is enabled."""
FIRST_LOOK = 45.0
"""Seconds after the start for which is waited until all nodes have told what they draw at most. Those that tell nothing
count with what the policy says."""
LIMIT_ONLY = Policy(name="site limit", every=Seconds(10))
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
        policies: PolicyBook,
        settings: PowerSettings,
    ) -> None:
        self._fleet = fleet
        self._columns = columns
        self._sender = sender
        self._running = running
        self._policies = policies
        self._settings = settings
        self._requests = PowerRequests(fleet.controller.store, fleet.controller.name)
        self._task: asyncio.Task[None] | None = None
        self._governor: Governor | None = None
        self._shelf: LedgerShelf | None = None
        self._made_of: tuple[str, str] | None = None
        self._known: tuple[int, int] = (-1, -1)
        self._cappable: Uids = np.empty(0, np.int64)
        self._others: Uids = np.empty(0, np.int64)
        self._reachable: Uids = np.empty(0, np.int64)
        self._waits_since: float | None = None
        self._uids: Uids = np.empty(0, np.int64)
        self._static = 0.0
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
        return self._settings.limit > 0 or self._policies.enabled is not None

    def view(self) -> SitePowerView:
        """How things stand."""
        governor, record = self._governor, self._policies.enabled
        status = governor.status() if governor is not None else None
        holder, _ = self._fleet.controller.leadership.holders.get(SHARD, ("", 0))
        limit = self._limit(record)
        return SitePowerView(
            limit=limit if math.isfinite(limit) else None,
            ramp=self._settings.ramp or None,
            band=self._settings.band or None,
            policy=record.name if record else "",
            controller=holder,
            static=self._static if status else None,
            allowed=status.allowed_w + self._static if status else None,
            over=status.over_w if status else None,
            in_flight=status.in_flight if status else None,
            error=self._error or (status.error if status else ""),
        )

    def parameters(self) -> Parameters:
        """As CAPMC tells of it."""
        record, limit = self._policies.enabled, self._limit(self._policies.enabled)
        limits = self._limits(record.policy() if record else LIMIT_ONLY, record)
        whole = 0 if math.isinf(limit) else round(limit)
        ramp = 0 if math.isinf(limits.ramp_up) else round(limits.ramp_up)
        return Parameters(
            power_cap_target=whole,
            power_threshold=whole,
            static_power=round(self._static),
            ramp_limited=ramp > 0,
            ramp_limit=ramp,
            power_band_min=round(limits.floor),
            power_band_max=whole,
        )

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
        if self._leads():
            granted = await self._start_nodes(batch.uids)
        else:
            told = await self._requests.ask(batch.uids)
            if told is None:
                return ["the controller that keeps the machine's power did not answer"] * len(batch)
            granted = told
        no = f"the site's limit of {show_watts(self._limit(self._policies.enabled))} leaves no power for it now"
        return ["" if one else no for one in granted.tolist()]

    # -- caps that schedulers set (``cap_jobs.CapBooks``)

    def no_room(self, uids: Uids, watts: Watts) -> str:
        """Why these caps cannot be, all together; empty: they can, or there is nothing to keep to."""
        record = self._policies.enabled
        if not self.governed:
            return ""
        if record is not None and _sets_caps(record.policy()):
            return f"caps are set by the power policy {record.name}"
        if self._governor is None:
            return f"the site's power is kept by another controller{self._other()}"
        rows, there = self._rows(uids)
        short = self._governor.short(rows, self._in_force(rows, watts[there]))
        if short > 0:
            limit = show_watts(self._limit(record))
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
        if not self._leads():
            self._waits_since = None
            await self._let_go()
            return
        if not self.governed:
            if self._governor is not None or self._made_of is None:
                # What was kept would be wrong when it is next asked for: caps are set without it now.
                await self._let_go()
                await forget(self._fleet.controller.store)
                self._made_of = ("", "")
            return
        record = self._policies.enabled
        policy = record.policy() if record else LIMIT_ONLY
        uids = self._capped(policy.nodes)
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
        self._governor.limits = self._limits(policy, record)
        await self._requests.answer(self._start_nodes)

    async def _take_over(self, record: PolicyRecord | None, policy: Policy) -> None:
        controller = self._fleet.controller
        entry = await controller.store.get(PARKED)
        self._parked = set(intset.unpack(msgspec.msgpack.decode(entry.value, type=Runs)).tolist()) if entry else set()
        plant = FleetPlant(
            self._fleet,
            self._uids,
            policy.nodes,
            self._columns,
            self._sender,
            self._running,
            author=f"policy:{policy.name or (record.name if record else '')}",
            park=self._park,
            parked=self._parked,
        )
        self._shelf = LedgerShelf(controller.store, self._uids, self._leads)
        self._governor = Governor(policy, plant.ratings(), plant, self._shelf)
        self._governor.limits = self._limits(policy, record)
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

    def _capped(self, nodes: NodePower) -> Uids:
        """The nodes that can be capped. Of all others the most that they draw is taken off the limit."""
        registry = self._fleet.registry
        stamp = (int(registry.revisions.max(initial=0)), len(registry))
        if stamp != self._known:
            everybody = drawing(registry, np.flatnonzero(registry.alive))
            roster = registry.roster.nodes
            reachable = np.array([bool((node := roster[i]) and node.bmc) for i in everybody.tolist()], dtype=np.bool_)
            capped = registry.roles.where("compute")[everybody] & reachable
            self._cappable = np.sort(registry.uids[everybody[capped]])
            self._others = registry.uids[everybody[~capped]]
            self._reachable = registry.uids[everybody[reachable]]
            self._known = stamp
        most = self._columns.column("most", self._others)
        self._static = float(np.where(np.isfinite(most), most, float(nodes.high)).sum())
        return self._cappable

    def _measured(self) -> bool:
        """Whether it is known what nodes draw at most, or was waited for long enough. Before that, nothing is lowered
        for no reason and nothing raised by mistake."""
        now = self._fleet.controller.clock.now()
        self._waits_since = now if self._waits_since is None else self._waits_since
        known = bool(np.isfinite(self._columns.column("most", self._reachable)).all())
        return known or now >= self._waits_since + FIRST_LOOK

    def _limit(self, record: PolicyRecord | None) -> float:
        """Watts that the site may draw."""
        said = [self._settings.limit or math.inf]
        if record is not None and (limit := record.policy().limit) is not None:
            said.append(float(limit))
        return min(said)

    def _limits(self, policy: Policy, record: PolicyRecord | None) -> Limits:
        own, settings = policy.limits(), self._settings
        return Limits(
            site=self._limit(record) - self._static,
            floor=max(0.0, max(own.floor, settings.band) - self._static),
            ramp_up=min(own.ramp_up, settings.ramp or math.inf),
            ramp_down=own.ramp_down,
        )

    async def _start_nodes(self, uids: Uids) -> Mask:
        """Which may be switched on; those that are not capped count as if they always were."""
        granted = np.ones(len(uids), np.bool_)
        if self._governor is None:
            return ~granted
        rows, there = self._rows(uids)
        granted[there] = await self._governor.power_on(rows)
        return granted

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


def _sets_caps(policy: Policy) -> bool:
    return policy.cap is not None or bool(policy.queues) or policy.over_provisioned is not None
