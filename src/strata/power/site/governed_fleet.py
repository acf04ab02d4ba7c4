"""The running fleet as a governor sees it: caps through the nodes' BMCs, switching through desires.

Facts and columns are read from memory; hardware is asked only what a cap is, of nodes of which nobody else knows it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.distinct import united, without
from strata.core.intset import Runs
from strata.fleet.columns import Indices, Mask
from strata.fleet.fleet import Fleet
from strata.power.capping.sender import CapSender, Sent
from strata.power.capping.terms import GRACE, SETTLE, Column, Commands, Ratings, Rows, Use
from strata.power.policies.policy import Policy
from strata.power.policies.view import Jobs, Waiting
from strata.power.queue.records import Queue
from strata.power.queue.service import PowerQueue
from strata.power.site.inrush import Inrushes, cabinets, powered, supplies
from strata.power.site.running import RunningJobs
from strata.power.telemetry.columns import PowerColumns, Uids
from strata.store.protocol import Put

READ_AT_MOST = 2000
"""Nodes whose caps are read by asking them, in one round; of others telemetry tells."""


UNSEEN = -1
"""In ``Look.use``: nobody knows. What was known last still counts."""


class Look(NamedTuple):
    """What is seen of the machine: as in ``View``, but for what the governor knows itself."""

    use: npt.NDArray[np.int8]
    job: Rows
    idle_since: Column
    cabinet: Rows
    pdu: Rows
    jobs: Jobs
    """Their caps, and when these were changed, are the governor's to know."""
    waiting: Waiting
    ratings: Ratings | None = None
    """Where more has become known of them."""
    caps: Column | None = None
    """Caps as somebody saw them lately, whoever set them; NaN: nobody did. ``caps_at`` says when."""
    caps_at: Column | None = None
    apart: Mask | None = None
    """Nodes that are neither started nor stopped: a person has taken them out, or wants them as they are."""
    starting: Mask | None = None
    """Nodes that are starting, as far as their supply feels it. None: all that count as such."""


class PoweredDown:
    """The nodes that a policy has stopped: it may start those again, and no others. One set of uids in the store
    (``power/parked``), level with it after ``load``."""

    KEY = "power/parked"

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.uids: Uids = np.empty(0, np.int64)
        """Ascending."""

    async def load(self) -> None:
        """Read it: another controller may have been the last to write it."""
        entry = await self._fleet.store.get(self.KEY)
        self.uids = intset.unpack(msgspec.msgpack.decode(entry.value, type=Runs) if entry else ())

    async def keep(self, author: str, action: str, uids: Uids) -> None:
        """These are all of them now."""
        self.uids = uids
        op = Put(self.KEY, msgspec.msgpack.encode(intset.pack(uids)))
        await self._fleet.ledger.commit(author, f"powered-down.{action}", "nodes", [op], None, {"nodes": len(uids)})


