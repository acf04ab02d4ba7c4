"""Why a node is where it is, in plain words; and the one word for its state."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.model import UNKNOWN
from strata.core.state import STATES, State
from strata.engine.decisions import Decision, Kind
from strata.engine.facts import Silence
from strata.engine.planner import Plan
from strata.engine.progress import Phase, Wait
from strata.engine.reconciler import Engine

_WAITS = np.int32(len(Wait))
_POWER, _OFF = "power", "off"
"""The only fact that is part of a state: who lists nodes wants to know at once which of them can do nothing."""


class Blocker(msgspec.Struct, frozen=True):
    """What holds a node up: kind is guard, budget, hold, freeze, back-off, fault, canary, timeout, lease..."""

    kind: str
    name: str
    detail: str


class Explanation(NamedTuple):
    """The answer to ``strata node why``. Times are the engine's."""

    state: State
    summary: str
    lines: list[str]
    blockers: list[Blocker]
    mutation: str
    observe: tuple[str, ...]
    when: float | None


def states(engine: Engine, nodes: Indices) -> npt.NDArray[np.int8]:
    """The state of each node, as a number of ``STATES``."""
    found: npt.NDArray[np.int8] = _state_codes()[_situation(engine, nodes)]
    return found


def state_of(engine: Engine, node: int) -> int:
    """The state of one node: what ``states`` says, without arrays."""
    return int(_state_codes()[_situation(engine, node)])


def _situation(engine: Engine, nodes: Any) -> Any:
    """All that a state follows from, as one number: a place in ``_state_codes``."""
    progress = engine.progress
    place = progress.kind[nodes] * _WAITS + progress.wait[nodes]
    flags = (
        progress.phase[nodes] == Phase.IDLE,
        progress.phase[nodes] == Phase.ACTING,
        progress.decision[nodes] >= 0,
        progress.fault[nodes],
        progress.frozen[nodes],
        progress.held[nodes],
        _off(engine, nodes),
    )
    for flag in flags:
        place = place * 2 + flag
    return place


def _off(engine: Engine, nodes: Any) -> Any:
    """Whether each has no power. In a model that knows of no power, none is off."""
    column = engine.table.columns.get(_POWER)
    if column is None or _OFF not in column.variable.values:
        return False
    return column.fact[nodes] == column.word_code(_OFF)


@functools.cache
def _state_codes() -> npt.NDArray[np.int8]:
    """The state of every situation that there can be."""
    truth = (False, True)
    situations = itertools.product(Kind, Wait, truth, truth, truth, truth, truth, truth, truth)
    return np.array([STATES.index(_state(*situation)) for situation in situations], dtype=np.int8)


def _state(
    kind: Kind, wait: Wait, idle: bool, acting: bool, decided: bool, fault: bool, frozen: bool, held: bool, off: bool
) -> State:
    """The one word: a person's brakes before faults, faults before what the engine waits for.

    A brake counts as soon as no driver is at work: what was done may take minutes to show, and nothing follows it."""
    if held and not acting:
        return "held"
    if frozen and not acting and kind not in (Kind.READY, Kind.UNMANAGED):
        return "frozen"
    if idle and kind not in (Kind.READY, Kind.UNMANAGED) and fault:
        return "faulted"
    if idle and kind is Kind.ACT and wait in (Wait.BACKOFF, Wait.BUDGET, Wait.GUARD, Wait.STOPPED, Wait.CANARY):
        return "waiting"
    if kind is Kind.LOOK or not decided:
        return "unknown"
    if kind is Kind.READY:
        return "off" if off else "ready"
    known: dict[Kind, State] = {Kind.UNMANAGED: "unmanaged", Kind.STUCK: "unreachable"}
    return known.get(kind, "converging")


