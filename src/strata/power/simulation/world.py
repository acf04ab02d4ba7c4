"""A machine that is not there: what its nodes draw, and how fast its jobs go, under whatever caps are in force.

A busy node draws what its job makes it draw, or its cap if that is less: ``draw = min(cap, natural)``. Where the cap
takes something away, ``speed = ((cap - idle) / (natural - idle)) ** sensitivity``. A job is as fast as its slowest
node, and nodes differ a little. Between events nothing changes, so that sums over time and peaks are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from strata.power.capping.terms import Column, Ratings, Rows, Use
from strata.power.policies.view import Jobs
from strata.power.simulation.trace import LEVELS, Trace

PHASE = 600.0
"""Seconds after which a job's draw changes."""
MARKS = 61
"""Minutes of job energy that are remembered."""
_NEVER = np.inf


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes, all alike but for ``spread``."""

    ratings: Ratings
    per_cabinet: int = 192
    per_pdu: int = 48
    boot_seconds: float = 300.0
    stop_seconds: float = 60.0
    spread: float = 0.01
    """How far nodes differ in what the same work makes them draw: normal, this part of it."""

    @property
    def count(self) -> int:
        return len(self.ratings.high)


class Ended(NamedTuple):
    """A job that is over."""

    job: int
    rows: Rows
    whole: bool
    """It came to its end, and not only to its time limit."""
    ran: float
    """Seconds."""


class World:
    """The truth. Nobody reads it but through meters, looks at caps, and jobs that end."""

    def __init__(self, machine: Machine, trace: Trace, limit: float, seed: int, caps: Column) -> None:
        count = machine.count
        self.machine = machine
        self.trace = trace
        self.limit = limit
        self.now = 0.0
        self.cap = caps.copy()
        self.use = np.full(count, Use.IDLE, np.int8)
        self.slot = np.full(count, -1, np.int64)
        self.idle_since = np.zeros(count)
        self._factor = np.random.default_rng(seed).normal(1.0, machine.spread, count)
        self._draw = machine.ratings.idle.copy()
        self._speed = np.ones(count)
        self._stale = False
        self.total = float(self._draw.sum())
        self.energy = 0.0
        self._most = self._draw.copy()
        self.possible = self.total
        self.peak = self.peak_possible = self.total
        self.over_seconds = 0.0
        self.busy_seconds = 0.0
        self._busy = 0
        self.slots = _Slots(64)
        self._marked = 0.0

    def start(self, job: int, rows: Rows, cap: float) -> None:
        """A job begins on idle nodes."""
        slot = self.slots.take()
        table, trace = self.slots, self.trace
        table.job[slot], table.nodes[slot] = job, len(rows)
        table.started[slot], table.ends[slot] = self.now, self.now + trace.limit[job]
        table.left[slot], table.sensitivity[slot] = trace.seconds[job], trace.sensitivity[job]
        table.levels[slot] = trace.levels(job, float(self.machine.ratings.high[0]))
        table.level[slot] = table.levels[slot, 0]
        table.cap[slot], table.changed[slot], table.upcap[slot] = cap, self.now, trace.upcap[job]
        table.joules[slot] = 0.0
        table.marks[:, slot] = 0.0
        table.rows[slot] = rows
        self._busy += len(rows)
        self.use[rows], self.slot[rows] = Use.BUSY, slot
        self.refresh(rows)

    def ended(self) -> list[Ended]:
        """Jobs that are over now."""
        self._settle()
        table, found = self.slots, []
        for slot in np.flatnonzero((table.job >= 0) & ((table.left <= 1e-6) | (table.ends <= self.now))):
            rows = table.rows[slot]
            self._busy -= len(rows)
            self.use[rows], self.slot[rows], self.idle_since[rows] = Use.IDLE, -1, self.now
            whole = bool(table.left[slot] <= 1e-6)
            found.append(Ended(int(table.job[slot]), rows, whole, self.now - float(table.started[slot])))
            table.give(int(slot))
            self.refresh(rows)
        return found

    def set_use(self, rows: Rows, use: Use) -> None:
        """Nodes begin to start or to stop, or have."""
        self.use[rows] = use
        self.idle_since[rows] = self.now
        self.refresh(rows)

    def set_caps(self, rows: Rows, watts: Column) -> None:
        """Caps take effect: the rising ones first, as the worst case has it."""
        rising = watts > self.cap[rows]
        for part in (rising, ~rising):
            if part.any():
                self.cap[rows[part]] = watts[part]
                self.refresh(rows[part])
                self._note_peaks()

    def turn_phases(self) -> None:
        """Jobs go on to what their next phase draws."""
        table = self.slots
        phase = ((self.now - table.started) // PHASE).astype(np.int64) % LEVELS
        level = np.where(table.job >= 0, table.levels[np.arange(len(phase)), phase], 0.0)
        changed = level != table.level
        table.level = level
        rows = np.flatnonzero((self.slot >= 0) & changed[self.slot])
        if len(rows):
            self.refresh(rows)

    def mark(self) -> None:
        """A minute is over: note what jobs have used so far."""
        table = self.slots
        table.marks = np.roll(table.marks, 1, axis=0)
        table.marks[0] = table.joules
        self._marked = self.now

    def jobs(self) -> Jobs:
        """What is known of the jobs, by slot."""
        table = self.slots
        ran = np.maximum(self._marked - table.started, 1e-9) * np.maximum(table.nodes, 1)

        def average(minutes: int) -> Column:
            used = table.marks[0] - table.marks[minutes]
            found: Column = used / np.minimum(ran, minutes * 60.0 * np.maximum(table.nodes, 1))
            return found

        averages = (table.marks[0] / ran, average(60), average(30), average(15), average(1))
        return Jobs(table.started, table.ends, table.cap, table.changed, table.upcap, *averages)

    def next_end(self) -> float:
        """When the next job is over, if nothing changes until then."""
        self._settle()
        table = self.slots
        left = np.minimum(table.left / table.speed, table.ends - self.now)
        return self.now + max(float(left.min(initial=_NEVER)), 0.0)

    def advance(self, to: float) -> None:
        self._settle()
        self._note_peaks()
        passed = to - self.now
        if passed > 0:
            table = self.slots
            table.left -= table.speed * passed
            table.joules += table.watts * passed
            self.energy += self.total * passed
            self.busy_seconds += self._busy * passed
            # What adding up rounds off is not an excess.
            if self.total > self.limit + 1e-3:
                self.over_seconds += passed
            self.now = to

    def refresh(self, rows: Rows) -> None:
        """What ``rows`` draw, now that something about them has changed."""
        ratings, slot = self.machine.ratings, self.slot[rows]
        idle = ratings.idle[rows]
        natural = np.clip(idle + (self.slots.level[slot] - idle) * self._factor[rows], idle, ratings.high[rows])
        busy = self.use[rows] == Use.BUSY
        most = np.where(busy, self.cap[rows], idle)
        most[self.use[rows] == Use.OFF] = 0.0
        booting = self.use[rows] == Use.BOOTING
        most[booting] = ratings.boot[rows[booting]]
        draw = np.where(busy, np.minimum(natural, most), most)
        part = np.where(busy, (draw - idle) / np.maximum(natural - idle, 1e-9), 1.0)
        speed = np.where(part < 1.0, np.maximum(part, 1e-3) ** self.slots.sensitivity[slot], 1.0)
        self.total += float((draw - self._draw[rows]).sum())
        self.possible += float((most - self._most[rows]).sum())
        self._draw[rows], self._most[rows], self._speed[rows] = draw, most, speed
        self._stale = True

    def _settle(self) -> None:
        """How fast each job goes and what it draws, after all that happened at this moment."""
        if self._stale:
            rows = np.flatnonzero(self.slot >= 0)
            slot, count = self.slot[rows], len(self.slots.job)
            self.slots.speed = np.ones(count)
            np.minimum.at(self.slots.speed, slot, self._speed[rows])
            self.slots.watts = np.bincount(slot, self._draw[rows], minlength=count).astype(np.float64)
            self.total, self.possible = float(self._draw.sum()), float(self._most.sum())
            self._stale = False

    def _note_peaks(self) -> None:
        self.peak = max(self.peak, self.total)
        self.peak_possible = max(self.peak_possible, self.possible)


class _Slots:
    """The jobs that run: a row each, used again when it is free."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self.rows: list[Rows] = [np.empty(0, np.int64)] * count
        self.job = np.full(count, -1, np.int64)
        self.nodes = np.zeros(count, np.int64)
        self.started = np.zeros(count)
        self.ends = np.full(count, _NEVER)
        self.left = np.full(count, _NEVER)
        self.speed = np.ones(count)
        self.sensitivity = np.ones(count)
        self.level = np.zeros(count)
        self.levels = np.zeros((count, LEVELS))
        self.cap = np.zeros(count)
        self.changed = np.zeros(count)
        self.upcap = np.full(count, _NEVER)
        self.watts = np.zeros(count)
        self.joules = np.zeros(count)
        self.marks = np.zeros((MARKS, count))

    def take(self) -> int:
        if not self._free:
            self._grow()
        return self._free.pop()

    def give(self, slot: int) -> None:
        self.job[slot] = -1
        self.left[slot] = self.ends[slot] = _NEVER
        self._free.append(slot)

    def _grow(self) -> None:
        old = len(self.job)
        more = _Slots(old)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(self, name, np.concatenate([column, getattr(more, name)], axis=1 if name == "marks" else 0))
        self.rows += more.rows
        self._free += range(2 * old - 1, old - 1, -1)