class GovernedFleet:
    """The nodes ``uids`` (ascending). Rows are places among them."""

    def __init__(
        self,
        fleet: Fleet,
        uids: Uids,
        policy: Policy,
        columns: PowerColumns,
        sender: CapSender,
        running: RunningJobs,
        queue: PowerQueue,
        inrushes: Inrushes,
        powered_down: PoweredDown,
        *,
        author: str,
    ) -> None:
        """``policy`` has the watts of a node that says nothing of itself, and the names of queues."""
        self._fleet = fleet
        self._uids = uids
        self._nodes = policy.nodes
        self._inrush = policy.inrush
        self._queues = {name: number for number, name in enumerate(policy.queues)}
        self._columns = columns
        self._sender = sender
        self._running = running
        self._queue = queue
        self._inrushes = inrushes
        self._author = author
        self._powered_down = powered_down
        self._idle_since = np.full(len(uids), np.inf)

    def ratings(self) -> Ratings:
        """The watts of each node: as its BMC says, else as the policy does."""
        rows, said = self._columns.rows(self._uids), self._nodes
        most = np.where(np.isfinite(rows.supply), np.fmin(rows.most, rows.supply), rows.most)
        high = np.where(np.isfinite(most) & (most > 0), most, float(said.high))
        low = np.where(np.isfinite(rows.least) & (rows.least > 0), rows.least, float(said.low))
        low = np.minimum(low, high)
        return Ratings(
            idle=np.minimum(float(said.idle), low), boot=np.minimum(float(said.boot), high), low=low, high=high
        )

    async def look(self) -> Look:
        now = time.time()
        queue = await self._queue.fresh(now)
        job, jobs = await self._running.look(self._uids, now, queue.running if queue else ())
        nodes = self._fleet.registry.indices_of(self._uids)
        use = self._use(nodes, job >= 0)
        self._idle_since = np.where(use == Use.IDLE, np.fmin(self._idle_since, now), np.inf)
        rows = self._columns.rows(self._uids)
        ratings = self.ratings()
        return Look(
            use=use,
            job=job,
            idle_since=self._idle_since,
            cabinet=self._codes(nodes, cabinets(self._fleet)),
            pdu=self._codes(nodes, supplies(self._fleet)),
            jobs=jobs,
            waiting=self._waiting(queue),
            ratings=ratings,
            caps=np.where(rows.cap == 0, ratings.high, rows.cap),
            caps_at=rows.cap_time,
            apart=self._apart(nodes),
            starting=None if self._inrush is None else self._inrushes.starting(self._inrush, self._uids),
        )

    async def read_caps(self, rows: Rows) -> Column:
        """As they say themselves. Of very many, those first of which telemetry knows the least."""
        found: Column = np.full(len(rows), np.nan)
        seen = self._columns.column("cap_time", self._uids[rows])
        ask = np.argsort(np.nan_to_num(seen, nan=-np.inf), kind="stable")[:READ_AT_MOST]
        told = await self._sender.read(self._uids[rows[ask]])
        found[ask] = np.where(told == 0, self.ratings().high[rows[ask]], told)
        return found

    async def set_caps(self, commands: Commands) -> Sent:
        """Through the nodes' BMCs. What has not answered in time is not known; it takes no effect after ``SETTLE``."""
        rows, watts = commands
        high = self.ratings().high[rows]
        return await self._sender.send(
            self._uids[rows], np.where(watts >= high, 0.0, watts), "node", within=SETTLE - 2 * GRACE
        )

    async def switch(self, rows: Rows, on: bool) -> None:
        """A desire, which the engine fulfils with all its guards and budgets."""
        uids = self._uids[rows]
        if not on:
            await self._powered_down.keep(self._author, "add", united(self._powered_down.uids, uids))
        nodes = self._fleet.registry.indices_of(uids)
        nodes = nodes[nodes >= 0]
        done = await self._fleet.edits.set_desires(nodes, {"power": "on" if on else "off"}, (), self._author)
        await self._fleet.settled(done.revision)
        if on:
            await self._powered_down.keep(self._author, "remove", without(self._powered_down.uids, uids))

    def _waiting(self, queue: Queue | None) -> Waiting:
        """The jobs that wait, as far as somebody told of them; -1: in a queue that the policy does not name."""
        told = queue.waiting if queue else ()
        return Waiting(
            np.array([one.nodes for one in told], dtype=np.int64),
            np.array([self._queues.get(one.queue, -1) for one in told], dtype=np.int64),
        )

    def _use(self, nodes: Indices, busy: Mask) -> npt.NDArray[np.int8]:
        """What nodes are used for, from the facts that the engine has."""
        on, off, up = powered(self._fleet, nodes)
        found = np.full(len(nodes), UNSEEN, np.int8)
        found[off] = Use.OFF
        found[on & ~up] = Use.BOOTING
        found[up] = Use.IDLE
        found[on & self._fleet.registry.wanted("power", "off")[nodes]] = Use.STOPPING
        found[up & busy] = Use.BUSY
        return found

    def _apart(self, nodes: Indices) -> Mask:
        """Held, frozen, or switched off by somebody else: a machine does not undo that."""
        registry = self._fleet.registry
        ours = np.isin(self._uids, self._powered_down.uids)
        kept_off = registry.wanted("power", "off")[nodes] & ~ours
        return (nodes < 0) | registry.brakes.held[nodes] | registry.brakes.frozen[nodes] | kept_off

    @staticmethod
    def _codes(nodes: Indices, codes: npt.NDArray[np.int32]) -> Rows:
        return np.where(nodes < 0, 0, codes[nodes]).astype(np.int64)
