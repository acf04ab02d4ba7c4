"""One model of a fleet of nodes that aren't there: what they are, what becomes of what they are told, what breaks.

Columns over a dense node index (``columns`` has them, by aspect). Pure: time is an argument, chance is counted from a
seed (``draw``), so the same calls at the same times give the same world. Knows neither sockets nor clocks: ``driver``
puts it behind the engine's seam in process, ``bmc.server`` behind Redfish.

An accepted action starts a transition that ends after its duration; a look shows what is so at that instant. A
node has one transition at a time: a newer action takes the place of the one under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Codes, Column, Indices
from strata.core.errors import BadRequest
from strata.virtual.fleet.draw import Floats, Stream, uniform
from strata.virtual.fleet.effects import Effects
from strata.virtual.fleet.electricity import Electricity
from strata.virtual.fleet.faults import NO_FAULTS, Faults, Timing
from strata.virtual.fleet.model import (
    BMC_STEPS,
    DEFAULT_MINOS,
    HUNG,
    MUTATIONS,
    OFF,
    ON,
    TARGETS,
    UP,
    VARIABLES,
    Fate,
    Why,
    Words,
    check,
)
from strata.virtual.fleet.names import first_gpu, node_names
from strata.virtual.fleet.states import NEVER, Hazards, Jobs, States
from strata.virtual.meters import Meters

Bools = npt.NDArray[np.bool_]

_DONE, _FAILED, _UNKNOWN, _FENCED = 0, 1, 2, 3


class Acted(NamedTuple):
    """What came of an action, per node: an ``Outcome`` code, and a ``Why`` code where there is a reason."""

    codes: npt.NDArray[np.int8]
    why: npt.NDArray[np.int8]


class Fences:
    """The last fence of each node."""

    def __init__(self, count: int, *, enforced: bool = True) -> None:
        """``enforced``: whether devices look at fences at all. Off only to show that a check would notice."""
        self.enforced = enforced
        self.refused: Indices = np.zeros(count, dtype=np.int64)
        """How often each refused one."""
        self._epoch: Indices = np.full(count, -1, dtype=np.int64)
        self._generation: Indices = np.full(count, -1, dtype=np.int64)

    def check(self, idx: Indices, arrived: Bools, epochs: Indices | None, generation: Indices | int) -> Bools:
        """Who takes the request; those who do remember its fence. Without ``epochs`` all do whom it reached."""
        if epochs is None or not self.enforced:
            return arrived.copy()
        last = self._epoch[idx]
        stale = (epochs < last) | ((epochs == last) & (generation <= self._generation[idx]))
        fresh: Bools = arrived & ~stale
        self.refused[idx[arrived & stale]] += 1
        self._epoch[idx[fresh]] = epochs[fresh]
        self._generation[idx[fresh]] = generation if isinstance(generation, int) else generation[fresh]
        return fresh


class SimNodes:
    """``count`` simulated nodes. Index arrays must not hold an index twice."""

    def __init__(
        self,
        count: int,
        *,
        seed: int = 0,
        timing: Timing | None = None,
        faults: Faults = NO_FAULTS,
        names: Sequence[str] | None = None,
        fencing: bool = True,
        meters: Sequence[str] = ("fine",),
    ) -> None:
        """``fencing``: whether devices refuse old and repeated fences. ``meters``: kinds of energy counters
        (``meters.METERS``) that the nodes have by turns."""
        if names is not None and len(names) != count:
            raise BadRequest(f"{count} nodes, but {len(names)} names", where="names")
        self.count = count
        self.seed = seed
        self.timing = timing or Timing()
        self.names = tuple(node_names(count) if names is None else names)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.effects = Effects(MUTATIONS)
        self.all: Indices = np.arange(count, dtype=np.int64)

        self.jobs = Jobs(count, seed, self.timing)
        self.hazards = Hazards(count, seed)
        self.electricity = Electricity(count, seed, self.timing, first_gpu(count))
        self.meters = Meters(count, seed, meters)
        self.fences = Fences(count, enforced=fencing)
        self._words = Words()
        self._states = States(count, self.timing, self.jobs, self.hazards)

        self._asked: Indices = np.zeros(count, dtype=np.int64)  # requests that each was sent
        self._pace = 0.75 + 0.5 * uniform(seed, Stream.PACE, self.all)
        self.bmc_dead: Bools = np.zeros(count, dtype=np.bool_)
        """Whose BMC does not answer. Tests may write to it."""
        self.faults = NO_FAULTS
        self.set_faults(faults, now=0.0)

    # -- what goes wrong -------------------------------------------------------------------------------------

    def set_faults(self, faults: Faults, *, now: float) -> None:
        """From ``now`` on, this goes wrong. BMCs that are dead by seed follow; broken nodes stay broken."""
        self._states.settle(self.all, now)
        self.faults = faults
        self.bmc_dead[:] = uniform(self.seed, Stream.BMC, self.all) < faults.bmc_dead
        self.hazards.set(faults, now)

    def heal(self, *, now: float) -> None:
        """From ``now`` on nothing goes wrong by itself and every BMC answers."""
        self.set_faults(NO_FAULTS, now=now)

    def power_loss(self, idx: Indices, *, now: float) -> None:
        """The nodes lose power; it does not come back by itself."""
        self._states.strike(idx, now, "power_losses")

    def feed(self, idx: Indices, fed: bool, *, now: float) -> None:
        """What feeds the nodes is switched. Without it they are off and stay off; with it they can be switched on."""
        if not fed:
            self._states.strike(idx, now, "power_losses")
            self._states.cancel(idx)
        self.electricity.fed[idx] = fed

    def hang(self, idx: Indices, *, now: float) -> None:
        """Their kernels stop."""
        self._states.strike(idx, now, "hangs")

    def panic(self, idx: Indices, *, now: float) -> None:
        """Their kernels panic and reset the machine."""
        self._states.strike(idx, now, "panics")

    def kill_agent(self, idx: Indices, *, now: float) -> None:
        """Their agents die; everything else goes on."""
        self._states.strike(idx, now, "agent_deaths")

    def put(self, idx: Indices, *, now: float, **values: str) -> None:
        """Make it so by magic, without a transition: a starting point for a test. ``put(idx, now=0, power="on")``."""
        self._states.settle(idx, now)
        self._states.cancel(idx)
        for variable, value in values.items():
            self._states.now[variable][idx] = self._words.code(variable, value)
        if "workload" in values:
            self.jobs.join(idx, now if values["workload"] == "in" else NEVER)

    # -- looking ---------------------------------------------------------------------------------------------

    def observe(self, variable: str, idx: Indices, now: float) -> Column:
        """What the source of truth for ``variable`` says now, lies and silence included."""
        if variable not in VARIABLES:
            raise BadRequest(f"simulated nodes have {', '.join(VARIABLES)}", where=variable)
        codes = self._states.truth(variable, idx, now)
        faults = self.faults
        if variable == "power":
            codes[self.bmc_dead[idx]] = 0
            if faults.power_null or faults.power_lies:
                drawn = uniform(self.seed, Stream.LOOK, idx, int(now // faults.window))
                wrong = drawn >= 1 - faults.power_lies
                codes[wrong & (codes > 0)] ^= 3  # off is 1, on is 2
                codes[drawn < faults.power_null] = 0
        elif variable != "workload":
            if variable != "os":
                codes[self._states.now["os"][idx] == HUNG] = 0
            if variable == "health":
                codes[self._states.now["os"][idx] != UP] = 0  # nobody there who would check anything
            if faults.agent_silent:
                codes[uniform(self.seed, Stream.AGENT, idx, int(now // faults.window)) < faults.agent_silent] = 0
        return Column(self._words.of(variable), codes)

    def truth(self, variable: str, idx: Indices, now: float) -> Column:
        """What is really so, whoever would answer."""
        return Column(self._words.of(variable), self._states.truth(variable, idx, now))

    def under_way(self, now: float) -> dict[str, str]:
        """Node → the mutation that it is really undergoing."""
        self._states.settle(self.all, now)
        busy = np.flatnonzero(self._states.doing >= 0)
        return {self.names[i]: MUTATIONS[self._states.doing[i]] for i in busy.tolist()}

    def job_running(self, idx: Indices, now: float) -> Bools:
        """Whether a job runs on each, as the workload manager knows for certain."""
        self._states.settle(idx, now)
        return self.jobs.end(idx, now) > now

    def watts(self, idx: Indices, now: float) -> Floats:
        busy = self.job_running(idx, now)
        return self.electricity.watts(idx, self._states.now["power"][idx] == ON, busy)

    def gpu_watts(self, idx: Indices, now: float) -> Floats:
        """What each of their accelerators draws now, a row for each node; NaN for those that have none."""
        busy = self.job_running(idx, now)
        return self.electricity.gpu_watts(idx, self._states.now["power"][idx] == ON, busy)

    def joules(self, idx: Indices, now: float) -> Floats:
        """What each has used, in truth: what it draws now, summed up from look to look."""
        return self.electricity.joules(idx, self.watts(idx, now), now)

    def counters(self, idx: Indices, now: float) -> Floats:
        """What each one's energy counter shows of that, in joules."""
        return self.meters.shows(idx, self.joules(idx, now), now)

    def silent(self, idx: Indices, now: float) -> Bools:
        """Whose BMCs do not answer now."""
        return self.bmc_dead[idx] | self.meters.silent(idx, now)

    # -- acting ----------------------------------------------------------------------------------------------

    def act(
        self,
        mutation: str,
        idx: Indices,
        *,
        now: float,
        goals: Mapping[str, Column] | None = None,
        epochs: Indices | None = None,
        generation: Indices | int = 0,
    ) -> Acted:
        """Tell the nodes. Without ``epochs`` nobody checks a fence."""
        if mutation not in TARGETS:
            raise BadRequest(f"simulated nodes can {', '.join(MUTATIONS)}", where=mutation)
        goal = self._words.goals(mutation, goals, len(idx))
        minos = self._words.coded("minos", (goals or {}).get("minos"), len(idx), DEFAULT_MINOS)
        states, faults = self._states, self.faults
        states.settle(idx, now)
        codes = np.zeros(len(idx), dtype=np.int8)
        why = np.zeros(len(idx), dtype=np.int8)
        self._asked[idx] += 1
        chance = uniform(self.seed, Stream.NET, idx, self._asked[idx])

        arrived = chance >= faults.request_lost
        if mutation in BMC_STEPS:
            arrived &= ~self.bmc_dead[idx]
        codes[~arrived] = _UNKNOWN
        fresh = self.fences.check(idx, arrived, epochs, generation)
        codes[arrived & ~fresh] = _FENCED
        why[arrived & ~fresh] = Why.FENCED

        check(mutation, {name: column[idx] for name, column in states.now.items()}, fresh, codes, why)
        if mutation == "power-on":
            dark = fresh & (codes == _DONE) & ~self.electricity.fed[idx]
            codes[dark] = _FAILED
            why[dark] = Why.NO_FEED
        refused = fresh & (codes == _DONE) & (chance >= 1 - faults.refused)
        codes[refused] = _FAILED
        why[refused] = Why.REFUSED
        taken = np.flatnonzero(fresh & (codes == _DONE))
        if mutation == "boot":
            states.brings[idx[taken]] = minos[taken]
        self._begin(
            mutation, idx[taken], goal[taken], -1 if epochs is None else epochs[taken], _at(generation, taken), now
        )
        if faults.duplicated:
            again = taken[uniform(self.seed, Stream.NET, idx[taken], -self._asked[idx[taken]]) < faults.duplicated]
            if epochs is not None and self.fences.enforced:
                self.fences.refused[idx[again]] += 1
            else:
                epoch = -1 if epochs is None else epochs[again]
                self._begin(mutation, idx[again], goal[again], epoch, _at(generation, again), now)
        lost = fresh & (chance >= faults.request_lost) & (chance < faults.request_lost + faults.reply_lost)
        codes[lost] = _UNKNOWN
        if self.timing.scale == 0:
            states.settle(idx, now)
        return Acted(codes, why)

    def restart(
        self, idx: Indices, *, now: float, cycle: bool, epochs: Indices | None = None, generation: Indices | int = 0
    ) -> Acted:
        """Reset nodes that are on, power off for a moment if it is a ``cycle``: their OS is down after it."""
        states = self._states
        states.settle(idx, now)
        codes = np.zeros(len(idx), dtype=np.int8)
        why = np.zeros(len(idx), dtype=np.int8)
        self._asked[idx] += 1
        arrived = ~self.bmc_dead[idx]
        fresh = self.fences.check(idx, arrived, epochs, generation)
        codes[~arrived] = _UNKNOWN
        codes[arrived & ~fresh] = _FENCED
        why[arrived & ~fresh] = Why.FENCED
        off = fresh & (states.now["power"][idx] != ON)
        codes[off] = _FAILED
        why[off] = Why.OFF
        taken = idx[codes == _DONE]
        self.jobs.kill(taken, now)
        states.cancel(taken)
        states.stop_os(taken)
        if cycle:
            states.now["power"][taken] = OFF
            lasts = self.timing.seconds.get("power-on", 1.0) * self.timing.scale
            states.begin("power-on", taken, ON, Fate.WORKS, now + lasts * self._pace[taken])
        return Acted(codes, why)

    def _begin(
        self, mutation: str, idx: Indices, goal: Codes, epochs: Indices | int, generation: Indices | int, now: float
    ) -> None:
        """The nodes took it: write it down, and set what becomes of it and when."""
        if not len(idx):
            return
        idle = self._states.has(mutation, idx, goal)
        self.effects.add(idx, epochs, generation, MUTATIONS.index(mutation), now, idle)
        if mutation in ("power-off", "stop-personality", "switch-image"):
            self.jobs.kill(idx, now)
        part = ~idle
        idx, goal = idx[part], goal[part]
        asked = self._asked[idx]
        fate = self._fates(mutation, uniform(self.seed, Stream.FATE, idx, asked))
        lasts = self.timing.seconds.get(mutation, 1.0) * self.timing.scale
        due = now + lasts * self._pace[idx] * (1.0 + 0.2 * uniform(self.seed, Stream.LAST, idx, asked))
        if mutation == "leave-workload":
            due = np.where(fate == Fate.WORKS, np.maximum(due, self.jobs.end(idx, now)), due)
            self.jobs.drain(idx[fate != Fate.NOTHING], now)
        self._states.begin(mutation, idx, goal, fate, due)

    def _fates(self, mutation: str, chance: Floats) -> npt.NDArray[np.int8]:
        """What becomes of an accepted action."""
        faults = self.faults
        fate = np.where(chance < faults.ignored, Fate.NOTHING, Fate.WORKS).astype(np.int8)
        rest = fate == Fate.WORKS
        bad = 1 - chance
        if mutation == "boot":
            fate[rest & (bad <= faults.boot_fails + faults.boot_hangs)] = Fate.HANGS
            fate[rest & (bad <= faults.boot_fails)] = Fate.NOTHING
        elif mutation in ("start-personality", "switch-image"):
            fate[rest & (bad <= faults.personality_fails)] = Fate.ERROR
        elif mutation == "leave-workload":
            fate[rest & (bad <= faults.drain_lies)] = Fate.LIES
        return fate


def _at(generation: Indices | int, positions: npt.NDArray[np.intp]) -> Indices | int:
    return generation if isinstance(generation, int) else generation[positions]
