"""Rehearses a policy: a day of a simulated machine with jobs, in seconds, with a wire that delays and loses.

The policy, the ledger of caps and what is kept of it are the real ones. Only the machine, its scheduler and the wire
are made up. The same trace and seed give the same day, for every policy that is compared.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import msgspec
import numpy as np

from strata.power.capping import SETTLE, Column, Commands, Ledger, Limits, Mask, Rows, Use
from strata.power.policy import Policy
from strata.power.policy_queues import first_shares
from strata.power.policy_step import step
from strata.power.policy_view import Jobs, View, Waiting
from strata.power.rehearsal_queue import DEPTH, Held, startable
from strata.power.rehearsal_world import Machine, World
from strata.power.trace import Trace

MONDAY = 1767571200.0
"""When rehearsals begin: 2026-01-05, midnight UTC, a Monday."""


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of commands."""

    slowest: int = 8
    """They take effect after 1 to this many seconds."""
    lost: float = 0.005
    """Part of them that never arrive."""
    unanswered: float = 0.005
    """Part of them that take effect, and nobody hears of it."""


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """The controller dies while it hands over commands: half of them are sent."""

    after: float
    """Seconds from the beginning."""
    away: float = 180.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsed machine did."""

    name: str
    days: float
    jobs: int
    """Finished."""
    jobs_per_day: float
    killed: int
    """Reached their time limit."""
    node_hours: float
    """Work done, as hours of one node without a cap."""
    busy: float
    """Part of all node-hours that jobs had."""
    stretch: float
    """How many times as long as without caps jobs took, over all nodes; what was killed was for nothing."""
    stretch_95: float
    """The same of the one job in twenty that was slowed the most, at least."""
    mean_wait_s: float
    energy_kwh: float
    kwh_per_node_hour: float
    mean_w: float
    peak_w: float
    peak_possible_w: float
    """The most that could have been drawn at any instant, under the caps that were in force."""
    over_limit_s: float
    """How long more was drawn than the site allows."""
    cap_commands: int
    starts: int
    stops: int


def rehearse(
    policy: Policy,
    machine: Machine,
    trace: Trace,
    *,
    limit: float,
    days: float = 1.0,
    seed: int = 1,
    wire: Wire | None = None,
    death: Death | None = None,
) -> Outcome:
    """Run ``policy`` and see. ``limit`` is the site's, whether or not the policy heeds one."""
    return _Rehearsal(policy, machine, trace, limit, seed, wire or Wire(), death).run(days * 86400.0)


