"""What the power layer offers to callers, over nodes that a registry knows and samples that a test gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from strata.fleet.fleet import Fleet as RunningFleet
from strata.fleet.nodes.view import FleetView
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.service import PowerJobs
from strata.power.policies.records import PolicyRecords
from strata.power.policies.service import PolicyService
from strata.power.queue.service import PowerQueue
from strata.power.series.series import Series
from strata.power.telemetry.columns import PowerColumns
from strata.power.telemetry.service import PowerService
from strata.store.audit import Ledger
from support.registry_support import Fleet


class Clock:
    """Tells the time of a test."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.wall = wall


class Standing:
    """What a service needs of a controller."""

    considered = 0

    def __init__(self, wall: Callable[[], float]) -> None:
        self.clock = Clock(wall)


class PowerBench:
    """The services, without a controller."""

    def __init__(self, fleet: Fleet, series: Series, intervals: Intervals, wall: Callable[[], float]) -> None:
        self.fleet = fleet
        self.series = series
        self.intervals = intervals
        nodes = RunningFleet.__new__(RunningFleet)
        nodes.registry = fleet.registry
        nodes.controller = Standing(wall)  # type: ignore[assignment]
        view = FleetView.__new__(FleetView)
        view._registry = fleet.registry
        view._ranked = (0, np.zeros(0, dtype=np.int64))  # type: ignore[assignment]
        nodes.view = view
        nodes.store, nodes.ledger = fleet.store, Ledger(fleet.store)
        self.power = PowerService(nodes, series, lambda: 10.0)
        self.columns = PowerColumns()
        self.jobs = PowerJobs(nodes, series, intervals, lambda: 10.0, self.columns)
        self.queue = PowerQueue(nodes)
        self.book = PolicyRecords(fleet.store, nodes.ledger)
        self.policies = PolicyService(nodes, self.book, None)  # type: ignore[arg-type]

    def uid(self, name: str) -> int:
        return self.fleet.registry.node(name).uid
