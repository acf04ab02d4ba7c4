"""The energy of jobs, from counters as BMCs have them to what accounting tells: over sockets, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.records import JobEvent, JobsTold
from strata.power.series.series import Series
from strata.power.telemetry.bmcs import AskSettings, NodeSource
from strata.power.telemetry.collector import Collector, Nodes
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.meters import MIXED, kinds_of
from support.power_bench import PowerBench
from support.registry_support import a_fleet, spec

pytestmark = [pytest.mark.slow, pytest.mark.server]

BEGIN = 1_699_999_200.0
SECONDS = 2700
JOBS = ((420, 900), (1000, 2400), (400, 2500))
"""When jobs began and ended, in seconds of the machine."""


class Machine:
    """Six nodes, one with each kind of counter, which work for five minutes and rest for five by chance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes = SimNodes(
            6, seed=5, timing=Timing(scale=0, job_share=0.6, job_length=300.0), meters=kinds_of(MIXED)
        )
        self.nodes.put(self.nodes.all, now=0.0, power="on", os="up", workload="in")
        self.server = BmcServer(self.nodes, clock=lambda: self.now)
        self.truth: dict[int, list[float]] = {}
        """What each node had used, by the second."""

    def wall(self) -> float:
        return BEGIN + self.now

    def live(self, until: float) -> None:
        """Let time pass."""
        while self.now < until:
            self.now += 1.0
            self.truth[int(self.now)] = self.nodes.joules(self.nodes.all, self.now).tolist()

    def used(self, node: int, start: int, end: int) -> float:
        return self.truth[end][node] - self.truth[start][node]


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    found = Machine()
    await found.server.start()
    yield found
    await found.server.stop()


async def watch(machine: Machine, bench: PowerBench) -> None:
    """Sample, every ten seconds, as the collector does it."""
    client = RedfishClient(
        Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password),
        settings=RedfishSettings(timeout=2.0, quick=2.0),
        clock=machine.wall,
    )
    bmcs = Bmcs(client)
    names = machine.nodes.names
    nodes = Nodes(
        uids=np.array([bench.uid(name) for name in names]),
        names=names,
        bmcs=[machine.server.url(name) for name in names],
    )
    source = NodeSource(bmcs, settings=AskSettings(slow_every=1000), clock=machine.wall)
    collector = Collector(lambda: nodes, source, bench.series, bench.columns)
    try:
        for sweep in range(SECONDS // 10):
            machine.live(10.0 * sweep + 1)
            await collector.sweep(30.0)
        machine.live(SECONDS + 60)
    finally:
        await source.close()
        await bmcs.close()


async def test_the_energy_of_jobs_is_true_within_its_error_whatever_the_counters_of_their_bmcs_are(
    machine: Machine, tmp_path: Path
) -> None:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec(name) for name in machine.nodes.names], "t")
        await fleet.settled()
        series = Series.in_file(tmp_path / "telemetry.db", clock=machine.wall, hold=66.0)
        await series.start()
        intervals = Intervals(tmp_path / "jobs.db")
        await intervals.start()
        bench = PowerBench(fleet, series, intervals, machine.wall)
        try:
            await watch(machine, bench)
            wrong = []
            for place, name in enumerate(machine.nodes.names):
                for start, end in JOBS:
                    job = f"{name}-{start}"
                    events = [
                        JobEvent(what="start", job=job, time=BEGIN + start, nodes=name),
                        JobEvent(what="end", job=job, time=BEGIN + end),
                    ]
                    await bench.jobs.tell(LOCAL_ADMIN, JobsTold(events=events))
                    told = await bench.jobs.job(LOCAL_ADMIN, job, "")
                    truth = machine.used(place, start, end)
                    if machine.nodes.meters.kinds[place] == "silent" and told.known < 0.99:
                        continue
                    assert told.joules is not None
                    assert told.error <= 0.05 * truth, (job, machine.nodes.meters.kinds[place])
                    if abs(told.joules - truth) > told.error:
                        wrong.append((machine.nodes.meters.kinds[place], start, truth, told.joules, told.error))
            assert len(wrong) <= 1, wrong
        finally:
            await intervals.stop()
            await series.close()
