"""Energy through CAPMC, of steps that Slurm's accounting names and of times that are known in part."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.records import JobAccount, JobsTold
from strata.power.accounting.sacct import read
from strata.power.accounting.service import PowerJobs
from strata.power.capmc.request import moment, stamped
from strata.power.series.records import Samples
from strata.power.series.series import Series
from support.capmc_site import CapmcSite, capmc_site

pytestmark = pytest.mark.slow

SLOW = 600.0
"""Seconds that this machine may take for a command."""
SACCT = """JobIDRaw|User|JobName|NodeList|Start|End|Suspended|State
4711|ada|cfd|{nodes}|{start}|{end}|00:00:00|COMPLETED
4711.batch||batch|{nodes}|{start}|{end}|00:00:00|COMPLETED
4711.0||solve|{nodes}|{start}|{end}|00:00:00|COMPLETED
"""


class Measured:
    """A site whose nodes were measured, and whose jobs are told of."""

    def __init__(self, site: CapmcSite, series: Series, jobs: PowerJobs) -> None:
        self.site = site
        self.series = series
        self.jobs = jobs
        self.now = float(int(time.time()))
        table = site.view.nodes()
        self.nids, self.uids = table.nids[table.compute], table.uids[table.compute]

    async def measure(self, start: float, end: float, count: int, watts: float = 100.0) -> None:
        """The first ``count`` compute nodes draw so much from then to then, seen every ten seconds."""
        uids = np.sort(self.uids[:count])
        batch = []
        for at in np.arange(start, end + 1, 10.0).tolist():
            batch.append(Samples(metric="power", time=at, uids=uids, values=np.full(count, watts)))
            counter = np.full(count, 1000.0 + watts * (at - start))
            batch.append(Samples(metric="energy", time=at, uids=uids, values=counter))
        await self.series.append(batch)

    async def account(self, start: float, end: float, count: int) -> None:
        names = ",".join(f"n{nid:05d}" for nid in self.nids[:count].tolist())
        runs = read(SACCT.format(nodes=names, start=int(start), end=int(end)))
        taken = await self.jobs.tell(LOCAL_ADMIN, JobsTold(runs=tuple(JobAccount(**run) for run in runs)))
        assert (taken.taken, taken.unknown_nodes) == (2, 0)

    def listed(self, count: int) -> str:
        return ",".join(map(str, self.nids[:count].tolist()))


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[Measured]:
    async with capmc_site(tmp_path, 6) as site, contextlib.AsyncExitStack() as parts:
        series = Series.in_file(tmp_path / "telemetry.db", lateness=1e6)
        await series.start()
        parts.push_async_callback(series.close)
        intervals = Intervals(tmp_path / "intervals.db")
        await intervals.start()
        parts.push_async_callback(intervals.stop)
        jobs = PowerJobs(site.service, series, intervals, lambda: 10.0)
        site.capmc.series, site.capmc.jobs = series, jobs
        yield Measured(site, series, jobs)


def stamp(unix: float) -> str:
    return dt.datetime.fromtimestamp(unix).strftime("%Y-%m-%d %H:%M:%S")


async def test_a_step_from_slurms_accounting_can_be_asked_for(measured: Measured) -> None:
    start, end = measured.now - 400, measured.now - 100
    await measured.measure(start - 50, end + 50, 2)
    await measured.account(start, end, 2)
    used = [{"nid": nid, "energy": 30_000} for nid in measured.nids[:2].tolist()]
    found = await measured.site.ask("get_node_energy", "--apid", "4711.0")
    assert found == {"e": 0, "err_msg": "", "nid_count": 2, "time": 300.0, "nodes": used}
    body = json.dumps({"apid": "4711.0", "job_id": "4711"}).encode()
    assert await measured.site.ask("json", "-r", "/capmc/get_node_energy", stdin=body) == found
    assert (await measured.site.ask("get_node_energy_stats", "-a", "4711.0"))["energy_total"] == 60_000
    measured.site.columns.put(measured.uids, energy=7.0, energy_time=time.time() + SLOW)
    counters = await measured.site.ask("get_node_energy_counter", "-a", "4711.0")
    assert [one["nid"] for one in counters["nodes"]] == measured.nids[:2].tolist()
    for unknown in ("4711.1", "4711", "no such"):
        assert await measured.site.ask("get_node_energy", "-a", unknown) == {"e": 400, "err_msg": "BAD_APID"}


async def test_a_counter_that_nobody_read_of_late_is_not_the_latest(measured: Measured) -> None:
    old, new = measured.uids[:1], measured.uids[1:2]
    measured.site.columns.forget(np.concatenate([old, new]))
    measured.site.columns.put(old, energy=5.0, energy_time=time.time() - 31)
    measured.site.columns.put(new, energy=6.0, energy_time=time.time() + SLOW)
    found = await measured.site.ask("get_node_energy_counter", "-n", measured.listed(2))
    assert (found["nid_count"], found["nodes"][0]["nid"]) == (1, int(measured.nids[1]))


async def test_a_counter_says_how_long_ago_its_node_was_read(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured.site.service.controller.clock, "wall", lambda: measured.now)
    uids = measured.uids[:4]
    measured.site.columns.forget(uids)
    read = measured.now - np.array([9.0, 0.0, 2.5, 9.0])
    measured.site.columns.put(uids, power=10.0, power_time=read, energy=100.0, energy_time=read)
    found = await measured.site.ask("get_node_energy_counter", "-n", measured.listed(4))
    told = [(one["nid"], one["energy_ctr"], one.get("extrapolated")) for one in found["nodes"]]
    nids = measured.nids[:4].tolist()
    assert told == list(zip(nids, [190, 100, 125, 190], [9.0, None, 2.5, 9.0], strict=True))


async def test_a_node_that_is_nobodys_does_not_hide_the_others(measured: Measured) -> None:
    await measured.measure(measured.now - 300, measured.now, 2)
    now = time.time()
    measured.site.columns.put(measured.uids[:2], energy=9.0, energy_time=now + SLOW)
    undefined = {"nid": 998, "e": 22, "err_msg": "Undefined NID"}
    listed = f"{measured.listed(2)},998"
    for applet, more in (
        ("get_node_energy_counter", ()),
        ("get_node_energy", ("-s", stamp(measured.now - 200))),
    ):
        found = await measured.site.ask(applet, "--nids", listed, *more)
        assert (found["e"], found["err_msg"], found["nids"]) == (52, "Invalid exchange", [undefined])
        assert [one["nid"] for one in found["nodes"]] == measured.nids[:2].tolist()
        assert found["nid_count"] == 2
        nobody = await measured.site.ask(applet, "--nids", "998", *more)
        assert (nobody["e"], nobody["nids"]) == (22, [undefined])
    stats = await measured.site.ask("get_node_energy_stats", "--nids", listed, "-s", stamp(measured.now - 200))
    assert (stats["nid_count"], stats["nids"]) == (2, [undefined])
    caps = await measured.site.ask("get_power_cap", "-n", listed)
    assert (caps["e"], caps["nids"][-1]) == (52, undefined)
    assert [one["nid"] for one in caps["nids"] if "controls" in one] == measured.nids[:2].tolist()
    groups = await measured.site.ask("get_power_cap_capabilities", "-n", listed)
    assert (groups["e"], groups["nids"]) == (52, [undefined])
    assert [nid for group in groups["groups"] for nid in group["nids"]] == measured.nids[:2].tolist()


async def test_the_time_of_an_answer_is_that_of_its_measurements(measured: Measured) -> None:
    await measured.measure(measured.now - 300, measured.now, 2)
    asked = ("--nids", measured.listed(2), "-s", stamp(measured.now - 5 * 3600))
    for end in ((), ("-e", stamp(measured.now + 3600))):
        found = await measured.site.ask("get_node_energy_stats", *asked, *end)
        assert (found["e"], found["time"], found["nid_count"], found["energy_total"]) == (0, 300.0, 2, 60_000)
    ahead = await measured.site.ask("get_node_energy", "--nids", "1", "-s", stamp(measured.now + 3600))
    assert (ahead["e"], ahead["err_msg"].split(",")[0]) == (400, "Error: No data in time window")


async def test_nodes_that_were_asked_for_and_not_measured_are_named(measured: Measured) -> None:
    start, end = measured.now - 400, measured.now - 100
    await measured.measure(start, end, 2)
    await measured.measure(end + 10, end + 40, 3)
    await measured.account(start, end + 40, 4)
    first, second, brief, never = measured.nids[:4].tolist()
    unknown = [
        {"nid": brief, "e": 66, "err_msg": "No data in time window: only 30 s of it"},
        {"nid": never, "e": 66, "err_msg": "No data in time window"},
    ]
    window = ("-s", stamp(start), "-e", stamp(end + 40))
    for asked in (("--nids", measured.listed(4), *window), ("-j", "4711"), ("-a", "4711.0")):
        found = await measured.site.ask("get_node_energy", *asked)
        assert (found["e"], found["err_msg"], found["nids"]) == (52, "Invalid exchange", unknown)
        assert (found["nid_count"], [one["nid"] for one in found["nodes"]]) == (2, [first, second])
        stats = await measured.site.ask("get_node_energy_stats", *asked)
        assert (stats["e"], stats["nids"], stats["nid_count"]) == (52, unknown, 2)
    body = json.dumps({"nids": [], "start_time": window[1], "end_time": window[3]}).encode()
    everybody = await measured.site.ask("json", "-r", "/capmc/get_node_energy", stdin=body)
    assert (everybody["e"], everybody["nid_count"], "nids" in everybody) == (0, 2, False)


async def test_times_have_the_offset_of_their_own_season(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for day, hour in (("2026-01-15", 11), ("2026-07-15", 10)):
            noon = dt.datetime.fromisoformat(f"{day}T{hour}:00:00+00:00").timestamp()
            assert moment(f"{day} 12:00:00", measured.site.view.zone, "BAD_START_TIME") == noon
            assert stamped(noon, measured.site.view.zone) == f"{day} 12:00:00.000000+0{12 - hour}"
    finally:
        monkeypatch.undo()
        time.tzset()
