"""Back-off: how long a node is left alone after trouble, before anything is started on it again.

Every wait has jitter, so that nodes that failed together do not come back together.
"""

from __future__ import annotations

import numpy as np

from strata.core.column import Indices
from strata.engine.progress import Progress
from strata.engine.settings import EngineSettings
from strata.engine.table import NEVER


class BackOff:
    """Sets the time before which nothing is started on a node."""

    def __init__(self, settings: EngineSettings, progress: Progress, random: np.random.Generator) -> None:
        self._settings = settings
        self._progress = progress
        self._random = random

    def failed(self, nodes: Indices, now: float) -> None:
        """A step failed, or the node fell from its goal: twice as long with each time."""
        doubling = np.maximum(self._progress.failures[nodes], self._progress.relapses[nodes]) - 1
        longest = self._settings.longest_backoff
        wait = np.minimum(self._settings.backoff * 2.0 ** np.clip(doubling, 0, 30), longest)
        self._progress.not_before[nodes] = now + wait * self._random.uniform(0.5, 1.0, len(nodes))

    def untried(self, nodes: Indices, now: float) -> None:
        """What the step needs is not there: that nobody failed is no reason to ask often."""
        wait = self._settings.longest_backoff * self._random.uniform(0.5, 1.0, len(nodes))
        self._progress.not_before[nodes] = now + wait

    def faulted(self, nodes: Indices, now: float) -> None:
        """They failed too often: once more after a long while, or never by themselves."""
        retry = self._settings.fault_retry
        when = now + retry * self._random.uniform(0.9, 1.1, len(nodes)) if retry else NEVER
        self._progress.not_before[nodes] = when

    def over(self, nodes: Indices) -> None:
        """Nothing is in the way any more."""
        self._progress.not_before[nodes] = 0
