"""What Strata asks of a workload manager, whichever it is: look at all nodes at once, drain some, resume some.

Names of nodes are the workload manager's own here, ids of jobs are opaque texts, and a state that is not known to the
adapter is unknown: never idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

UNSEEN_JOB = "?"
"""Stands for a job that the state of a node tells of, and the list of jobs does not."""


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One node as its workload manager sees it."""

    state: str
    """In the workload manager's own words."""
    understood: bool
    """Whether the adapter knows what its state means. If not, nobody knows whether a job is there."""
    drained: bool
    """No job is started there until somebody resumes it."""
    down: bool = False
    """No job is started there until the node itself reports for duty."""
    boots_first: bool = False
    """No job begins there before the node has been started anew: the workload manager has it switched off, or
    rebooted."""
    reason: str = ""
    """Why it is drained, as whoever did it wrote."""
    ours: bool = False
    """Whether it is drained by us. A person who drains it too, or changes the reason, has taken the drain over."""
    by: str = ""
    """Who wrote that; empty: the workload manager does not keep it."""
    jobs: tuple[str, ...] = ()
    """The jobs that hold it, however: running, suspended, starting, ending."""


class Scheduler(Protocol):
    """One cluster of one workload manager, asked by one Strata, whose drains bear its mark. All of it raises
    ``Unavailable`` where a command could not be run or did not end, and ``DeviceError`` where it failed or says what
    nobody understands."""

    async def look(self) -> Mapping[str, NodeSeen]:
        """All nodes by name, and every node on which a job is.

        States are read before jobs: of a node that is drained and has no job here, no job can have begun in between."""
        ...

    async def drain(self, names: Sequence[str], reason: str) -> None:
        """Start no more jobs there; those that run go on. All are known to the workload manager, and not drained."""
        ...

    async def resume(self, names: Sequence[str]) -> None:
        """Start jobs there again. All are drained by us."""
        ...
