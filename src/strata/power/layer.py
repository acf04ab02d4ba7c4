"""Opens the power layer on a fleet: what measures, where that is kept, what may be drawn, and CAPMC."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation
from strata.fleet.fleet import Fleet
from strata.fleet.settings import FleetSettings
from strata.hardware.events.hub import EventHub
from strata.hardware.events.site import Site
from strata.hardware.layer import Reach
from strata.hardware.model import CAPS_FREE, POWER_ROOM
from strata.hardware.settings import HardwareSettings
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.service import PowerJobs
from strata.power.capmc.boots import boots_of
from strata.power.capmc.rules import read_rules
from strata.power.capmc.service import CapmcService
from strata.power.capping.sender import CapSender
from strata.power.limits.agents import AgentNodes
from strata.power.limits.inband import Inband, VirtualNodes
from strata.power.model import DRIVER
from strata.power.policies.records import PolicyRecords
from strata.power.policies.service import PolicyService
from strata.power.queue.service import PowerQueue
from strata.power.series.series import Series
from strata.power.settings import PowerSettings
from strata.power.site.running import RunningJobs
from strata.power.site.site import SitePower
from strata.power.telemetry.agents import AgentReadings
from strata.power.telemetry.bmcs import NodeSource
from strata.power.telemetry.collector import BulkSource, ByAddress, Collector, CollectorSettings, Source, led_nodes
from strata.power.telemetry.columns import Kind, PowerColumns
from strata.power.telemetry.gauges import PowerGauges
from strata.power.telemetry.service import PowerService

PACE = CollectorSettings()
HOLD = 2.2 * PACE.every_many
"""Seconds for which a value is taken to hold: some more than two looks at a node, at the slowest pace."""


class SitePowerDriver:
    """Implements ``strata.core.driver.Driver``, for the guards of switching on only."""

    name = DRIVER

    def __init__(self, site: SitePower) -> None:
        self._site = site
        self.ready = False
        """Whether the site's limits are known by now."""

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        raise BadRequest("its driver changes nothing: it only answers guards", where=mutation.name)

    async def observe(self, variables: Sequence[str], batch: Batch) -> dict[str, Column]:
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Whether there is power to start nodes; a guard that it does not know is a no."""
        if not self.ready:
            return ["the power layer is still starting"] * len(batch)
        if guard == POWER_ROOM:
            return await self._site.permits(batch)
        if guard == CAPS_FREE:
            return [self._site.kept_by()] * len(batch)
        return [f"no such guard: {guard}"] * len(batch)


async def open_power(fleet: Fleet) -> None:
    """All rooms of the power layer: measuring, answering for it, and keeping to what may be drawn."""
    settings, registry, columns = fleet.section(PowerSettings), fleet.registry, PowerColumns()
    bmcs = fleet.of(Reach).bmcs
    series = series_of(fleet.settings)
    await series.start()
    fleet.parts.push_async_callback(series.close)
    intervals = await fleet.keep(Intervals(fleet.settings.state_dir / "job-intervals.db"))

    def describe(uid: int, machine: str) -> None:
        columns.describe(np.array([uid]), Kind(f"{zlib.crc32(machine.encode()):08x}", machine))

    by_bmc = NodeSource(bmcs, describe=describe)
    source: Source = by_bmc
    if (bulk := fleet.services.find(BulkSource)) is not None:
        source = ByAddress(bulk.prefix, bulk, source)

    def uid_of(name: str) -> int:
        index = registry.find(name)
        return int(registry.uids[index]) if index >= 0 else -1

    def reported(site: Site, report: Mapping[str, object]) -> None:
        by_bmc.reported([address for address, _ in site.nodes], report)

    agents = AgentReadings(uid_of, source)
    fleet.measured.append(agents.take)
    fleet.of(EventHub).reported = reported

    def interval() -> float:
        return PACE.interval(len(registry))

    measured = fleet.put(PowerService(fleet, series, interval))
    gauges = PowerGauges(fleet.controller.metrics, registry, columns, lambda: measured.fresh)
    collector = Collector(led_nodes(fleet.controller), agents, series, columns, settings=PACE, told=gauges.update)
    jobs = fleet.put(PowerJobs(fleet, series, intervals, interval, columns))
    book = fleet.put(await fleet.keep(PolicyRecords(fleet.store, fleet.ledger)))
    sender = CapSender(fleet, bmcs.open, columns)
    queue = fleet.put(PowerQueue(fleet))
    site = fleet.put(SitePower(fleet, columns, sender, RunningJobs(series, intervals), queue, book, settings))
    driver = SitePowerDriver(site)
    fleet.drive(driver)
    fleet.put(PolicyService(fleet, book, site))
    inband: Inband | None = fleet.services.find(VirtualNodes)
    if inband is None and fleet.set_node_limits is not None:
        inband = AgentNodes(fleet.set_node_limits)
    capmc = fleet.put(
        CapmcService(
            fleet,
            columns,
            sender,
            site=site,
            series=series,
            jobs=jobs,
            rules=read_rules(settings.rules) if settings.rules else None,
            inband=inband,
        )
    )
    fleet.put(capmc.caps)
    fleet.forgets.append(lambda _: series.prune(time.time()))  # it has retentions of its own, by how coarse it is

    fleet.reloads.append(lambda: site.keep_to(fleet.section(PowerSettings)))

    async def begin() -> None:
        await fleet.keep(jobs)
        if fleet.section(HardwareSettings).poll:
            await collector.start()
        fleet.parts.push_async_callback(collector.stop)
        await fleet.keep(site)
        driver.ready = True
        await fleet.keep(boots_of(capmc))

    fleet.begin(begin)


def series_of(settings: FleetSettings) -> Series:
    pace = {"hold": HOLD, "lateness": PACE.every_many + 15}
    if address := settings.section(PowerSettings).telemetry:
        return Series.in_postgres(address, settings.controller_id, **pace)
    return Series.in_file(settings.state_dir / "telemetry.db", **pace)
