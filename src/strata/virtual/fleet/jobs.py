"""Jobs on simulated nodes: who takes them, where one runs and until when, and which were lost.

Jobs come in slots, by seed: a node that is in the workload manager when a slot begins, and is not being drained, may
get one.
"""

from __future__ import annotations

import numpy as np

from strata.core.column import Indices
from strata.virtual.fleet.draw import Floats, Stream, uniform
from strata.virtual.fleet.faults import Timing

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
