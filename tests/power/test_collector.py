"""Power is measured at a steady pace, over Redfish one by one or in bulk, and the dead hold up nobody."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from strata.core.errors import DeviceError
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.dialects import Dialect
from strata.hardware.bmc.protocol import Reading
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.power.series.records import Samples
from strata.power.telemetry.bmcs import AskSettings, NodeSource, _Known
from strata.power.telemetry.collector import (
    NOBODY,
    BulkSource,
    ByAddress,
    Collector,
    CollectorSettings,
    Floats,
    Look,
    Nodes,
    Told,
    looks_of,
)
from strata.power.telemetry.columns import PowerColumns
from strata.power.telemetry.values import read_at
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.names import GPUS
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.fleet.power import FleetPower
from strata.virtual.redfish.hardware import SUPPLIES, SUPPLY_WATTS


class Kept:
    """A series that remembers what it was given."""

    def __init__(self) -> None:
        self.samples: list[Samples] = []

    async def append(self, batch: Sequence[Samples]) -> None:
        self.samples += batch

    def of(self, metric: str) -> list[Samples]:
        return [one for one in self.samples if one.metric == metric]


class Scripted:
    """A source that tells what it is told to."""

    def __init__(self, looks: Sequence[Look] = (), wrong: Exception | None = None) -> None:
        self.looks = looks
        self.wrong = wrong
        self.asked: list[list[str]] = []
        self.closed = False
        self.looked = asyncio.Event()

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        self.asked.append(list(nodes.names))
        if len(self.asked) > 1:
            self.looked.set()
        if self.wrong is not None and len(self.asked) == 1:
            raise self.wrong
        return self.looks

    async def close(self) -> None:
        self.closed = True


def fleet(server: BmcServer) -> Nodes:
    names = server.nodes.names
    uids = np.arange(1, len(names) + 1, dtype=np.int64)
    return Nodes(uids=uids, names=names, bmcs=[server.url(name) for name in names])


def some(*names: str) -> Nodes:
    uids = np.arange(1, len(names) + 1, dtype=np.int64)
    return Nodes(uids=uids, names=names, bmcs=[f"http://{name}" for name in names])


def values(**columns: Sequence[float]) -> Mapping[str, Floats]:
    return {name.replace("_", "-"): np.array(column, dtype=float) for name, column in columns.items()}


@asynccontextmanager
async def simulated(count: int, *, patience: float = 10.0) -> AsyncIterator[tuple[BmcServer, Bmcs]]:
    nodes = SimNodes(count)
    nodes.put(nodes.all, now=0.0, power="on")
    time = iter(range(0, 10**9, 10))
    now = [0.0]
    server = BmcServer(nodes, clock=lambda: now[0])
    server.tick = lambda: now.__setitem__(0, float(next(time)))  # type: ignore[attr-defined]
    await server.start()
    client = RedfishClient(
        Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password),
        settings=RedfishSettings(timeout=patience, quick=patience),
    )
    controllers = Bmcs(client)
    try:
        yield server, controllers
    finally:
        await controllers.close()
        await server.stop()


async def test_what_is_seen_goes_to_the_series_and_the_columns() -> None:
    uids = np.array([1, 2, 3], dtype=np.int64)
    seen = values(power=(100, np.nan, 300), energy=(5, 6, 7), cap=(0, 250, np.nan), least=(200, 200, 200))
    kept, columns = Kept(), PowerColumns()
    collector = Collector(
        lambda: some("a", "b", "c"), Scripted([Look(time=9.0, uids=uids, values=seen)]), kept, columns
    )  # type: ignore[arg-type]
    await collector.sweep(1.0)
    (power,) = kept.of("power")
    assert (power.time, power.uids.tolist(), power.values.tolist()) == (9.0, [1, 3], [100, 300])
    assert {one.metric for one in kept.samples} == {"power", "energy", "cap"}
    rows = columns.rows(uids)
    assert rows.power.tolist()[0::2] == [100, 300] and np.isnan(rows.power[1])
    assert rows.power_time[0] == 9.0 and rows.cap.tolist()[:2] == [0, 250] and rows.least.tolist() == [200] * 3
    assert collector.measured == 2


async def test_what_cannot_be_true_is_for_the_series_to_flag_and_not_in_the_columns() -> None:
    uids = np.array([1, 2], dtype=np.int64)
    kept, columns = Kept(), PowerColumns()
    look = Look(time=9.0, uids=uids, values=values(power=(-5, 1e9)))
    await Collector(lambda: some("a", "b"), Scripted([look]), kept, columns).sweep(1.0)  # type: ignore[arg-type]
    assert kept.of("power")[0].values.tolist() == [-5, 1e9]
    assert np.isnan(columns.column("power", uids)).all()


async def test_a_sweep_that_fails_is_not_the_last() -> None:
    for wrong in (DeviceError("away"), ZeroDivisionError()):
        source = Scripted(wrong=wrong)
        settings = CollectorSettings(every=0.01, every_many=0.01)
        collector = Collector(lambda: some("a"), source, Kept(), PowerColumns(), settings=settings)  # type: ignore[arg-type]
        await collector.start()
        async with asyncio.timeout(60):
            await source.looked.wait()
        await collector.stop()
        assert source.closed


def test_a_large_fleet_is_looked_at_less_often() -> None:
    settings = CollectorSettings()
    assert (settings.interval(10_000), settings.interval(10_001)) == (10.0, 30.0)


async def test_nobody_is_asked_where_there_is_nobody() -> None:
    source = Scripted()
    await Collector(lambda: NOBODY, source, Kept(), PowerColumns()).sweep(1.0)  # type: ignore[arg-type]
    assert source.asked == []


async def test_nodes_are_asked_where_their_addresses_say() -> None:
    there, elsewhere = Scripted(), Scripted()
    both = ByAddress("http://a", there, elsewhere)
    await both.look(some("a1", "b", "a2"), 1.0)
    assert (there.asked, elsewhere.asked) == ([["a1", "a2"]], [["b"]])
    await both.close()
    assert there.closed and elsewhere.closed


async def test_redfish_tells_power_energy_temperature_and_cap_in_few_requests() -> None:
    async with simulated(3) as (server, controllers):
        server.nodes.electricity.set_cap(np.array([1]), 222.0)
        machines: dict[int, str] = {}
        source, nodes = NodeSource(controllers, clock=lambda: 5.0, describe=machines.__setitem__), fleet(server)
        looks = await source.look(nodes, 5.0)
        before = server.requests
        server.tick()  # type: ignore[attr-defined]
        server.tick()  # type: ignore[attr-defined]
        looks = await source.look(nodes, 5.0)
        assert server.requests - before == 3, "one request for each node, once it is known what it tells"
        seen = {name: np.concatenate([look.values[name] for look in looks]) for name in looks[0].values}
        watts = np.round(server.nodes.watts(server.nodes.all, server.clock()), 1)
        assert seen["power"].tolist() == watts.tolist()
        assert seen["cap"].tolist() == [0, 222.0, 0]
        assert seen["least"].tolist() == [200] * 3
        assert seen["supply"].tolist() == [SUPPLIES * SUPPLY_WATTS] * 3
        assert machines[1] == "Contoso HX-2" and set(machines) == {1, 2, 3}
        assert np.allclose(seen["energy"], watts * 10, atol=4.0)
        await source.close()


async def test_a_report_that_a_controller_sends_by_itself_is_of_its_node_and_of_no_other() -> None:
    async with simulated(2) as (server, controllers):
        source, nodes = NodeSource(controllers, clock=lambda: 5.0), fleet(server)
        one, other = nodes.bmcs
        path = "/redfish/v1/TelemetryService/MetricReports/Power"
        report = (await controllers.redfish.get(one, path)).body
        assert source.reported([one], report) == 0, "nobody knows yet what its sensors are"
        await source.look(nodes, 5.0)
        report["MetricValues"][0]["MetricValue"] = "321.5"
        assert source.reported([one, "http://elsewhere"], report) == 1
        for nonsense in ({}, {"MetricValues": 3}, {"MetricValues": [None, {"MetricValue": "much"}]}):
            assert source.reported([other], nonsense) == 0
        [look] = await source.look(nodes.where(np.zeros(2, np.bool_)), 5.0)
        assert (look.uids.tolist(), look.values["power"].tolist()) == ([1], [321.5])
        await source.close()


async def test_the_temperature_is_that_of_the_hottest_sensor_and_read_now_and_then() -> None:
    async with simulated(1) as (server, controllers):
        source = NodeSource(controllers, clock=lambda: 5.0, settings=AskSettings(slow_every=2))
        told = ["temperature" in (await source.look(fleet(server), 5.0))[0].values for _ in range(4)]
        assert told == [True, False, True, False]
        server.bmc(server.nodes.names[0]).set_reading("CPU1Temp", 88.0)
        (look,) = await source.look(fleet(server), 5.0)
        assert look.values["temperature"].tolist() == [88.0]
        await source.close()


@pytest.mark.slow
async def test_the_dead_hold_up_nobody_and_are_left_alone_for_a_while() -> None:
    async with simulated(20, patience=2.0) as (server, controllers):
        settings = AskSettings(at_once=4, patience=0.02, slow_every=100)
        source, nodes = NodeSource(controllers, clock=lambda: 5.0, settings=settings), fleet(server)
        await source.look(nodes, 5.0)
        server.nodes.bmc_dead[:10] = True
        looks = await source.look(nodes, 1.0)
        assert sorted(uid for look in looks for uid in look.uids.tolist()) == list(range(11, 21))
        assert source._busy, "the dead have not been given up yet"
        await asyncio.wait(source._busy.values(), timeout=60)
        before = server.requests
        await source.look(nodes, 60.0)
        assert server.requests - before == 10 + 4 * GPUS, "four of those that live have accelerators"
        await source.close()


@pytest.mark.slow
async def test_what_comes_late_comes_with_the_next_sweep() -> None:
    async with simulated(2) as (server, controllers):
        source, nodes = NodeSource(controllers, clock=lambda: 5.0), fleet(server)
        await source.look(nodes, 5.0)
        slow = controllers.redfish.bmc(nodes.bmcs[0]).busy
        async with slow:
            (look,) = await source.look(nodes, 1.0)
            assert look.uids.tolist() == [2]
        (look,) = await source.look(nodes.where(nodes.uids == 2), 5.0)
        assert look.uids.tolist() == [1, 2]
        await source.close()


class OtherController:
    """One that speaks another protocol."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.told = readings
        self.asked = 0

    async def readings(self) -> Sequence[Reading]:
        self.asked += 1
        return self.told