def explain(engine: Engine, node: int, now: float, name: Callable[[int], str] = str) -> Explanation:
    """Which fact, what is waited for, what holds it, what comes next and when. ``name``: of another node."""
    progress = engine.progress
    state = STATES[state_of(engine, node)]
    reason = progress.reasons.get(node, "")
    phase = Phase(int(progress.phase[node]))
    if progress.decision[node] < 0:
        return Explanation(state, "Nobody has looked at it yet.", [], [], "", (), None)
    decision = engine.decider.decisions[progress.decision[node]]
    lines = [*_differences(engine, node, now), *_silences(engine, node, now, decision.plan)]
    if phase is not Phase.IDLE:
        return _under_way(engine, node, now, state, lines, reason)
    if decision.kind is Kind.UNMANAGED:
        return Explanation(state, "Nothing is desired of it, so nothing is done.", lines, [], "", (), None)
    if decision.kind is Kind.READY:
        blockers = _brakes(engine, node)
        tail = " (nothing would be done if it were not)" if blockers else ""
        off = ", and off" if state == "off" else ""
        return Explanation(state, f"It is at its goal{off}{tail}.", lines, blockers, "", (), None)
    if decision.kind is Kind.LOOK:
        names = decision.plan.observe
        summary = f"{_list(names)} must be seen before anything is done; {_list(decision.observers)} is looking."
        return Explanation(state, summary, lines, [], "", names, now)
    if decision.kind is Kind.STUCK:
        why = _left_out(engine, node, now, decision.plan)
        lines = [line for line in lines if not line.startswith(why)]
        if why != decision.plan.reason:
            lines.append(decision.plan.reason)
        return Explanation(state, f"There is no way to its goal: {why}.", [*lines, *_reason(reason)], [], "", (), None)
    return _waiting(engine, node, now, state, lines, reason, decision, name)


def _under_way(engine: Engine, node: int, now: float, state: State, lines: list[str], reason: str) -> Explanation:
    progress = engine.progress
    mutation = engine.in_flight.mutations[progress.mutation[node]]
    since, left = now - progress.since[node], progress.deadline[node] - now
    match Phase(int(progress.phase[node])):
        case Phase.ASKING:
            summary = f"About to {mutation.name}; {_list(mutation.guards)} is being asked whether it may."
        case Phase.ACTING:
            summary = f"{mutation.name} was sent to the {mutation.driver} driver {since:.0f} s ago; no answer yet."
        case _:
            summary = (
                f"{mutation.name} was accepted {since:.0f} s ago; waiting for {mutation.variable} to be {mutation.to}"
                f" (for {max(0.0, left):.0f} s more)."
            )
    # What is under way is in the summary; what comes next is decided when its effect has been seen.
    return Explanation(state, summary, [*lines, *_reason(reason)], _brakes(engine, node), "", (), None)


def _waiting(
    engine: Engine,
    node: int,
    now: float,
    state: State,
    lines: list[str],
    reason: str,
    decision: Decision,
    name_of: Callable[[int], str],
) -> Explanation:
    progress = engine.progress
    blockers = _brakes(engine, node)
    soon = f"{max(0.0, progress.not_before[node] - now):.0f} s"
    when: float | None = float(progress.not_before[node])
    match Wait(int(progress.wait[node])):
        case Wait.BACKOFF:
            blockers.append(Blocker("back-off", decision.mutation, f"tried again in {soon}"))
        case Wait.FAULT:
            again = (
                f"tried once more in {soon}" if np.isfinite(progress.not_before[node]) else "only a person retries it"
            )
            blockers.append(Blocker("fault", reason, again))
        case Wait.BUDGET:
            name = engine.admission.budgets.names[progress.wait_on[node]]
            blockers.append(Blocker("budget", name, engine.model.budgets[name].doc or "spent by others for now"))
            when = None
        case Wait.GUARD:
            name = engine.admission.guards[progress.refused_by[node]]
            blockers.append(Blocker("guard", name, f"{reason}; asked again in {soon}"))
        case Wait.STOPPED:
            breaker = engine.in_flight.breakers[progress.next[node]]
            when = breaker.probes_at
            detail = f"failed too often over the fleet; probed again in {max(0.0, when - now):.0f} s"
            blockers.append(Blocker("failure-rate stop", decision.mutation, detail))
        case Wait.CANARY:
            canary = int(progress.canary[node])
            blockers.append(Blocker("canary", name_of(canary), _trial(engine, canary)))
            when = None
        case _:
            when = None
    summary = f"Next is {decision.mutation}"
    if blockers:
        summary += "; it waits for " + " and ".join(f"{b.kind} {b.name}".strip() for b in blockers)
    chain = " → ".join(decision.plan.steps)
    lines = [*lines, f"the way: {chain} (cost {decision.plan.cost:g})"]
    if decision.plan.reason:
        lines.append(f"only to a part of its goal: {_left_out(engine, node, now, decision.plan)}")
    lines += _reason(reason)
    return Explanation(state, summary + ".", lines, blockers, decision.mutation, (), when)