class _Rehearsal:
    """One run."""

    def __init__(
        self, policy: Policy, machine: Machine, trace: Trace, limit: float, seed: int, wire: Wire, death: Death | None
    ) -> None:
        self.policy, self.machine, self.trace, self.wire, self.death = policy, machine, trace, wire, death
        self.limits: Limits = policy.limits()
        queue = first_shares(policy.queues, machine.count) if policy.queues else np.full(machine.count, -1, np.int64)
        first = np.full(machine.count, policy.launch_cap(0, np.inf))
        for at, part in enumerate(policy.queues.values()):
            first[queue == at] = policy.nodes.high if part.cap is None else part.cap
        self.world = World(machine, trace, limit, seed, first)
        self.ledger = Ledger(machine.ratings, caps=first, use=Use.IDLE)
        self.kept = self.ledger.snapshot()
        self.queue = queue
        self.luck = np.random.default_rng(seed + 1)
        self.alive = True
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        asked = zip(trace.queue.tolist(), trace.upcap.tolist(), strict=True)
        self.caps = np.array([policy.launch_cap(queue, upcap) for queue, upcap in asked])
        self.waiting: list[int] = []
        self.arrived = 0
        self.stretches: list[float] = []
        self.killed = 0
        self.waits: list[float] = []
        self.work = 0.0
        self.commands = self.starts = self.stops = 0
        numbers = np.arange(machine.count)
        self.cabinet, self.pdu = numbers // machine.per_cabinet, numbers // machine.per_pdu

    def run(self, end: float) -> Outcome:
        """From the beginning to ``end``."""
        self.at(60.0, self.minute)
        self.at(30.0, self.phases)
        self.at(self.policy.every, self.control)
        while self.world.now < end:
            arrival = self.trace.submit[self.arrived] if self.arrived < len(self.trace) else np.inf
            until = min(self.events[0][0], self.world.next_end(), float(arrival), end)
            self.world.advance(until)
            free = self.finish()
            while self.events and self.events[0][0] <= until:
                heapq.heappop(self.events)[2]()
            while self.arrived < len(self.trace) and self.trace.submit[self.arrived] <= until:
                self.waiting.append(self.arrived)
                self.arrived, free = self.arrived + 1, True
            if free:
                self.schedule()
        return self.outcome(end)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do ``what`` then."""
        heapq.heappush(self.events, (when, next(self.order), what))

    def minute(self) -> None:
        """What the meters do."""
        self.world.mark()
        self.at(self.world.now + 60.0, self.minute)

    def phases(self) -> None:
        """Jobs change."""
        self.world.turn_phases()
        self.at(self.world.now + 60.0, self.phases)

    def control(self) -> None:
        """What the controller does, time and again."""
        now = self.world.now
        self.at(now + self.policy.every, self.control)
        if not self.alive:
            return
        overdue = self.ledger.overdue(now)
        self.ledger.observe(overdue, self.world.cap[overdue], now)
        view = self.view()
        actions = step(self.policy, MONDAY + now, view)
        self.queue = actions.queue
        commands = self.ledger.propose(now, actions.caps, self.limits, groups=self.world.slot, rank=actions.rank)
        self.ledger.send(commands, now, now + SETTLE)
        on = self.ledger.boot(actions.on, self.limits, now)
        self.switch(on, Use.BOOTING, Use.IDLE, self.machine.boot_seconds)
        self.switch(actions.off, Use.STOPPING, Use.OFF, self.machine.stop_seconds)
        self.starts, self.stops = self.starts + len(on), self.stops + len(actions.off)
        slots = self.world.slot[commands.rows]
        self.world.slots.cap[slots[slots >= 0]] = commands.watts[slots >= 0]
        self.world.slots.changed[slots[slots >= 0]] = now
        self.kept = self.ledger.snapshot()
        if self.death is not None and now >= self.death.after and len(commands.rows):
            self.hand_over(Commands(commands.rows[::2], commands.watts[::2]))
            self.alive = False
            self.at(now + self.death.away, self.revive)
            self.death = None
            return
        self.hand_over(commands)
        self.schedule()

    def revive(self) -> None:
        """A successor takes over, with what was kept and what can be seen."""
        now = self.world.now
        self.ledger = Ledger.restore(self.machine.ratings, self.kept)
        for use in Use:
            self.ledger.occupy(np.flatnonzero(self.world.use == use), use, now)
        self.ledger.observe(np.arange(self.machine.count), self.world.cap, now)
        self.alive = True

    def view(self) -> View:
        """What the policy is shown."""
        world = self.world
        waiting = np.array(self.waiting, np.int64)
        return View(
            use=world.use,
            job=world.slot,
            idle_since=world.idle_since + MONDAY,
            queue=self.queue,
            cabinet=self.cabinet,
            pdu=self.pdu,
            jobs=_dated(world.jobs()),
            waiting=Waiting(self.trace.nodes[waiting], self.trace.queue[waiting]),
            room=self.ledger.room(world.now, self.limits),
            start=float(self.policy.nodes.boot),
            launch=float(self.policy.nodes.high - self.policy.nodes.idle),
            starting=world.use == Use.BOOTING,
        )

    def switch(self, rows: Rows, going: Use, there: Use, after: float) -> None:
        """Nodes start or stop."""
        if not len(rows):
            return
        self.set_use(rows, going)
        self.at(self.world.now + after, lambda: self.set_use(rows, there))

    def set_use(self, rows: Rows, use: Use) -> None:
        """The world changes, and whoever lives sees it."""
        self.world.set_use(rows, use)
        if self.alive:
            self.ledger.occupy(rows, use, self.world.now)

    def hand_over(self, commands: Commands) -> None:
        """Give commands to the wire."""
        rows, watts = commands
        self.commands += len(rows)
        delay = self.luck.integers(1, self.wire.slowest + 1, len(rows))
        fate = self.luck.random(len(rows))
        arrives = fate >= self.wire.lost
        answered = fate >= self.wire.lost + self.wire.unanswered
        for seconds in np.unique(delay[arrives]):
            now_due = arrives & (delay == seconds)
            self.at(self.world.now + float(seconds), self.arrival(rows, watts, now_due, now_due & answered))

    def arrival(self, rows: Rows, watts: Column, due: Mask, answered: Mask) -> Callable[[], None]:
        """Commands take effect, and those who live hear most of the answers."""
        sender = self.ledger

        def happen() -> None:
            self.world.set_caps(rows[due], watts[due])
            if self.alive and self.ledger is sender:
                self.ledger.confirm(rows[answered], watts[answered], self.world.now)

        return happen

    def finish(self) -> bool:
        """Jobs end."""
        ended = self.world.ended()
        for job, rows, whole, ran in ended:
            if whole:
                self.stretches.append(ran / float(self.trace.seconds[job]))
                self.work += float(self.trace.seconds[job]) * len(rows)
            else:
                self.killed += 1
            if self.alive:
                self.ledger.occupy(rows, Use.IDLE, self.world.now)
        return bool(ended)

    def schedule(self) -> None:
        """Start what fits. A job gets its power from the controller: without one, nothing starts."""
        if not self.alive or not self.waiting:
            return
        idle = (self.world.use == Use.IDLE) & ~self.ledger.in_flight
        for queue in range(len(self.policy.queues)) if self.policy.queues else (-1,):
            everybody = self.waiting if queue == -1 else (job for job in self.waiting if self.trace.queue[job] == queue)
            waiting = list(itertools.islice(everybody, DEPTH))
            rows = np.flatnonzero(idle if queue == -1 else idle & (self.queue == queue))
            if waiting and len(rows):
                self.start(waiting, rows)

    def start(self, waiting: list[int], rows: Rows) -> None:
        """Start what fits on ``rows``."""
        now, trace, table = self.world.now, self.trace, self.world.slots
        jobs = np.array(waiting, np.int64)
        caps = self.caps[jobs]
        idle = self.policy.nodes.idle
        running = table.job >= 0
        coming = int(np.count_nonzero(self.world.use < Use.IDLE) + np.count_nonzero(self.world.use == Use.BOOTING))
        held = Held(
            np.append(table.nodes[running], coming),
            np.append((table.nodes * (table.cap - idle))[running], 0.0),
            np.append(table.ends[running], now + self.machine.boot_seconds),
        )
        need = trace.nodes[jobs] * (caps - idle)
        room = self.ledger.room(now, self.limits)
        for at in startable(now, trace.nodes[jobs], need, trace.limit[jobs], len(rows), room, held):
            job, size = int(jobs[at]), int(trace.nodes[jobs[at]])
            commands = self.ledger.launch(rows[:size], np.full(size, caps[at]), self.limits, now, now + SETTLE)
            if commands is None:
                break
            self.kept = self.ledger.snapshot()
            self.world.start(job, rows[:size], float(caps[at]))
            self.hand_over(commands)
            rows = rows[size:]
            self.waiting.remove(job)
            self.waits.append(now - float(trace.submit[job]))

    def outcome(self, end: float) -> Outcome:
        """What came of it. Jobs under way count with the work that they have done."""
        world, table = self.world, self.world.slots
        running = table.job >= 0
        under_way = (self.trace.seconds[table.job[running]] - table.left[running]) * table.nodes[running]
        hours = (self.work + float(under_way.sum())) / 3600.0
        days = end / 86400.0
        return Outcome(
            name=self.policy.name or "policy",
            days=days,
            jobs=len(self.stretches),
            jobs_per_day=len(self.stretches) / days,
            killed=self.killed,
            node_hours=hours,
            busy=world.busy_seconds / (self.machine.count * end),
            stretch=world.busy_seconds / 3600.0 / hours if hours else 1.0,
            stretch_95=float(np.percentile(self.stretches, 95)) if self.stretches else 1.0,
            mean_wait_s=float(np.mean(self.waits)) if self.waits else 0.0,
            energy_kwh=world.energy / 3.6e6,
            kwh_per_node_hour=world.energy / 3.6e6 / hours if hours else 0.0,
            mean_w=world.energy / end,
            peak_w=world.peak,
            peak_possible_w=world.peak_possible,
            over_limit_s=world.over_seconds,
            cap_commands=self.commands,
            starts=self.starts,
            stops=self.stops,
        )


def _dated(jobs: Jobs) -> Jobs:
    """With times as the policy knows them."""
    return jobs._replace(started=jobs.started + MONDAY, ends=jobs.ends + MONDAY, changed=jobs.changed + MONDAY)