async def test_other_protocols_are_asked_for_their_sensors_and_those_without_any_are_left_alone() -> None:
    power = OtherController([Reading(name="System Power", kind="power", unit="W", value=250.0)])
    bare = OtherController([Reading(name="Fan", kind="fan", unit="RPM", value=1.0)])
    found = {"ipmi://a": power, "ipmi://b": bare}

    async def close() -> None:
        return

    dialect = Dialect(open=found.__getitem__, inventory=None, accepts=None, forget=lambda _: None, close=close)  # type: ignore[arg-type]
    controllers = Bmcs(RedfishClient(Credentials("u", "p")), {"ipmi": dialect})
    nodes = Nodes(uids=np.array([1, 2], dtype=np.int64), names=("a", "b"), bmcs=tuple(found))
    source = NodeSource(controllers, clock=lambda: 5.0)
    for _ in range(2):
        (look,) = await source.look(nodes, 5.0)
        assert (look.uids.tolist(), look.values["power"].tolist()) == ([1], [250.0])
    assert (power.asked, bare.asked) == (2, 1)
    await source.close()
    await controllers.close()


async def test_a_node_without_a_controller_is_not_asked() -> None:
    async with simulated(1) as (_, controllers):
        nodes = Nodes(uids=np.array([1, 2], dtype=np.int64), names=("a", "b"), bmcs=("", "nonsense"))
        assert await NodeSource(controllers, clock=lambda: 5.0).look(nodes, 1.0) == []


