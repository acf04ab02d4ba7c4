"""The running fleet as a governor sees it: caps through the nodes' controllers, switching through desires.

Facts and columns are read from memory; hardware is asked only what a cap is, of nodes of which nobody else knows it.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from strata.control.cap_sender import CapSender
from strata.control.columns import Indices, Mask
from strata.control.power_facts import cabinets, powered, supplies
from strata.control.power_inrush import Inrushes
from strata.control.power_parked import Parked
from strata.control.power_queue import QueueBook, QueueRecord
from strata.control.power_running import RunningJobs
from strata.control.service import Service
from strata.power.capping.terms import SETTLE, Column, Commands, Ratings, Rows, Use
from strata.power.columns import PowerColumns, Uids
from strata.power.governor import GRACE
from strata.power.plant import UNSEEN, Answers, Look
from strata.power.policy import Policy
from strata.power.policy_view import Waiting

READ_AT_MOST = 2000
"""Nodes whose caps are read by asking them, in one round; of others telemetry tells."""


class FleetPlant:
    """Implements ``strata.power.plant.Plant`` for the nodes ``uids`` (ascending)."""

    def __init__(
        self,
        fleet: Service,
        uids: Uids,
        policy: Policy,
        columns: PowerColumns,
        sender: CapSender,
        running: RunningJobs,
        queue: QueueBook,
        inrushes: Inrushes,
        parked: Parked,
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
        self._parked = parked
        self._idle_since = np.full(len(uids), np.inf)

    def ratings(self) -> Ratings:
        """The watts of each node: as its controller says, else as the policy does."""
        rows, said = self._columns.rows(self._uids), self._nodes
        most = np.where(np.isfinite(rows.supply), np.fmin(rows.most, rows.supply), rows.most)
        high = np.where(np.isfinite(most) & (most > 0), most, float(said.high))
        low = np.where(np.isfinite(rows.least) & (rows.least > 0), rows.least, float(said.low))
        low = np.minimum(low, high)
        return Ratings(
            idle=np.minimum(float(said.idle), low), boot=np.minimum(float(said.boot), high), low=low, high=high
        )

    async def look(self) -> Look:
        """What is known now."""
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

    async def set_caps(self, commands: Commands) -> Answers:
        """Through the nodes' controllers; what has not answered in time is not known."""
        rows, watts = commands
        high = self.ratings().high[rows]
        sent = await self._sender.send(
            self._uids[rows], np.where(watts >= high, 0.0, watts), "node", within=SETTLE - 2 * GRACE
        )
        return Answers(sent.done, sent.refused)

    async def switch(self, rows: Rows, on: bool) -> None:
        """A desire, which the engine fulfils with all its guards and budgets."""
        uids = self._uids[rows]
        if not on:
            await self._parked.add(uids)
        nodes = self._fleet.registry.indices_of(uids)
        nodes = nodes[nodes >= 0]
        done = await self._fleet.edits.set_desires(nodes, {"power": "on" if on else "off"}, (), self._author)
        await self._fleet.settled(done.revision)
        if on:
            await self._parked.remove(uids)

    def _waiting(self, queue: QueueRecord | None) -> Waiting:
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
        ours = np.isin(self._uids, self._parked.uids)
        kept_off = registry.wanted("power", "off")[nodes] & ~ours
        return (nodes < 0) | registry.brakes.held[nodes] | registry.brakes.frozen[nodes] | kept_off

    @staticmethod
    def _codes(nodes: Indices, codes: npt.NDArray[np.int32]) -> Rows:
        return np.where(nodes < 0, 0, codes[nodes]).astype(np.int64)
