"""The power layer of one controller, put together: what measures, where that is kept, what may be drawn."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import numpy as np

from strata.api.services import Power
from strata.control.cap_sender import CapSender
from strata.control.led_nodes import led_nodes
from strata.control.metrics import Metrics
from strata.control.power_gauges import PowerGauges
from strata.control.power_policies import PolicyBook
from strata.control.power_queue import QueueBook
from strata.control.power_running import RunningJobs
from strata.control.registry import Registry
from strata.control.service import Service
from strata.control.service_policies import PolicyService
from strata.control.service_power import PowerService
from strata.control.service_power_jobs import PowerJobs
from strata.control.service_power_queue import PowerQueue
from strata.control.settings import Settings
from strata.control.site_power import SitePower
from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation
from strata.daemon.hardware import Reach
from strata.power.collector import ByAddress, Collector, CollectorSettings, Source
from strata.power.collector_agents import AgentReadings
from strata.power.collector_bulk import BulkSource
from strata.power.collector_nodes import NodeSource
from strata.power.columns import Kind, PowerColumns
from strata.power.intervals import Intervals
from strata.power.model import CAPS, DRIVER, ROOM
from strata.power.series import Series
from strata.power.series_columns import ColumnSeries
from strata.virtual.bmc_server import SIMULATED_ACCOUNT
from strata.virtual.fleet_power import FleetPower

PACE = CollectorSettings()
HOLD = 2.2 * PACE.every_many
"""Seconds for which a value is taken to hold: some more than two looks at a node, at the slowest pace."""


class SitePowerDriver:
    """Implements ``strata.core.driver.Driver``, for the guard of switching on only. ``site`` comes later: the engine
    is there first."""

    name = DRIVER

    def __init__(self) -> None:
        self.site: SitePower | None = None

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """It carries out nothing."""
        raise BadRequest("it answers questions only", where=mutation.name)

    async def observe(self, variables: Sequence[str], batch: Batch) -> dict[str, Column]:
        """It sees nothing."""
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Whether there is power to start nodes; a guard that it does not know is a no."""
        if self.site is None:
            return ["the power layer is still starting"] * len(batch)
        if guard == ROOM:
            return await self.site.permits(batch)
        if guard == CAPS:
            return [self.site.kept_by()] * len(batch)
        return [f"no such guard: {guard}"] * len(batch)


class Opened(NamedTuple):
    """The power layer: what the API asks, what keeps and sets caps, and who takes what agents and
    controllers tell by themselves."""

    power: Power
    site: SitePower
    sender: CapSender
    agents: AgentReadings
    controllers: NodeSource


async def open_series(settings: Settings, parts: AsyncExitStack) -> ColumnSeries:
    """Where samples are kept."""
    pace = {"hold": HOLD, "lateness": PACE.every_many + 15}
    if settings.power.telemetry:
        series = ColumnSeries.in_postgres(settings.power.telemetry, settings.controller_id, **pace)
    else:
        series = ColumnSeries.in_file(settings.state_dir / "telemetry.db", **pace)
    await series.start()
    parts.push_async_callback(series.close)
    return series


async def open_power(
    service: Service,
    settings: Settings,
    reach: Reach,
    series: Series,
    columns: PowerColumns,
    metrics: Metrics,
    parts: AsyncExitStack,
) -> Opened:
    """Measuring, answering for it, and keeping to what may be drawn, for as long as ``parts`` is open."""
    intervals = Intervals(settings.state_dir / "job-intervals.db")
    await intervals.start()
    parts.push_async_callback(intervals.stop)

    def describe(uid: int, machine: str) -> None:
        columns.describe(np.array([uid]), Kind(f"{zlib.crc32(machine.encode()):08x}", machine))

    controllers = NodeSource(reach.controllers, describe=describe)
    source: Source = controllers
    if settings.simulated.address:
        bulk = FleetPower(settings.simulated.address, SIMULATED_ACCOUNT)
        source = ByAddress(settings.simulated.address, BulkSource(bulk.read, bulk.close), source)
    agents = AgentReadings(_uid_of(service.registry), source)
    nodes = led_nodes(service.controller)

    def interval() -> float:
        return PACE.interval(len(service.registry))

    measured = PowerService(service, series, interval)
    gauges = PowerGauges(metrics, service.registry, columns, lambda: measured.fresh)
    collector = Collector(nodes, agents, series, columns, settings=PACE, told=gauges.update)
    jobs = PowerJobs(service, series, intervals, interval)
    await jobs.start()
    parts.push_async_callback(jobs.stop)
    if settings.hardware.poll:
        await collector.start()
    parts.push_async_callback(collector.stop)
    book = PolicyBook(service.controller.store, service.ledger)
    await book.start()
    parts.push_async_callback(book.stop)
    sender = CapSender(service, reach.controllers.open, columns)
    queue = QueueBook(service.controller.store)
    site = SitePower(service, columns, sender, RunningJobs(series, intervals), queue, book, settings.power)
    await site.start()
    parts.push_async_callback(site.stop)
    policies, told = PolicyService(service, book, site), PowerQueue(service, queue)
    power = Power(measured=measured, jobs=jobs, policies=policies, queue=told)
    return Opened(power, site, sender, agents, controllers)


def _uid_of(registry: Registry) -> Callable[[str], int]:
    def uid_of(name: str) -> int:
        index = registry.find(name)
        return int(registry.uids[index]) if index >= 0 else -1

    return uid_of