async def test_a_simulated_fleet_is_read_in_one_request() -> None:
    async with simulated(50) as (server, controllers):
        server.nodes.bmc_dead[0] = True
        bulk = FleetPower(server.address, SIMULATED_ACCOUNT)
        source = BulkSource(bulk.read, bulk.close)
        nodes = fleet(server)
        before = server.requests
        (look,) = await source.look(nodes, 5.0)
        assert server.requests - before == 1
        assert look.uids.tolist() == nodes.uids.tolist()
        assert np.isnan(look.values["power"][0])
        watts = server.nodes.watts(server.nodes.all, server.clock())
        assert np.allclose(look.values["power"][1:], watts[1:], atol=0.06)
        (one,) = await NodeSource(controllers, clock=lambda: 5.0).look(nodes.where(nodes.uids == 7), 5.0)
        for name, told in one.values.items():
            assert told[0] == pytest.approx(look.values[name][6], abs=4.0), name
        await source.close()


async def test_a_source_that_names_fewer_than_it_tells_of_is_not_believed() -> None:
    async def ask() -> Told:
        return ["a"], values(power=(1, 2))

    async def let_go() -> None:
        return

    with pytest.raises(DeviceError):
        await BulkSource(ask, let_go).look(some("a"), 1.0)


async def test_the_simulator_tells_its_power_to_nobody_else() -> None:
    async with simulated(1) as (server, _):
        stranger = FleetPower(server.address, type(SIMULATED_ACCOUNT)("root", "wrong"))
        with pytest.raises(DeviceError, match="401"):
            await stranger.read()
        await stranger.close()