def _trial(engine: Engine, canary: int) -> str:
    """What a node waits for that waits for a canary."""
    reason = engine.progress.reasons.get(canary, "")
    if engine.progress.fault[canary]:
        return f"what it wants was tried there first, and failed ({reason}); hold that node to have another one try"
    return "what it wants is tried there first" + (f"; last trouble there: {reason}" if reason else "")


def _brakes(engine: Engine, node: int) -> list[Blocker]:
    blockers = []
    if engine.progress.held[node]:
        blockers.append(Blocker("hold", "", "held by a person; nothing acts on it until a person releases it"))
    if engine.progress.frozen[node]:
        blockers.append(Blocker("freeze", "", "nothing is started until it is thawed"))
    return blockers


def _differences(engine: Engine, node: int, now: float) -> list[str]:
    lines = []
    here = np.array([node])
    for name, column in engine.table.columns.items():
        if column.goal[node] and not column.satisfied(here)[0]:
            wanted = " or ".join(column.goals[column.goal[node]])
            value = column.words[column.fact[node]]
            how = column.sources[column.source[node]] if column.implied[node] else "seen"
            seen = f", {how} {now - column.seen[node]:.0f} s ago" if value != UNKNOWN else ""
            lines.append(f"{name} is {value}{seen}; wanted is {wanted}")
    return lines


def _silences(engine: Engine, node: int, now: float, plan: Plan) -> list[str]:
    """What is not seen though somebody looks: of what is wanted, known by implication, or in the way."""
    silent: dict[Silence, list[str]] = {}
    for name, column in engine.table.columns.items():
        matters = column.goal[node] or column.implied[node] or name in (*plan.observe, *plan.unseen)
        if matters and (column.implied[node] or not column.fact[node]):
            silence = engine.facts.silence(name, node)
            if silence is not None:
                silent.setdefault(silence, []).append(name)
    return [f"{_silent(silence, names, now)}{_implied(engine, node, names)}" for silence, names in silent.items()]


def _silent(silence: Silence, names: Sequence[str], now: float) -> str:
    why = f": {silence.why}" if silence.why else " and does not say why"
    return f"{silence.driver} has not seen {_list(names)} for {now - silence.since:.0f} s{why}"


def _implied(engine: Engine, node: int, names: Sequence[str]) -> str:
    columns = [engine.table.columns[name] for name in names]
    known = [column for column in columns if column.implied[node]]
    said = (f"{c.variable.name} is {c.words[c.fact[node]]}, {c.sources[c.source[node]]}" for c in known)
    return f" ({'; '.join(said)})" if known else ""


def _left_out(engine: Engine, node: int, now: float, plan: Plan) -> str:
    """Why there is no way to the goal or a part of it: who is silent, where that is what it comes to."""
    for name in plan.unseen:
        silence = engine.facts.silence(name, node)
        if silence is not None:
            return _silent(silence, [name], now)
    return plan.reason


def _reason(reason: str) -> list[str]:
    return [f"last trouble: {reason}"] if reason else []


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
