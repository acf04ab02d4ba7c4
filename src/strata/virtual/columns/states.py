"""What is so on every simulated node, what is under way there, and what becomes of both as time passes.

A node has one transition at a time. Knows no device: whoever tells and asks nodes stands before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata.core.column import Codes, Indices
from strata.core.distinct import distinct
from strata.virtual.columns.hazards import Hazards
from strata.virtual.columns.jobs import Jobs
from strata.virtual.draw import Floats
from strata.virtual.faults import Timing
from strata.virtual.rules import ACTIVE, HUNG, MUTATIONS, OFF, ON, OUT, TARGETS, UP, VARIABLES, WORDS, Fate

Bools = npt.NDArray[np.bool_]

_NEVER = np.inf
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
        self._died: Floats = np.full(count, _NEVER)  # when the kernel stopped, while it shows as hung

        # What is under way: one transition per node.
        self.doing = np.full(count, -1, dtype=np.int8)
        """The mutation under way; -1: none."""
        self.brings: Codes = np.ones(count, dtype=np.int32)
        """The minimal OS that a boot under way brings."""
        self._due: Floats = np.full(count, _NEVER)
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
        self._due[idx] = _NEVER

    def stop_os(self, idx: Indices) -> None:
        """Their operating systems end, and all that runs there."""
        for name in ("os", "minos", "identity", "image", "personality"):
            self.now[name][idx] = 1
        self._died[idx] = _NEVER
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
        """End the transitions under way."""
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
            self.now["personality"][broken] = WORDS["personality"].index("error") + 1
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
