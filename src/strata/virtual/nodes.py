"""One model of a fleet of nodes that aren't there: what they are, what becomes of what they are told, what breaks.

Columns over a dense node index. Pure: time is an argument, chance is counted from a seed (``draw``), so the same
calls at the same times give the same world. Knows neither sockets nor clocks: ``driver`` puts it behind the
engine's seam in process, ``bmc_server`` behind Redfish.

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
from strata.core.model import ABSENT
from strata.virtual.draw import Floats, Stream, uniform
from strata.virtual.effects import Effects
from strata.virtual.faults import NO_FAULTS, RATES, Faults, Timing
from strata.virtual.fleet import node_names
from strata.virtual.rules import (
    ACTIVE,
    BMC_STEPS,
    DEFAULT_MINOS,
    HUNG,
    MUTATIONS,
    OFF,
    ON,
    OPEN_VARIABLES,
    OUT,
    TARGETS,
    UP,
    VARIABLES,
    WORDS,
    Fate,
    Why,
    check,
)

Bools = npt.NDArray[np.bool_]

_NEVER = np.inf
_ON_VARIABLE = {
    variable: np.array([*(TARGETS[name][0] == variable for name in MUTATIONS), False]) for variable in VARIABLES
}
"""Variable → for every mutation, whether it changes it; the last is for -1, no mutation."""
_DONE, _FAILED, _UNKNOWN, _FENCED = 0, 1, 2, 3


class Acted(NamedTuple):
    """What came of an action, per node: an ``Outcome`` code, and a ``Why`` code where there is a reason."""

    codes: npt.NDArray[np.int8]
    why: npt.NDArray[np.int8]


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
    ) -> None:
        if names is not None and len(names) != count:
            raise BadRequest(f"{count} nodes, but {len(names)} names", where="names")
        self.count = count
        self.seed = seed
        self.timing = timing or Timing()
        self.names = tuple(node_names(count) if names is None else names)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.fencing = fencing
        """Whether devices refuse old and repeated fences. Off only to show that a check would notice."""
        self.effects = Effects(MUTATIONS)
        self.all: Indices = np.arange(count, dtype=np.int64)

        # What is so. Codes as in Column: 1 is the first word. A node starts off, with nothing on it.
        self._now: dict[str, Codes] = {name: np.ones(count, dtype=np.int32) for name in VARIABLES}
        self._words: dict[str, dict[str, int]] = {name: {ABSENT: 1} for name in OPEN_VARIABLES}
        self._died: Floats = np.full(count, _NEVER)  # when the kernel stopped, while it shows as hung
        self._joined: Floats = np.full(count, _NEVER)
        self._draining: Floats = np.full(count, _NEVER)
        self._job_until: Floats = np.zeros(count)

        # What is under way: one transition per node.
        self._doing = np.full(count, -1, dtype=np.int8)
        self._due: Floats = np.full(count, _NEVER)
        self._goal: Codes = np.zeros(count, dtype=np.int32)
        self._fate = np.zeros(count, dtype=np.int8)
        self._minos: Codes = np.ones(count, dtype=np.int32)  # what a boot under way brings

        # The last fence that each took, how often it refused one, and how many requests it was sent.
        self._epoch: Indices = np.full(count, -1, dtype=np.int64)
        self._generation: Indices = np.full(count, -1, dtype=np.int64)
        self.fenced: Indices = np.zeros(count, dtype=np.int64)
        self._asked: Indices = np.zeros(count, dtype=np.int64)

        self.jobs_lost: Indices = np.zeros(count, dtype=np.int64)
        """Per node: jobs that one of our own actions killed (not those that a hazard took)."""
        self.struck: dict[str, int] = dict.fromkeys(RATES, 0)
        """How often each hazard hit."""

        self._pace = 0.75 + 0.5 * uniform(seed, Stream.PACE, self.all)
        self._thirst = 0.9 + 0.2 * uniform(seed, Stream.DRAW, self.all)
        self._phase = uniform(seed, Stream.JOB, self.all, -1)
        self._struck_count: Indices = np.zeros(count, dtype=np.int64)
        self._hazard: Floats = np.full(count, _NEVER)
        self.bmc_dead: Bools = np.zeros(count, dtype=np.bool_)
        """Whose controller does not answer. Tests may write to it."""
        self.fed: Bools = np.ones(count, dtype=np.bool_)
        """Who gets electricity at all: see ``feed``."""
        self.caps: Floats = np.full(count, _NEVER)
        """Watts that each may draw: see ``set_cap``."""
        self._joules: Floats = np.zeros(count)
        self._metered: Floats = np.zeros(count)
        self.faults = NO_FAULTS
        self.set_faults(faults, now=0.0)

    # -- what goes wrong -------------------------------------------------------------------------------------

    def set_faults(self, faults: Faults, *, now: float) -> None:
        """From ``now`` on, this goes wrong. Controllers that are dead by seed follow; broken nodes stay broken."""
        self._settle(self.all, now)
        self.faults = faults
        self.bmc_dead[:] = uniform(self.seed, Stream.BMC, self.all) < faults.bmc_dead
        self._hazard[:] = _NEVER
        self._aim(self.all, np.full(self.count, now))

    def heal(self, *, now: float) -> None:
        """From ``now`` on nothing goes wrong by itself and every controller answers."""
        self.set_faults(NO_FAULTS, now=now)

    def power_loss(self, idx: Indices, *, now: float) -> None:
        """The nodes lose power; it does not come back by itself."""
        self._strike(idx, now, "power_losses")

    def feed(self, idx: Indices, fed: bool, *, now: float) -> None:
        """What feeds the nodes is switched. Without it they are off and stay off; with it they can be switched on."""
        if not fed:
            self._strike(idx, now, "power_losses")
            self._cancel(idx)
        self.fed[idx] = fed

    def hang(self, idx: Indices, *, now: float) -> None:
        """Their kernels stop."""
        self._strike(idx, now, "hangs")

    def panic(self, idx: Indices, *, now: float) -> None:
        """Their kernels panic and reset the machine."""
        self._strike(idx, now, "panics")

    def kill_agent(self, idx: Indices, *, now: float) -> None:
        """Their agents die; everything else goes on."""
        self._strike(idx, now, "agent_deaths")

    def run_job(self, idx: Indices, *, until: float) -> None:
        """A job runs on each until then, whatever the timing says of jobs."""
        self._job_until[idx] = until

    def put(self, idx: Indices, *, now: float, **values: str) -> None:
        """Make it so by magic, without a transition: a starting point for a test. ``put(idx, now=0, power="on")``."""
        self._settle(idx, now)
        self._cancel(idx)
        for variable, value in values.items():
            self._now[variable][idx] = self._code(variable, value)
        if "workload" in values:
            self._joined[idx] = now if values["workload"] == "in" else _NEVER
            self._draining[idx] = _NEVER

    # -- looking ---------------------------------------------------------------------------------------------

    def observe(self, variable: str, idx: Indices, now: float) -> Column:
        """What the source of truth for ``variable`` says now, lies and silence included."""
        if variable not in VARIABLES:
            raise BadRequest(f"simulated nodes have {', '.join(VARIABLES)}", where=variable)
        codes = self._truth(variable, idx, now)
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
                codes[self._now["os"][idx] == HUNG] = 0
            if faults.agent_silent:
                codes[uniform(self.seed, Stream.AGENT, idx, int(now // faults.window)) < faults.agent_silent] = 0
        return Column(self.words(variable), codes)

    def truth(self, variable: str, idx: Indices, now: float) -> Column:
        """What is really so, whoever would answer."""
        return Column(self.words(variable), self._truth(variable, idx, now))

    def under_way(self, now: float) -> dict[str, str]:
        """Node → the mutation that it is really undergoing."""
        self._settle(self.all, now)
        busy = np.flatnonzero(self._doing >= 0)
        return {self.names[i]: MUTATIONS[self._doing[i]] for i in busy.tolist()}

    def words(self, variable: str) -> tuple[str, ...]:
        """The values that ``variable`` has had, in the order of their codes."""
        return tuple(self._words[variable]) if variable in self._words else WORDS[variable]

    def job_running(self, idx: Indices, now: float) -> Bools:
        """Whether a job runs on each, as the workload manager knows for certain."""
        self._settle(idx, now)
        return self._job_end(idx, now) > now

    def watts(self, idx: Indices, now: float) -> Floats:
        """What each draws now."""
        self._settle(idx, now)
        timing = self.timing
        on = self._now["power"][idx] == ON
        busy = self._job_end(idx, now) > now
        drawn = np.where(on, np.where(busy, timing.busy_watts, timing.idle_watts), timing.standby_watts)
        drawn = drawn * self._thirst[idx]
        drawn = np.where(on, np.minimum(drawn, self.caps[idx]), drawn)
        return np.where(self.fed[idx], drawn, 0.0)

    def joules(self, idx: Indices, now: float) -> Floats:
        """Each one's energy counter: what it draws now, summed up from look to look."""
        since = np.maximum(0.0, now - self._metered[idx])
        self._joules[idx] += self.watts(idx, now) * since
        self._metered[idx] = np.maximum(self._metered[idx], now)
        return self._joules[idx]

    def set_cap(self, idx: Indices, watts: float | None) -> None:
        """Cap what each draws while it is on; None takes the cap off."""
        self.caps[idx] = _NEVER if watts is None else watts

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
        goal = self._goals(mutation, goals, len(idx))
        minos = self._coded("minos", (goals or {}).get("minos"), len(idx), DEFAULT_MINOS)
        self._settle(idx, now)
        codes = np.zeros(len(idx), dtype=np.int8)
        why = np.zeros(len(idx), dtype=np.int8)
        self._asked[idx] += 1
        faults = self.faults
        chance = uniform(self.seed, Stream.NET, idx, self._asked[idx])

        arrived = chance >= faults.request_lost
        if mutation in BMC_STEPS:
            arrived &= ~self.bmc_dead[idx]
        codes[~arrived] = _UNKNOWN
        fresh = self._check_fences(idx, arrived, epochs, generation)
        codes[arrived & ~fresh] = _FENCED
        why[arrived & ~fresh] = Why.FENCED

        check(mutation, {name: column[idx] for name, column in self._now.items()}, fresh, codes, why)
        if mutation == "power-on":
            dark = fresh & (codes == _DONE) & ~self.fed[idx]
            codes[dark] = _FAILED
            why[dark] = Why.NO_FEED
        refused = fresh & (codes == _DONE) & (chance >= 1 - faults.refused)
        codes[refused] = _FAILED
        why[refused] = Why.REFUSED
        taken = np.flatnonzero(fresh & (codes == _DONE))
        if mutation == "boot":
            self._minos[idx[taken]] = minos[taken]
        self._begin(
            mutation, idx[taken], goal[taken], -1 if epochs is None else epochs[taken], _at(generation, taken), now
        )
        if faults.duplicated:
            again = taken[uniform(self.seed, Stream.NET, idx[taken], -self._asked[idx[taken]]) < faults.duplicated]
            if epochs is not None and self.fencing:
                self.fenced[idx[again]] += 1
            else:
                epoch = -1 if epochs is None else epochs[again]
                self._begin(mutation, idx[again], goal[again], epoch, _at(generation, again), now)
        lost = fresh & (chance >= faults.request_lost) & (chance < faults.request_lost + faults.reply_lost)
        codes[lost] = _UNKNOWN
        if self.timing.scale == 0:
            self._settle(idx, now)
        return Acted(codes, why)

    def restart(
        self, idx: Indices, *, now: float, cycle: bool, epochs: Indices | None = None, generation: Indices | int = 0
    ) -> Acted:
        """Reset nodes that are on, power off for a moment if it is a ``cycle``: their OS is down after it."""
        self._settle(idx, now)
        codes = np.zeros(len(idx), dtype=np.int8)
        why = np.zeros(len(idx), dtype=np.int8)
        self._asked[idx] += 1
        arrived = ~self.bmc_dead[idx]
        fresh = self._check_fences(idx, arrived, epochs, generation)
        codes[~arrived] = _UNKNOWN
        codes[arrived & ~fresh] = _FENCED
        why[arrived & ~fresh] = Why.FENCED
        off = fresh & (self._now["power"][idx] != ON)
        codes[off] = _FAILED
        why[off] = Why.OFF
        taken = idx[codes == _DONE]
        self.jobs_lost[taken] += self._job_end(taken, now) > now
        self._cancel(taken)
        self._stop_os(taken)
        if cycle:
            self._now["power"][taken] = OFF
            self._doing[taken] = MUTATIONS.index("power-on")
            self._goal[taken] = ON
            self._fate[taken] = Fate.WORKS
            self._due[taken] = now + self.timing.seconds.get("power-on", 1.0) * self.timing.scale * self._pace[taken]
        return Acted(codes, why)

    def _check_fences(self, idx: Indices, arrived: Bools, epochs: Indices | None, generation: Indices | int) -> Bools:
        """Who takes the request; those who do remember its fence."""
        if epochs is None or not self.fencing:
            return arrived.copy()
        last = self._epoch[idx]
        stale = (epochs < last) | ((epochs == last) & (generation <= self._generation[idx]))
        fresh: Bools = arrived & ~stale
        self.fenced[idx[arrived & stale]] += 1
        self._epoch[idx[fresh]] = epochs[fresh]
        self._generation[idx[fresh]] = generation if isinstance(generation, int) else generation[fresh]
        return fresh

    def _goals(self, mutation: str, goals: Mapping[str, Column] | None, count: int) -> Codes:
        variable, word = TARGETS[mutation]
        if word:
            return np.full(count, WORDS[variable].index(word) + 1, dtype=np.int32)
        column = (goals or {}).get(variable)
        if column is None:
            raise BadRequest(f"{mutation} needs to know which {variable}", where=mutation)
        return self._coded(variable, column, count, ABSENT)

    def _coded(self, variable: str, column: Column | None, count: int, otherwise: str) -> Codes:
        """``column`` in our own codes; ``otherwise`` where it says nothing."""
        if column is None:
            return np.full(count, self._code(variable, otherwise), dtype=np.int32)
        words = (otherwise, *column.words)
        return np.array([self._code(variable, word) for word in words], dtype=np.int32)[column.codes]

    def _begin(
        self,
        mutation: str,
        idx: Indices,
        goal: Codes,
        epochs: Indices | int,
        generation: Indices | int,
        now: float,
    ) -> None:
        """The nodes took it: write it down, and set what becomes of it and when."""
        if not len(idx):
            return
        code = MUTATIONS.index(mutation)
        variable, _ = TARGETS[mutation]
        under_way = (self._doing[idx] == code) & (self._goal[idx] == goal)
        leaving = _ON_VARIABLE[variable][self._doing[idx]]  # on the way to another value of it
        there = (self._now[variable][idx] == goal) & ~leaving
        idle = under_way | there
        self.effects.add(idx, epochs, generation, code, now, idle)
        if mutation in ("power-off", "stop-personality", "switch-image"):
            self.jobs_lost[idx] += self._job_end(idx, now) > now
        part = ~idle
        idx, goal = idx[part], goal[part]
        asked = self._asked[idx]
        fate = self._fates(mutation, uniform(self.seed, Stream.FATE, idx, asked))
        lasts = self.timing.seconds.get(mutation, 1.0) * self.timing.scale
        due = now + lasts * self._pace[idx] * (1.0 + 0.2 * uniform(self.seed, Stream.LAST, idx, asked))
        if mutation == "leave-workload":
            heard = fate != Fate.NOTHING
            due = np.where(fate == Fate.WORKS, np.maximum(due, self._job_end(idx, now)), due)
            self._draining[idx[heard]] = now
        self._doing[idx] = code
        self._goal[idx] = goal
        self._fate[idx] = fate
        self._due[idx] = due

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

    # -- time passes -----------------------------------------------------------------------------------------

    def _settle(self, idx: Indices, now: float) -> None:
        """Bring the nodes up to ``now``: whatever was due or struck since, in its order."""
        while True:
            due, hazard = self._due[idx], self._hazard[idx]
            first = np.minimum(due, hazard) <= now
            if not first.any():
                return
            ends = first & (due <= hazard)
            self._finish(idx[ends])
            hit = idx[first & ~ends]
            if len(hit):
                self._hazards(hit)

    def _finish(self, idx: Indices) -> None:
        """End the transitions under way."""
        doing = self._doing[idx]
        for code in np.unique(doing).tolist():
            self._land(MUTATIONS[code], idx[doing == code])
        self._cancel(idx)

    def _land(self, mutation: str, idx: Indices) -> None:
        fate = self._fate[idx]
        when = self._due[idx]
        fine = idx[(fate == Fate.WORKS) | (fate == Fate.LIES)]
        variable, _ = TARGETS[mutation]
        self._now[variable][fine] = self._goal[fine]
        if mutation == "power-off":
            self._stop_os(fine)
        elif mutation == "boot":
            hung = idx[fate == Fate.HANGS]
            self._now["os"][hung] = HUNG
            self._died[hung] = when[fate == Fate.HANGS]
            self._now["minos"][fine] = self._minos[fine]
        elif mutation == "switch-image":
            # Those that broke are back at what they ran before, as new containers.
            self._stop_platform(idx[fate != Fate.NOTHING])
            self._now["personality"][fine] = ACTIVE
        elif mutation in ("start-personality", "stop-personality"):
            self._stop_platform(fine)
            broken = idx[fate == Fate.ERROR]
            self._now["personality"][broken] = WORDS["personality"].index("error") + 1
        elif mutation == "join-workload":
            self._joined[fine] = when[fate == Fate.WORKS]
            self._draining[fine] = _NEVER
        elif mutation == "leave-workload":
            honest = idx[fate == Fate.WORKS]
            self._joined[honest] = _NEVER

    def _stop_os(self, idx: Indices) -> None:
        for name in ("os", "minos", "identity", "image", "personality"):
            self._now[name][idx] = 1
        self._died[idx] = _NEVER
        self._stop_platform(idx)

    def _stop_platform(self, idx: Indices) -> None:
        """What lives in the personality ends with it."""
        self._now["config"][idx] = 1
        self._now["workload"][idx] = OUT
        self._joined[idx] = _NEVER
        self._draining[idx] = _NEVER
        self._job_until[idx] = 0.0

    def _cancel(self, idx: Indices) -> None:
        self._doing[idx] = -1
        self._due[idx] = _NEVER

    def _hazards(self, idx: Indices) -> None:
        """Something breaks, at the time that was drawn for it."""
        when = self._hazard[idx]
        rates = np.array([getattr(self.faults, name) for name in RATES])
        kind = np.searchsorted(
            np.cumsum(rates) / rates.sum(),
            uniform(self.seed, Stream.KIND, idx, self._struck_count[idx]),
            side="right",
        )
        for code in np.unique(kind).tolist():
            mine = kind == code
            self._hit(idx[mine], when[mine], RATES[min(code, len(RATES) - 1)])
        self._struck_count[idx] += 1
        self._aim(idx, when)

    def _aim(self, idx: Indices, since: Floats) -> None:
        """Draw when the next hazard strikes."""
        rate = sum(getattr(self.faults, name) for name in RATES) / 3600
        if rate:
            chance = uniform(self.seed, Stream.HAZARD, idx, self._struck_count[idx])
            self._hazard[idx] = since - np.log1p(-chance) / rate

    def _strike(self, idx: Indices, now: float, kind: str) -> None:
        self._settle(idx, now)
        self._hit(idx, np.full(len(idx), now), kind)

    def _hit(self, idx: Indices, when: Floats, kind: str) -> None:
        on = self._now["power"][idx] == ON
        hit = on if kind == "power_losses" else on & (self._now["os"][idx] == UP)
        idx, when = idx[hit], when[hit]
        self.struck[kind] += len(idx)
        if kind == "power_losses":
            self._cancel(idx)
            self._now["power"][idx] = OFF
            self._stop_os(idx)
            return
        # A dead kernel or agent ends what it was doing, but power is switched from outside.
        inside = self._doing[idx] != MUTATIONS.index("power-off")
        if kind == "panics":
            self._cancel(idx[inside])
            self._stop_os(idx)
            return
        if kind == "agent_deaths":
            inside &= self._doing[idx] != MUTATIONS.index("leave-workload")
        self._cancel(idx[inside])
        self._now["os"][idx] = HUNG
        if kind == "hangs":
            self._died[idx] = when
            self._joined[idx] = _NEVER
            self._job_until[idx] = 0.0

    # -- helpers ---------------------------------------------------------------------------------------------

    def _truth(self, variable: str, idx: Indices, now: float) -> Codes:
        self._settle(idx, now)
        codes = self._now[variable][idx]
        if variable == "workload":
            codes[self._died[idx] + self.timing.notice <= now] = OUT
        return codes

    def _job_end(self, idx: Indices, now: float) -> Floats:
        """When the job that runs on each ends; in the past where none runs."""
        ends = self._job_until[idx]
        timing = self.timing
        if timing.job_share:
            phase = self._phase[idx] * timing.job_length
            slot = np.floor((now + phase) / timing.job_length)
            start = slot * timing.job_length - phase
            drawn = uniform(self.seed, Stream.JOB, idx, slot.astype(np.int64)) < timing.job_share
            runs = drawn & (self._joined[idx] <= start) & (self._draining[idx] > start)
            ends = np.where(runs, np.maximum(ends, start + timing.job_length), ends)
        return ends

    def _code(self, variable: str, value: str) -> int:
        if variable in self._words:
            words = self._words[variable]
            return words.setdefault(value, len(words) + 1)
        if value not in WORDS.get(variable, ()):
            raise BadRequest(f"{value!r} is not a value of it", where=variable)
        return WORDS[variable].index(value) + 1


def _at(generation: Indices | int, positions: npt.NDArray[np.intp]) -> Indices | int:
    return generation if isinstance(generation, int) else generation[positions]
