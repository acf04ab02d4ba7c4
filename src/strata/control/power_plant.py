"""The running fleet as a governor sees it: caps through the nodes' controllers, switching through desires.

Facts and columns are read from memory; hardware is asked only what a cap is, of nodes of which nobody else knows it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import numpy as np
import numpy.typing as npt

from strata.control.cap_sender import CapSender
from strata.control.columns import Indices, Mask
from strata.control.power_running import RunningJobs
from strata.control.service import Service
from strata.hardware.feeds import FED_BY
from strata.power.capping import SETTLE, Column, Commands, Ratings, Rows, Use
from strata.power.columns import PowerColumns, Uids
from strata.power.governor import GRACE
from strata.power.plant import UNSEEN, Answers, Look
from strata.power.policy import NodePower
from strata.power.policy_view import Waiting

READ_AT_MOST = 2000
"""Nodes whose caps are read by asking them, in one round; of others telemetry tells."""


class FleetPlant:
    """Implements ``strata.power.plant.Plant`` for the nodes ``uids`` (ascending)."""

    def __init__(
        self,
        fleet: Service,
        uids: Uids,
        nodes: NodePower,
        columns: PowerColumns,
        sender: CapSender,
        running: RunningJobs,
        *,
        author: str,
        park: Callable[[Uids, bool], Awaitable[None]],
        parked: set[int],
    ) -> None:
        """``nodes``: the watts of a node that says nothing of itself. ``parked``: those that a policy has stopped, and
        may start again; ``park(uids, True)`` is awaited before it stops any."""
        self._fleet = fleet
        self._uids = uids
        self._nodes = nodes
        self._columns = columns
        self._sender = sender
        self._running = running
        self._author = author
        self._park = park
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
        job, jobs = await self._running.look(self._uids, now)
        nodes = self._fleet.registry.indices_of(self._uids)
        there = nodes >= 0
        use = np.full(len(nodes), UNSEEN, np.int8)
        use[there] = self._use(nodes[there], job[there] >= 0)
        self._idle_since = np.where(use == Use.IDLE, np.fmin(self._idle_since, now), np.inf)
        rows = self._columns.rows(self._uids)
        ratings = self.ratings()
        return Look(
            use=use,
            job=job,
            idle_since=self._idle_since,
            cabinet=self._codes(nodes, self._fleet.registry.location("cabinet").codes),
            pdu=self._codes(nodes, self._supply()),
            jobs=jobs,
            waiting=Waiting(np.empty(0, np.int64), np.empty(0, np.int64)),
            ratings=ratings,
            caps=np.where(rows.cap == 0, ratings.high, rows.cap),
            caps_at=rows.cap_time,
            apart=self._apart(nodes),
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
            await self._park(uids, True)
        nodes = self._fleet.registry.indices_of(uids)
        nodes = nodes[nodes >= 0]
        done = await self._fleet.edits.set_desires(nodes, {"power": "on" if on else "off"}, (), self._author)
        await self._fleet.settled(done.revision)
        if on:
            await self._park(uids, False)

    def _use(self, nodes: Indices, busy: Mask) -> npt.NDArray[np.int8]:
        """What nodes are used for, from the facts that the engine has."""
        power = self._facts("power", nodes)
        found = np.full(len(nodes), UNSEEN, np.int8)
        if power is None:
            return found
        on = power == "on"
        found[power == "off"] = Use.OFF
        os = self._facts("os", nodes)
        up = on if os is None else on & (os == "up")
        found[on & ~up] = Use.BOOTING
        found[up] = Use.IDLE
        found[on & self._fleet.registry.wanted("power", "off")[nodes]] = Use.STOPPING
        found[up & busy] = Use.BUSY
        return found

    def _facts(self, variable: str, nodes: Indices) -> npt.NDArray[np.str_] | None:
        column = self._fleet.controller.engine.table.columns.get(variable)
        if column is None:
            return None
        words = np.array([str(word)[:16] for word in column.words])
        return words[column.fact[nodes]]

    def _apart(self, nodes: Indices) -> Mask:
        """Held, frozen, or switched off by somebody else: a machine does not undo that."""
        registry = self._fleet.registry
        ours = np.isin(self._uids, np.fromiter(self._parked, np.int64, len(self._parked)))
        kept_off = registry.wanted("power", "off")[nodes] & ~ours
        return (nodes < 0) | registry.held[nodes] | registry.frozen[nodes] | kept_off

    def _supply(self) -> npt.NDArray[np.int32]:
        registry = self._fleet.registry
        pdu = registry.label("pdu")
        return pdu.codes if len(pdu.table) > 1 else registry.label(FED_BY).codes

    @staticmethod
    def _codes(nodes: Indices, codes: npt.NDArray[np.int32]) -> Rows:
        return np.where(nodes < 0, 0, codes[nodes]).astype(np.int64)