async def test_one_way_of_asking_that_breaks_does_not_lose_what_the_other_saw() -> None:
    seen = Look(time=1.0, uids=np.array([2]), values={"power": np.array([250.0])})
    both = ByAddress("http://there/", Scripted(wrong=ValueError("nonsense")), Scripted([seen]))
    nodes = Nodes(uids=np.array([1, 2]), names=["n1", "n2"], bmcs=["http://there/1", "http://n2"])
    assert await both.look(nodes, 1.0) == [seen]


async def test_readings_keep_the_fraction_of_their_second() -> None:
    clock = iter([1000.95, 1011.05])
    values = [{"power": 300.0, "energy": 1000.0}, {"power": 300.0, "energy": 4030.0}]
    looks = looks_of([(next(clock), 1, one) for one in values])
    columns, kept = PowerColumns(), Kept()
    collector = Collector(lambda: some("a"), Scripted(looks), kept, columns)  # type: ignore[arg-type]
    await collector.sweep(1.0)
    [first, second] = kept.of("energy")
    watts = (second.values[0] - first.values[0]) / (second.time - first.time)
    assert watts == pytest.approx(300.0, rel=0.001), "of whole seconds it would be 275"
    assert columns.column("energy_time", np.array([1]))[0] == 1011.05


def test_the_time_of_a_reading_is_the_bmcs_own_whatever_its_clock_says() -> None:
    known = _Known(None, 0.0)
    ahead = 3600.0
    # It reads its counter every five seconds; answers come at any time after that.
    heard = [known.here(read + ahead, read + late) for read, late in ((100.0, 0.2), (110.0, 4.7), (115.0, 0.2))]
    assert heard == pytest.approx([100.2, 110.2, 115.2])
    assert known.here(120.0, 120.3) == pytest.approx(120.3), "its clock was set"


def test_a_sensor_and_a_report_tell_when_the_counter_was_read() -> None:
    sensor = {"ReadingType": "EnergykWh", "Reading": 1.5, "ReadingTime": "2026-01-02T03:04:05.250Z"}
    value = {"MetricProperty": "/redfish/v1/Chassis/1/EnvironmentMetrics#/EnergykWh", "MetricValue": "1.5"}
    report = {"Timestamp": "2026-01-02T03:04:06+00:00", "MetricValues": [value]}
    when = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC).timestamp()
    assert read_at([sensor]) == when + 0.25
    assert read_at([report]) == when + 1
    for nothing in ({}, {**sensor, "ReadingTime": "yesterday"}, {**sensor, "ReadingTime": "2026-01-02T03:04:05"}):
        assert read_at([nothing]) is None
