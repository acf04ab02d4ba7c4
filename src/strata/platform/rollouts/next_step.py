"""What a rollout does next: a function of what is kept of it and of how its nodes are. Pure: no clock, no store.

Nothing is remembered between two questions, so it does not matter who asks, or what became of who asked before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from strata.core.intset import contains, pack, union
from strata.core.units import many, show_seconds
from strata.fleet.columns import Mask
from strata.platform.rollouts.records import Rollout, amount


class Sight(NamedTuple):
    """How the nodes are that have had their turn, aligned with their uids."""

    uids: np.ndarray[tuple[int], np.dtype[np.int64]]
    wanted: Mask
    """The change is set on it, by us or just so."""
    left: Mask
    """Somebody wanted something else of it since."""
    ready: Mask
    """At its goal, whatever that is, with the facts that are required."""
    failed: Mask
    """It cannot get there by itself: faulted, or there is no way."""
    begun: Mask
    """Something has been done to it for the change, or is being done."""
    held: Mask
    """A person has taken it out of automation."""
    stuck: Mask
    """It cannot begin: nodes that have failed have used up a limit that it is in, or one of them is its canary."""


class Set(NamedTuple):
    """Set the change on these nodes, as far as ``when`` lets."""

    nodes: Mask


class Restore(NamedTuple):
    """Want of these nodes what was wanted before."""

    nodes: Mask


class Check(NamedTuple):
    """Run one of the site's checks."""

    name: str


class Finish(NamedTuple):
    """All have it: put it where it is to be said from now on."""

    late: Mask
    """Nodes that were passed over, and get it now."""


class Become(NamedTuple):
    """Keep this of it from now on."""

    text: str
    fields: dict[str, Any]


class Wait(NamedTuple):
    """Nothing is to be done now."""

    for_: str


Next = Set | Restore | Check | Finish | Become | Wait


def excused(rollout: Rollout, sight: Sight) -> Mask:
    """Whom nobody waits for."""
    spared = union(rollout.excused, rollout.forgiven)
    found: Mask = sight.held | contains(spared, sight.uids)
    return found


def following(rollout: Rollout, sight: Sight, now: float) -> Next:
    """The next thing to do. ``now``: wall clock."""
    match rollout.state:
        case "running":
            return _forward(rollout, sight, now)
        case "paused" | "stopped" | "aborting":
            untouched = sight.wanted & ~sight.begun
            if untouched.any():
                return Restore(untouched)
            if rollout.state == "aborting":
                return Become("ended; nodes that have the change keep it", {"state": "aborted"})
            return Wait("a person: resume or abort it")
        case "rolling-back":
            return _back(rollout, sight)
        case "finishing":
            if sight.wanted.any():
                return Restore(sight.wanted)
            return Become(f"done; the document {rollout.spec.document} says it now", {"state": "done"})
        case _:
            return Wait("nothing: it has ended")


def stop(rollout: Rollout, why: str) -> Become:
    """What follows from failure."""
    if rollout.spec.on_failure == "rollback":
        return Become(f"{why}; going back", {"state": "rolling-back", "reason": why})
    return Become(f"{why}; stopped", {"state": "stopped", "reason": why})


def _forward(rollout: Rollout, sight: Sight, now: float) -> Next:
    spare = excused(rollout, sight)
    counted = ~spare & ~sight.left
    failures = int((sight.failed & sight.wanted & counted).sum())
    turns = int(counted.sum())
    allowed = amount(rollout.spec.max_failures, turns)
    if failures > allowed:
        may = f"{rollout.spec.max_failures} may"
        return stop(rollout, f"{failures} of {turns} nodes failed by wave {rollout.wave + 1}, {may}")
    due = counted & ~sight.wanted
    if due.any():
        return Set(due)
    late = counted & ~(sight.ready | sight.failed)
    last = rollout.wave + 1 == len(rollout.waves)
    through = last or rollout.stages[rollout.wave + 1] != rollout.stages[rollout.wave]
    # A few nodes whose jobs go on for days do not keep the others of their stage waiting: no more than may fail.
    if late.any() and (through or int(late.sum()) + failures > allowed):
        if sight.stuck[late].all():
            those = many(int(late.sum()), "node")
            why = f"{those} cannot begin: those that failed have used up their limit, or were the canary"
            return Become(f"{why}; stopped", {"state": "stopped", "reason": why})
        if rollout.soaking is not None:
            fallen = f"{many(int(late.sum()), 'node')} of wave {rollout.wave + 1} not ready any more"
            return Become(fallen, {"soaking": None, "checked": ()})
        return Wait(f"{many(int(late.sum()), 'node')} of wave {rollout.wave + 1} to be ready")
    if rollout.soaking is None:
        return Become(f"wave {rollout.wave + 1} is ready", {"soaking": now})
    if now < rollout.soaking + rollout.spec.soak:
        return Wait(f"wave {rollout.wave + 1} to stay ready for {show_seconds(rollout.spec.soak)}")
    for name in rollout.spec.checks:
        if name not in rollout.checked:
            return Check(name)
    if not last:
        return Become(f"wave {rollout.wave + 2} begins", {"wave": rollout.wave + 1, "soaking": None, "checked": ()})
    return Finish(spare & ~sight.wanted & ~sight.left & ~contains(rollout.forgiven, sight.uids))


def _back(rollout: Rollout, sight: Sight) -> Next:
    if sight.wanted.any():
        return Restore(sight.wanted)
    late = ~(sight.ready | sight.failed | sight.left | excused(rollout, sight))
    if late.any():
        return Wait(f"{many(int(late.sum()), 'node')} to be as before")
    return Become("all nodes have their earlier desires again", {"state": "rolled-back"})


def forgiven(rollout: Rollout, sight: Sight) -> Rollout:
    """With all that failed so far not counted any more."""
    return msgspec.structs.replace(rollout, forgiven=union(rollout.forgiven, pack(sight.uids[unforgiven(sight)])))


def unforgiven(sight: Sight) -> Mask:
    """Who has failed, and wants the change still."""
    found: Mask = sight.failed & sight.wanted
    return found
