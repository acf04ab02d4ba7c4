"""Where every node stands in its next mutation, as columns: the phase, what it waits for, how often it failed."""

from __future__ import annotations

import enum

import numpy as np

from strata.core.column import Indices, span
from strata.engine.table import NEVER


class Phase(enum.IntEnum):
    """Where a node is in the course of one mutation."""

    IDLE = 0
    ASKING = 1
    """Guards are being asked."""
    ACTING = 2
    """A driver is at it."""
    SETTLING = 3
    """The driver is done, or never answered; the fact has yet to show it."""


class Wait(enum.IntEnum):
    """Why an idle node that is not at its goal does not start."""

    NOTHING = 0
    LOOKING = 1
    BACKOFF = 2
    BUDGET = 3
    GUARD = 4
    STOPPED = 5
    FROZEN = 6
    HELD = 7
    FAULT = 8
    STUCK = 9
    CANARY = 10
    """What it wants is being tried on another node."""


class Urgency(enum.IntEnum):
    """A change goes before a resync."""

    WISH = 0
    """Its owners want something new."""
    NEWS = 1
    """Something happened to it."""
    ROUTINE = 2


_FIELDS: dict[str, tuple[str, float]] = {
    "alive": ("bool", 0),
    "shard": ("int32", 0),
    "epoch": ("int64", 0),  # 0: another controller leads
    "held": ("bool", 0),
    "frozen": ("bool", 0),
    "dirty": ("bool", 0),
    "urgency": ("int8", Urgency.ROUTINE),
    "due": ("float64", 0),  # decide again then, changed or not
    "not_before": ("float64", 0),  # start nothing before
    "waiting_since": ("float64", 0),
    "kind": ("int8", 0),  # decisions.Kind
    "decision": ("int32", -1),
    "next": ("int32", -1),  # the mutation to start, by number
    "phase": ("int8", Phase.IDLE),
    "mutation": ("int32", -1),
    "generation": ("int64", 0),
    "since": ("float64", 0),
    "deadline": ("float64", NEVER),
    "repeat_at": ("float64", NEVER),  # an idempotent step is sent again then
    "hopeless_since": ("float64", NEVER),  # when it was first seen that its effect cannot come
    "acted_at": ("float64", -NEVER),  # looks begun before this saw an older world
    "start_fact": ("int32", 0),
    "poll": ("float64", 0),
    "wait": ("int8", Wait.NOTHING),
    "wait_on": ("int16", -1),  # which budget
    "refused_by": ("int16", -1),  # the guard that last said no
    "canary": ("int64", -1),  # the node that is waited for
    "meant_since": ("float64", -NEVER),  # since when its goals' names stand for what they do
    "failures": ("int32", 0),
    "failed": ("int32", -1),  # the mutation that failed last, by number
    "untried": ("int32", -1),  # the mutation that it waits with because its driver did not try it, by number
    "relapses": ("int32", 0),
    "walked": ("int32", 0),  # steps that succeeded since the node was last at its goal, or that was another
    "landmark": ("int32", -1),  # the decision behind one of them
    "was_ready": ("bool", 0),
    "ready_since": ("float64", NEVER),
    "fault": ("bool", 0),
    "unsettled": ("bool", 0),  # taken over, and not seen yet: it may hold a place in a budget
}


class Progress:
    """The columns; each field is an array over the fleet. ``reasons`` holds words for the few that need them."""

    alive: np.ndarray[tuple[int], np.dtype[np.bool_]]
    shard: np.ndarray[tuple[int], np.dtype[np.int32]]
    epoch: np.ndarray[tuple[int], np.dtype[np.int64]]
    held: np.ndarray[tuple[int], np.dtype[np.bool_]]
    frozen: np.ndarray[tuple[int], np.dtype[np.bool_]]
    dirty: np.ndarray[tuple[int], np.dtype[np.bool_]]
    urgency: np.ndarray[tuple[int], np.dtype[np.int8]]
    due: np.ndarray[tuple[int], np.dtype[np.float64]]
    not_before: np.ndarray[tuple[int], np.dtype[np.float64]]
    waiting_since: np.ndarray[tuple[int], np.dtype[np.float64]]
    kind: np.ndarray[tuple[int], np.dtype[np.int8]]
    decision: np.ndarray[tuple[int], np.dtype[np.int32]]
    next: np.ndarray[tuple[int], np.dtype[np.int32]]
    phase: np.ndarray[tuple[int], np.dtype[np.int8]]
    mutation: np.ndarray[tuple[int], np.dtype[np.int32]]
    generation: np.ndarray[tuple[int], np.dtype[np.int64]]
    since: np.ndarray[tuple[int], np.dtype[np.float64]]
    deadline: np.ndarray[tuple[int], np.dtype[np.float64]]
    repeat_at: np.ndarray[tuple[int], np.dtype[np.float64]]
    hopeless_since: np.ndarray[tuple[int], np.dtype[np.float64]]
    acted_at: np.ndarray[tuple[int], np.dtype[np.float64]]
    start_fact: np.ndarray[tuple[int], np.dtype[np.int32]]
    poll: np.ndarray[tuple[int], np.dtype[np.float64]]
    wait: np.ndarray[tuple[int], np.dtype[np.int8]]
    wait_on: np.ndarray[tuple[int], np.dtype[np.int16]]
    refused_by: np.ndarray[tuple[int], np.dtype[np.int16]]
    canary: np.ndarray[tuple[int], np.dtype[np.int64]]
    meant_since: np.ndarray[tuple[int], np.dtype[np.float64]]
    failures: np.ndarray[tuple[int], np.dtype[np.int32]]
    failed: np.ndarray[tuple[int], np.dtype[np.int32]]
    untried: np.ndarray[tuple[int], np.dtype[np.int32]]
    relapses: np.ndarray[tuple[int], np.dtype[np.int32]]
    walked: np.ndarray[tuple[int], np.dtype[np.int32]]
    landmark: np.ndarray[tuple[int], np.dtype[np.int32]]
    was_ready: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ready_since: np.ndarray[tuple[int], np.dtype[np.float64]]
    fault: np.ndarray[tuple[int], np.dtype[np.bool_]]
    unsettled: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def __init__(self) -> None:
        self.size = 0
        self.reasons: dict[int, str] = {}
        """Why the last step of a node failed, why a guard said no, what the fault is."""
        for name, (kind, _) in _FIELDS.items():
            setattr(self, name, np.zeros(0, dtype=kind))

    def grow(self, size: int) -> None:
        """Make room for ``size`` nodes."""
        for name, (kind, fill) in _FIELDS.items():
            new = np.full(size, fill, dtype=kind)
            new[: self.size] = getattr(self, name)
            setattr(self, name, new)
        self.size = size

    def reset(self, nodes: Indices) -> None:
        """As if the nodes were new."""
        for name, (_, fill) in _FIELDS.items():
            getattr(self, name)[nodes] = fill
        for node in nodes.tolist():
            self.reasons.pop(node, None)

    def touch(self, nodes: Indices, urgency: Urgency) -> None:
        """Something about the nodes changed: decide anew."""
        here = span(nodes)
        self.dirty[here] = True
        self.urgency[here] = np.minimum(self.urgency[here], urgency)
