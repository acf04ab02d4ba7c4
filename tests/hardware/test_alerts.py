"""Alerts: one for each trouble, written seldom, acknowledged by people, ended by what says that it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec
import pytest

from strata.core.errors import NotFound, Unavailable
from strata.hardware.alerts.alerts import Alerts, AlertSettings
from strata.hardware.alerts.records import Alert, state_of
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.records import HardwareEvent
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Op
from support.work import counted


class CountingStore(MemoryStore):
    """Counts what is written under ``alert/``, and is away when told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.transactions = 0
        self.away = False

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        if self.away:
            raise Unavailable("away")
        alerts = sum(op.key.startswith("alert/is/") for op in ops)
        self.writes += alerts
        self.transactions += bool(alerts)
        return await super().txn(ops, expect=expect)


class Wall:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Alerts over a store, and what was told."""

    def __init__(self, store: CountingStore | None = None, owner: str = "c1", **settings: float) -> None:
        self.store = store or CountingStore()
        self.clock = Wall()
        self.told: list[Alert] = []
        self.alerts = Alerts(
            self.store,
            Ledger(self.store),
            owner=owner,
            tell=self.told.extend,
            settings=AlertSettings(**settings),  # type: ignore[arg-type]
            clock=self.clock,
        )

    async def happens(self, *events: HardwareEvent) -> None:
        self.alerts.take(events)
        async with asyncio.timeout(60):
            await self.alerts.settled()

    @property
    def states(self) -> list[str]:
        found = self.alerts
        return [state_of(alert, found.acknowledgements.get(alert.id)) for alert in found.alerts.values()]

    @property
    def one(self) -> Alert:
        [alert] = self.alerts.alerts.values()
        return alert


async def until(true: Callable[[], bool]) -> None:
    """Let others run until it is true."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    found = Bench()
    await found.alerts.start()
    yield found
    await found.alerts.stop()


def event(severity: Severity, *, node: str = "n1", key: str = "sensor/cpu1temp", text: str = "hot") -> HardwareEvent:
    return HardwareEvent(time=0.0, severity=severity, message=text, source="poll", key=key, node=node, bmc="http://b")


async def test_many_events_about_one_trouble_are_one_alert_and_few_writes(bench: Bench) -> None:
    await bench.happens(*(event("warning") for _ in range(100)))
    assert (bench.one.count, bench.one.severity, bench.store.writes) == (100, "warning", 1)
    for _ in range(50):
        bench.clock.now += 1
        await bench.happens(event("warning"))
    assert (bench.one.count, bench.store.writes) == (150, 1)
    bench.clock.now += 60
    await bench.happens(event("warning"))
    assert (bench.one.count, bench.store.writes) == (151, 2)
    assert len(bench.told) == 1


async def test_what_is_fine_opens_nothing(bench: Bench) -> None:
    await bench.happens(event("ok"))
    assert bench.alerts.alerts == {}


async def test_an_alert_gets_worse_at_once_and_ends_with_the_event_that_says_so(bench: Bench) -> None:
    await bench.happens(event("warning"), event("critical"), event("ok", key="sensor/other"))
    assert (bench.one.severity, bench.states) == ("critical", ["open"])
    await bench.happens(event("ok"))
    assert (bench.states, bench.store.writes) == (["over"], 2)  # opened and worse were one batch
    assert [(a.severity, a.over) for a in bench.told] == [("warning", False), ("critical", False), ("critical", True)]


async def test_what_happened_once_is_over_when_it_was_not_seen_for_long(bench: Bench) -> None:
    happened = [
        HardwareEvent(time=0.0, severity="critical", message="it happened", source=source, key=key, node="n1")
        for source, key in (
            ("push", "log/ResourceErrors"),
            ("console", "console/oops"),
            ("strata", "token-replayed/n1"),
        )
    ]
    is_so = [event("critical"), *(msgspec.structs.replace(event("critical"), source="push", key="sensor/fan1"),)]
    is_so.append(msgspec.structs.replace(event("critical"), source="strata", key="node/faulted"))
    await bench.happens(*happened, *is_so)
    bench.clock.now += 6 * 86400
    await bench.alerts.upkeep()
    await bench.happens(happened[0])
    assert bench.states == ["open"] * 6
    bench.clock.now += 86400
    await bench.alerts.upkeep()
    await bench.alerts.settled()
    over = {alert.key: alert.fields for alert in bench.alerts.alerts.values() if alert.over}
    assert over == {key: {"ended": "it was not seen again for 7 days"} for key in ("console/oops", "token-replayed/n1")}
    assert {alert.key for alert in bench.told if alert.over} == set(over), "who was told of it is told of its end"
    await bench.happens(happened[1])
    assert bench.states.count("open") == 5, "it happened again"


async def test_troubles_of_other_nodes_and_other_keys_are_other_alerts(bench: Bench) -> None:
    await bench.happens(event("warning"), event("warning", node="n2"), event("warning", key="log/x"))
    assert len(bench.alerts.alerts) == 3
    assert bench.alerts.troubles("n1") == {"log/x": "warning", "sensor/cpu1temp": "warning"}


