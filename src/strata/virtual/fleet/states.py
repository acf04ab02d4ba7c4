"""What is so on every simulated node, what is under way there, and what becomes of both as time passes; its jobs, and
what breaks by itself.

A node has one transition at a time. Knows no device: whoever tells and asks nodes stands before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from strata.core.column import Codes, Indices
from strata.core.distinct import distinct
from strata.virtual.fleet.draw import Floats, Stream, uniform
from strata.virtual.fleet.faults import NO_FAULTS, RATES, Faults, Timing
from strata.virtual.fleet.model import ACTIVE, ERROR, HUNG, MUTATIONS, OFF, ON, OUT, TARGETS, UP, VARIABLES, Fate

NEVER = np.inf


class Jobs:
    """The workload manager's view of every node."""

    def __init__(self, count: int, seed: int, timing: Timing) -> None:
        self._seed = seed
        self._timing = timing
        self.lost: Indices = np.zeros(count, dtype=np.int64)
        """Per node: jobs that one of our own actions killed (not those that a hazard took)."""
        self._joined: Floats = np.full(count, NEVER)
        self._draining: Floats = np.full(count, NEVER)
        self._until: Floats = np.zeros(count)
        self._phase = uniform(seed, Stream.JOB, np.arange(count, dtype=np.int64), -1)

    def run(self, idx: Indices, *, until: float) -> None:
        """A job runs on each until then, whatever the timing says of jobs."""
        self._until[idx] = until

    def end(self, idx: Indices, now: float) -> Floats:
        """When the job that runs on each ends; in the past where none runs."""
        ends = self._until[idx]
        timing = self._timing
        if timing.job_share:
            phase = self._phase[idx] * timing.job_length
            slot = np.floor((now + phase) / timing.job_length)
            start = slot * timing.job_length - phase
            drawn = uniform(self._seed, Stream.JOB, idx, slot.astype(np.int64)) < timing.job_share
            runs = drawn & (self._joined[idx] <= start) & (self._draining[idx] > start)
            ends = np.where(runs, np.maximum(ends, start + timing.job_length), ends)
        return ends

    def kill(self, idx: Indices, now: float) -> None:
        """Count the jobs that an action of ours is about to end."""
        self.lost[idx] += self.end(idx, now) > now

    def join(self, idx: Indices, when: Floats | float) -> None:
        """They take jobs from then on; from ``NEVER`` on: they take none."""
        self._joined[idx] = when
        self._draining[idx] = NEVER

    def drain(self, idx: Indices, now: float) -> None:
        """They take no further job."""
        self._draining[idx] = now

    def leave(self, idx: Indices) -> None:
        """They are out, drained."""
        self._joined[idx] = NEVER

    def die(self, idx: Indices) -> None:
        """Their kernels stopped, and their jobs with them; nobody told the workload manager."""
        self._joined[idx] = NEVER
        self._until[idx] = 0.0

    def clear(self, idx: Indices) -> None:
        """What jobs run in has ended."""
        self._joined[idx] = NEVER
        self._draining[idx] = NEVER
        self._until[idx] = 0.0


class Hazards:
    """Drawn by seed, one after the other for each node. What a hazard does is not its affair."""

    def __init__(self, count: int, seed: int) -> None:
        self._seed = seed
        self._faults = NO_FAULTS
        self._strikes: Indices = np.zeros(count, dtype=np.int64)
        self.due: Floats = np.full(count, np.inf)
        """When the next one strikes each."""
        self.struck: dict[str, int] = dict.fromkeys(RATES, 0)
        """How often each kind hit a node, by itself or because somebody made it."""

    def set(self, faults: Faults, now: float) -> None:
        """From ``now`` on, they come at these rates."""
        self._faults = faults
        self.due[:] = np.inf
        self._aim(np.arange(len(self.due), dtype=np.int64), np.full(len(self.due), now))

    def kinds(self, idx: Indices) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """What strikes these nodes next, each kind with those of them that it strikes."""
        rates = np.array([getattr(self._faults, name) for name in RATES])
        kind = np.searchsorted(
            np.cumsum(rates) / rates.sum(), uniform(self._seed, Stream.KIND, idx, self._strikes[idx]), side="right"
        )
        for code in distinct(kind).tolist():
            yield RATES[min(code, len(RATES) - 1)], kind == code

    def passed(self, idx: Indices) -> None:
        """It struck these nodes: draw the next one."""
        self._strikes[idx] += 1
        self._aim(idx, self.due[idx])

    def _aim(self, idx: Indices, since: Floats) -> None:
        rate = sum(getattr(self._faults, name) for name in RATES) / 3600
        if rate:
            chance = uniform(self._seed, Stream.HAZARD, idx, self._strikes[idx])
            self.due[idx] = since - np.log1p(-chance) / rate


Bools = npt.NDArray[np.bool_]

_ON_VARIABLE = {
    variable: np.array([*(TARGETS[name][0] == variable for name in MUTATIONS), False]) for variable in VARIABLES
}
"""Variable → for every mutation, whether it changes it; the last is for -1, no mutation."""


