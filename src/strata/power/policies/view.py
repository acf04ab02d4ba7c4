"""What a policy sees, and what it asks for. Columns: a row per node, or per job.

A policy is a pure function of these, so that it runs the same live and in a simulation. What it asks for is not sent as
it is: caps go through the ledger of ``capping``, which knows what may be sent now.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from strata.power.capping.terms import Column, Rows


class Jobs(NamedTuple):
    """The jobs that run. Averages are watts per node, over the last so many minutes or as long as the job has run."""

    started: Column
    ends: Column
    """When its time limit is over."""
    cap: Column
    """Watts per node."""
    changed: Column
    """When the cap was last changed."""
    upcap: Column
    """The cap that its user asked for; infinite: none."""
    life: Column
    hour: Column
    half_hour: Column
    quarter: Column
    minute: Column


class Waiting(NamedTuple):
    """The jobs that wait, first come first."""

    nodes: Rows
    queue: Rows


class View(NamedTuple):
    """The machine at one moment."""

    use: NDArray[np.int8]
    """``capping.Use``."""
    job: Rows
    """Row in ``jobs``; -1: none."""
    idle_since: Column
    queue: Rows
    """The queue that a node serves, by its number in the document; -1: any."""
    cabinet: Rows
    pdu: Rows
    jobs: Jobs
    waiting: Waiting
    room: float
    """Watts that may be given out."""
    start: float
    """Watts that starting a node takes."""
    launch: float
    """Watts that a job takes on an idle node, above what that counts with already."""
    starting: NDArray[np.bool_]
    """Nodes that draw what starting takes."""


class Actions(NamedTuple):
    """What a policy asks for."""

    caps: Column
    """Watts for each node; NaN: as it is."""
    rank: Column
    """Who is raised first: the lowest."""
    queue: Rows
    on: Rows
    """Nodes to start, in this order."""
    off: Rows
    """Nodes to stop. They are idle."""

    @classmethod
    def none(cls, view: View) -> Actions:
        count, nobody = len(view.use), np.empty(0, np.int64)
        return cls(np.full(count, np.nan), np.zeros(count), view.queue, nobody, nobody)