async def test_an_acknowledged_alert_says_who_and_is_open_again_when_it_gets_worse(bench: Bench) -> None:
    await bench.happens(event("warning"))
    ident = bench.one.id
    await bench.alerts.acknowledge("alice", [ident], "fan ordered")
    assert bench.states == ["acknowledged"]
    assert bench.alerts.acknowledgements[ident].by == "alice"
    await bench.happens(event("warning"))
    assert bench.states == ["acknowledged"]
    await bench.happens(event("critical"))
    assert bench.states == ["open"]
    await bench.happens(event("warning"))
    assert bench.states == ["open"]  # it was worse than what alice saw
    await bench.alerts.acknowledge("alice", [ident], "")
    assert bench.states == ["acknowledged"]
    await bench.happens(event("ok"))
    bench.clock.now += 1
    await bench.happens(event("warning"))
    assert bench.states == ["open"]  # it came back
    record = (await Ledger(bench.store).latest())[0]
    assert (record.author, record.action) == ("alice", "alert.acknowledge")
    assert record.detail["ids"] == [ident]


async def test_an_alert_that_is_not_there_cannot_be_acknowledged(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.alerts.acknowledge("alice", ["0" * 20], "")


async def test_alerts_survive_a_restart_and_another_controller_sees_them(bench: Bench) -> None:
    other = Bench(bench.store, owner="c2")
    await other.alerts.start()
    await bench.happens(event("critical"))
    await bench.alerts.acknowledge("alice", [bench.one.id], "")
    await until(lambda: other.states == ["acknowledged"])
    # The other one sees the end of it (it leads the node now): one alert for both.
    await other.happens(event("ok"))
    await until(lambda: bench.states == ["over"])
    await other.alerts.stop()
    third = Bench(bench.store)
    await third.alerts.start()
    assert third.states == ["over"]
    await third.alerts.stop()


async def test_what_comes_and_goes_is_one_open_alert_until_it_has_been_quiet() -> None:
    bench = Bench(flaps=3, quiet=600.0)
    await bench.alerts.start()
    for _ in range(20):
        await bench.happens(event("warning"), event("ok"))
        bench.clock.now += 10
    assert bench.states == ["open"]
    assert len(bench.told) == 7  # three times up and down, and up to stay
    bench.clock.now += 600
    await bench.happens(event("ok", key="x"))  # any turn of the work looks at it
    assert bench.states == ["over"]
    await bench.alerts.stop()


async def test_an_alert_that_is_over_goes_after_a_while_with_its_acknowledgement() -> None:
    bench = Bench(keep_over=3600.0)
    await bench.alerts.start()
    await bench.happens(event("warning"))
    await bench.alerts.acknowledge("alice", [bench.one.id], "")
    await bench.happens(event("ok"))
    assert await bench.alerts.prune() == 0
    bench.clock.now += 3601
    assert await bench.alerts.prune() == 1
    assert (await bench.store.range("alert/")).entries == ()
    assert (bench.alerts.alerts, bench.alerts.acknowledgements) == ({}, {})
    await bench.alerts.stop()


@pytest.mark.slow
async def test_alerts_outlast_a_store_that_is_away(bench: Bench) -> None:
    bench.store.away = True
    bench.alerts.take([event("critical")])
    await until(lambda: bool(bench.told))  # whoever must know hears of it all the same
    bench.store.away = False
    async with asyncio.timeout(60):
        await bench.alerts.settled()
    assert bench.store.writes == 1


async def test_beyond_the_limit_alerts_are_counted_and_those_that_are_over_make_room() -> None:
    bench = Bench(most=10)
    await bench.alerts.start()
    await bench.happens(*(event("warning", node=f"n{i}") for i in range(10)), event("ok", node="n0"))
    await bench.happens(event("warning", node="late"))
    assert bench.alerts.refused == 1
    await bench.happens(event("warning", node="late"))
    assert (bench.alerts.refused, len(bench.alerts.alerts)) == (1, 10)
    await bench.alerts.stop()


@pytest.mark.slow
async def test_a_room_without_cooling_is_a_hundred_thousand_alerts_and_nobody_waits() -> None:
    bench = Bench()
    await bench.alerts.start()
    events = [event("critical", node=f"n{i}") for i in range(100_000)]
    bench.alerts.take(events)
    settled = asyncio.create_task(bench.alerts.settled())
    longest = last = 0  # calls between two turns of others: how much they had to wait for
    with counted() as work:
        while not settled.done():
            await asyncio.sleep(0)
            longest, last = max(longest, work.calls - last), work.calls
    assert len(bench.alerts.alerts) == 100_000
    assert bench.store.writes == 100_000
    assert bench.store.transactions <= 110
    assert longest < 1_000_000
    assert work.calls < 500 * 100_000
    await bench.alerts.stop()