class States:
    """The truth about every node. Index arrays must not hold an index twice."""

    def __init__(self, count: int, timing: Timing, jobs: Jobs, hazards: Hazards) -> None:
        self._timing = timing
        self._jobs = jobs
        self._hazards = hazards
        self.now: dict[str, Codes] = {name: np.ones(count, dtype=np.int32) for name in VARIABLES}
        """Variable → what is so, as of each node's last ``settle``. A node starts off, with nothing on it."""
        self._died: Floats = np.full(count, NEVER)  # when the kernel stopped, while it shows as hung

        # What is under way: one transition per node.
        self.doing = np.full(count, -1, dtype=np.int8)
        """The mutation under way; -1: none."""
        self.brings: Codes = np.ones(count, dtype=np.int32)
        """The minimal OS that a boot under way brings."""
        self._due: Floats = np.full(count, NEVER)
        self._goal: Codes = np.zeros(count, dtype=np.int32)
        self._fate = np.zeros(count, dtype=np.int8)

    def truth(self, variable: str, idx: Indices, now: float) -> Codes:
        """What is so at ``now``."""
        self.settle(idx, now)
        codes = self.now[variable][idx]
        if variable == "workload":
            codes[self._died[idx] + self._timing.notice <= now] = OUT
        return codes

    # -- transitions

    def has(self, mutation: str, idx: Indices, goal: Codes) -> Bools:
        """Who has what the mutation would bring, or is on the way there."""
        variable, _ = TARGETS[mutation]
        under_way = (self.doing[idx] == MUTATIONS.index(mutation)) & (self._goal[idx] == goal)
        leaving = _ON_VARIABLE[variable][self.doing[idx]]  # on the way to another value of it
        found: Bools = under_way | ((self.now[variable][idx] == goal) & ~leaving)
        return found

    def begin(
        self, mutation: str, idx: Indices, goal: Codes | int, fate: npt.NDArray[np.int8] | Fate, due: Floats
    ) -> None:
        """A transition that ends at ``due``, in the place of the one under way."""
        self.doing[idx] = MUTATIONS.index(mutation)
        self._goal[idx] = goal
        self._fate[idx] = fate
        self._due[idx] = due

    def cancel(self, idx: Indices) -> None:
        """Nothing is under way any more."""
        self.doing[idx] = -1
        self._due[idx] = NEVER

    def stop_os(self, idx: Indices) -> None:
        """Their operating systems end, and all that runs there."""
        for name in ("os", "minos", "identity", "image", "personality", "health"):
            self.now[name][idx] = 1
        self._died[idx] = NEVER
        self._stop_platform(idx)

    def strike(self, idx: Indices, now: float, kind: str) -> None:
        """A hazard hits them now, because somebody made it."""
        self.settle(idx, now)
        self._hit(idx, np.full(len(idx), now), kind)

    # -- time passes

    def settle(self, idx: Indices, now: float) -> None:
        """Bring the nodes up to ``now``: whatever was due or struck since, in its order."""
        while True:
            due, hazard = self._due[idx], self._hazards.due[idx]
            first = np.minimum(due, hazard) <= now
            if not first.any():
                return
            ends = first & (due <= hazard)
            self._finish(idx[ends])
            hit = idx[first & ~ends]
            if len(hit):
                self._break(hit)

    def _finish(self, idx: Indices) -> None:
        doing = self.doing[idx]
        for code in distinct(doing).tolist():
            self._land(MUTATIONS[code], idx[doing == code])
        self.cancel(idx)

    def _land(self, mutation: str, idx: Indices) -> None:
        fate = self._fate[idx]
        when = self._due[idx]
        fine = idx[(fate == Fate.WORKS) | (fate == Fate.LIES)]
        variable, _ = TARGETS[mutation]
        self.now[variable][fine] = self._goal[fine]
        if mutation == "power-off":
            self.stop_os(fine)
        elif mutation == "boot":
            hung = idx[fate == Fate.HANGS]
            self.now["os"][hung] = HUNG
            self._died[hung] = when[fate == Fate.HANGS]
            self.now["minos"][fine] = self.brings[fine]
        elif mutation == "switch-image":
            # Those that broke are back at what they ran before, as new containers.
            self._stop_platform(idx[fate != Fate.NOTHING])
            self.now["personality"][fine] = ACTIVE
        elif mutation in ("start-personality", "stop-personality"):
            self._stop_platform(fine)
            broken = idx[fate == Fate.ERROR]
            self.now["personality"][broken] = ERROR
        elif mutation == "join-workload":
            self._jobs.join(fine, when[fate == Fate.WORKS])
        elif mutation == "leave-workload":
            self._jobs.leave(idx[fate == Fate.WORKS])

    def _stop_platform(self, idx: Indices) -> None:
        """What lives in the personality ends with it."""
        self.now["config"][idx] = 1
        self.now["workload"][idx] = OUT
        self._jobs.clear(idx)

    def _break(self, idx: Indices) -> None:
        """Something breaks, at the time that was drawn for it."""
        when = self._hazards.due[idx]
        for kind, mine in self._hazards.kinds(idx):
            self._hit(idx[mine], when[mine], kind)
        self._hazards.passed(idx)

    def _hit(self, idx: Indices, when: Floats, kind: str) -> None:
        on = self.now["power"][idx] == ON
        hit = on if kind == "power_losses" else on & (self.now["os"][idx] == UP)
        idx, when = idx[hit], when[hit]
        self._hazards.struck[kind] += len(idx)
        if kind == "power_losses":
            self.cancel(idx)
            self.now["power"][idx] = OFF
            self.stop_os(idx)
            return
        # A dead kernel or agent ends what it was doing, but power is switched from outside.
        inside = self.doing[idx] != MUTATIONS.index("power-off")
        if kind == "panics":
            self.cancel(idx[inside])
            self.stop_os(idx)
            return
        if kind == "agent_deaths":
            inside &= self.doing[idx] != MUTATIONS.index("leave-workload")
        self.cancel(idx[inside])
        self.now["os"][idx] = HUNG
        if kind == "hangs":
            self._died[idx] = when
            self._jobs.die(idx)
