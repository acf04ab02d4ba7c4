"""What a simulated machine did: counted while it runs, and added up at the end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from strata.power.simulation.trace import Trace
from strata.power.simulation.world import Ended, World


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated machine did."""

    name: str
    days: float
    jobs: int
    """Finished."""
    jobs_per_day: float
    killed: int
    """Reached their time limit."""
    node_hours: float
    """Work done, as hours of one node without a cap."""
    busy: float
    """Part of all node-hours that jobs had."""
    stretch: float
    """How many times as long as without caps jobs took, over all nodes; what was killed was for nothing."""
    stretch_95: float
    """The same of the one job in twenty that was slowed the most, at least."""
    mean_wait_s: float
    energy_kwh: float
    kwh_per_node_hour: float
    mean_w: float
    peak_w: float
    peak_possible_w: float
    """The most that could have been drawn at any instant, under the caps that were in force."""
    over_limit_s: float
    """How long more was drawn than the site allows."""
    cap_commands: int
    starts: int
    stops: int


class Tally:
    """What is counted while it runs."""

    def __init__(self, trace: Trace) -> None:
        self.commands = self.starts = self.stops = 0
        self.waits: list[float] = []
        self._trace = trace
        self._stretches: list[float] = []
        self._killed = 0
        self._work = 0.0

    def count(self, ended: Iterable[Ended]) -> None:
        for job, rows, whole, ran in ended:
            if whole:
                self._stretches.append(ran / float(self._trace.seconds[job]))
                self._work += float(self._trace.seconds[job]) * len(rows)
            else:
                self._killed += 1

    def outcome(self, name: str, world: World, end: float) -> Outcome:
        """What came of it. Jobs under way count with the work that they have done."""
        table = world.slots
        running = table.job >= 0
        under_way = (self._trace.seconds[table.job[running]] - table.left[running]) * table.nodes[running]
        hours = (self._work + float(under_way.sum())) / 3600.0
        days = end / 86400.0
        return Outcome(
            name=name,
            days=days,
            jobs=len(self._stretches),
            jobs_per_day=len(self._stretches) / days,
            killed=self._killed,
            node_hours=hours,
            busy=world.busy_seconds / (world.machine.count * end),
            stretch=world.busy_seconds / 3600.0 / hours if hours else 1.0,
            stretch_95=float(np.percentile(self._stretches, 95)) if self._stretches else 1.0,
            mean_wait_s=float(np.mean(self.waits)) if self.waits else 0.0,
            energy_kwh=world.energy / 3.6e6,
            kwh_per_node_hour=world.energy / 3.6e6 / hours if hours else 0.0,
            mean_w=world.energy / end,
            peak_w=world.peak,
            peak_possible_w=world.peak_possible,
            over_limit_s=world.over_seconds,
            cap_commands=self.commands,
            starts=self.starts,
            stops=self.stops,
        )
