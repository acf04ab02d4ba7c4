"""Simulates a policy: a day of a simulated machine with jobs, in seconds, with a wire that delays and loses.

The policy, the ledger of caps and what is kept of it are the real ones. Only the machine, its scheduler and the wire
are made up. The same trace and seed give the same day, for every policy that is compared.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from strata.core.distinct import distinct
from strata.core.units import Watts
from strata.power.capping.ledger import Ledger
from strata.power.capping.terms import SETTLE, Commands, Limits, Rows, Use
from strata.power.policies.capped_queues import first_shares
from strata.power.policies.decide import decide
from strata.power.policies.policy import Policy
from strata.power.policies.view import Jobs, View, Waiting
from strata.power.simulation.outcome import Outcome, Tally
from strata.power.simulation.scheduler import DEPTH, Held, startable
from strata.power.simulation.trace import Trace
from strata.power.simulation.world import Machine, World

MONDAY = 1767571200.0
"""When simulations begin: 2026-01-05, midnight UTC, a Monday."""


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """The controller dies while it hands over commands: half of them are sent."""

    after: float
    """Seconds from the beginning."""
    away: float = 180.0


def simulate(
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
    return _Simulation(policy, machine, trace, limit, seed, wire or Wire(), death).run(days * 86400.0)


class _Simulation:
    """One run."""

    def __init__(
        self, policy: Policy, machine: Machine, trace: Trace, limit: float, seed: int, wire: Wire, death: Death | None
    ) -> None:
        self.policy, self.machine, self.trace, self.wire, self.death = policy, machine, trace, wire, death
        self.limits: Limits = policy.limits()
        queue = first_shares(policy.queues, machine.count)
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
        self.tally = Tally(trace)
        numbers = np.arange(machine.count)
        self.cabinet, self.pdu = numbers // machine.per_cabinet, numbers // machine.per_pdu

    def run(self, end: float) -> Outcome:
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
        return self.tally.outcome(self.policy.name or "policy", self.world, end)

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), what))

    def minute(self) -> None:
        """What the meters do."""
        self.world.mark()
        self.at(self.world.now + 60.0, self.minute)

    def phases(self) -> None:
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
        self.queue, commands, on, off = decide(self.policy, MONDAY + now, self.view(), self.ledger, self.limits, now)
        self.switch(on, Use.BOOTING, Use.IDLE, self.machine.boot_seconds)
        self.switch(off, Use.STOPPING, Use.OFF, self.machine.stop_seconds)
        self.tally.starts, self.tally.stops = self.tally.starts + len(on), self.tally.stops + len(off)
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
        self.tally.commands += len(commands.rows)
        for delivery in self.wire.carry(commands, self.luck):
            self.at(self.world.now + delivery.after, self.arrival(delivery))

    def arrival(self, delivery: Delivery) -> Callable[[], None]:
        """Commands take effect, and those who live hear most of the answers."""
        sender = self.ledger

        def happen() -> None:
            self.world.set_caps(*delivery.arrived)
            if self.alive and self.ledger is sender:
                self.ledger.confirm(*delivery.answered, self.world.now)

        return happen

    def finish(self) -> bool:
        ended = self.world.ended()
        self.tally.count(ended)
        if self.alive:
            for job in ended:
                self.ledger.occupy(job.rows, Use.IDLE, self.world.now)
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
            self.tally.waits.append(now - float(trace.submit[job]))


def _dated(jobs: Jobs) -> Jobs:
    """With times as the policy knows them."""
    return jobs._replace(started=jobs.started + MONDAY, ends=jobs.ends + MONDAY, changed=jobs.changed + MONDAY)


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of commands."""

    slowest: int = 8
    """They take effect after 1 to this many seconds."""
    lost: float = 0.005
    """Part of them that never arrive."""
    unanswered: float = 0.005
    """Part of them that take effect, and nobody hears of it."""

    def carry(self, commands: Commands, luck: np.random.Generator) -> Iterator[Delivery]:
        """What arrives, the soonest first."""
        rows, watts = commands
        delay = luck.integers(1, self.slowest + 1, len(rows))
        fate = luck.random(len(rows))
        arrives = fate >= self.lost
        answered = fate >= self.lost + self.unanswered
        for seconds in distinct(delay[arrives]):
            due = arrives & (delay == seconds)
            heard = due & answered
            yield Delivery(float(seconds), Commands(rows[due], watts[due]), Commands(rows[heard], watts[heard]))


class Delivery(NamedTuple):
    """Commands that take effect at one moment."""

    after: float
    """Seconds."""
    arrived: Commands
    answered: Commands
    """Those of them that are heard of."""


NO_POLICY = "no policy"


def compare(
    policy: Policy, trace: Trace, *, nodes: int, limit: float, days: float, seed: int, death: Death | None = None
) -> Iterator[Outcome]:
    """Simulate the policy, and then each of the others on the same jobs. The controller dies in the first only."""
    own = msgspec.structs.replace(policy, name=policy.name or "policy", limit=Watts(limit))
    for candidate, count in ((own, nodes), *baselines(policy, nodes, limit)):
        machine = Machine(ratings=candidate.nodes.ratings(count))
        dies = death if candidate is own else None
        yield simulate(candidate, machine, trace, limit=limit, days=days, seed=seed, death=dies)


def baselines(policy: Policy, nodes: int, limit: float) -> tuple[tuple[Policy, int], ...]:
    """What is done without a policy, and on how many nodes."""
    power = policy.nodes
    level = min(nodes, int(limit // power.low))
    cap = Watts(min(power.high, np.floor(limit / max(level, 1))))
    static = Policy(name=f"static {cap:g} W" + (f", {level} nodes" if level < nodes else ""), nodes=power, cap=cap)
    fewer = min(nodes, int(limit // power.high))
    return (
        (Policy(name=NO_POLICY, nodes=power), nodes),
        (static, level),
        (Policy(name=f"uncapped, {fewer} nodes", nodes=power), fewer),
    )
