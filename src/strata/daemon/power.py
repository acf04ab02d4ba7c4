"""The power layer of one controller, put together: what measures, where that is kept, who answers for it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from strata.api.services import Power
from strata.control.metrics import Metrics
from strata.control.power_gauges import PowerGauges
from strata.control.service import Service
from strata.control.service_power import PowerService, led_nodes
from strata.control.service_power_jobs import PowerJobs
from strata.control.settings import Settings
from strata.daemon.hardware import Reach
from strata.power.collector import ByAddress, Collector, CollectorSettings, Source
from strata.power.collector_bulk import BulkSource
from strata.power.collector_nodes import NodeSource
from strata.power.columns import PowerColumns
from strata.power.intervals import Intervals
from strata.power.series import Series
from strata.power.series_columns import ColumnSeries
from strata.virtual.bmc_server import SIMULATED_ACCOUNT
from strata.virtual.fleet_power import FleetPower

PACE = CollectorSettings()
HOLD = 2.2 * PACE.every_many
"""Seconds for which a value is taken to hold: some more than two looks at a node, at the slowest pace."""


async def open_series(settings: Settings, parts: AsyncExitStack) -> ColumnSeries:
    """Where samples are kept."""
    series = ColumnSeries.in_file(settings.state_dir / "telemetry.db", hold=HOLD, lateness=PACE.every_many + 15)
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
) -> Power:
    """Measuring, and answering for it, for as long as ``parts`` is open."""
    intervals = Intervals(settings.state_dir / "job-intervals.db")
    await intervals.start()
    parts.push_async_callback(intervals.stop)
    source: Source = NodeSource(reach.controllers)
    if settings.simulated.address:
        bulk = FleetPower(settings.simulated.address, SIMULATED_ACCOUNT)
        source = ByAddress(settings.simulated.address, BulkSource(bulk.read, bulk.close), source)
    nodes = led_nodes(service.controller)

    def interval() -> float:
        return PACE.interval(len(service.registry))

    measured = PowerService(service, series, interval)
    gauges = PowerGauges(metrics, service.registry, columns, lambda: measured.fresh)
    collector = Collector(nodes, source, series, columns, settings=PACE, told=gauges.update)
    jobs = PowerJobs(service, series, intervals, interval)
    await jobs.start()
    parts.push_async_callback(jobs.stop)
    if settings.hardware.poll:
        await collector.start()
    parts.push_async_callback(collector.stop)
    return Power(measured=measured, jobs=jobs)
