"""The event log: numbered, bounded, followed without gap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Compacted
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.log import EventLog, LogSettings
from strata.hardware.events.records import HardwareEvent
from support.work import counted


def event(number: int, *, node: str = "n1", severity: Severity = "ok", at: float | None = None) -> HardwareEvent:
    return HardwareEvent(
        time=time.time() if at is None else at,
        severity=severity,
        message=f"event {number}",
        source="poll",
        key="k",
        node=node,
        fields={"number": str(number)},
    )


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    found = EventLog(tmp_path / "events.db", settings=LogSettings(recent=10))
    await found.start()
    yield found
    await found.stop()


async def written(log: EventLog, count: int) -> None:
    """Until so many events are in the file."""
    before = log.newest
    if before < count:
        await take(await log.follow(before), count - before)


async def take(stream: AsyncIterator[object], count: int) -> list[int]:
    """The numbers of the next ``count`` events."""
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [number for number, _ in await anext(stream)]  # type: ignore[attr-defined]
    await stream.aclose()  # type: ignore[attr-defined]
    return found


async def test_events_are_numbered_and_survive_a_restart(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db")
    await log.start()
    first = event(1)
    log.take([first, event(2)])
    log.set_mark("somebody", "7")
    await log.stop()
    again = EventLog(tmp_path / "events.db")
    await again.start()
    again.take([event(3)])
    await written(again, 3)
    page = await again.page(None, "ok", None, None, 10)
    assert [(number, found.message) for number, found in page] == [(3, "event 3"), (2, "event 2"), (1, "event 1")]
    assert page[2][1] == first
    assert again.mark("somebody") == "7"
    await again.stop()
    assert (tmp_path / "events.db").stat().st_mode & 0o077 == 0


async def test_a_page_is_of_nodes_severity_and_time(log: EventLog) -> None:
    now = time.time()
    log.take([event(i, node=f"n{i % 3}", severity=("ok", "warning", "critical")[i % 3], at=now + i) for i in range(9)])  # type: ignore[arg-type]
    await written(log, 9)
    assert [n for n, _ in await log.page(["n1", "n2"], "critical", None, None, 10)] == [9, 6, 3]
    assert [n for n, _ in await log.page(None, "ok", now + 7, None, 10)] == [9, 8]
    assert [n for n, _ in await log.page(None, "ok", None, 8, 2)] == [7, 6]
    many = [f"x{i}" for i in range(5000)] + ["n0"]
    assert [n for n, _ in await log.page(many, "ok", None, None, 10)] == [7, 4, 1]


async def test_who_follows_sees_each_event_once_from_file_and_memory(log: EventLog) -> None:
    log.take([event(i) for i in range(100)])
    await written(log, 100)
    stream = await log.follow(3)
    following = asyncio.create_task(take(stream, 117))
    for i in range(20):
        log.take([event(100 + i)])
        await asyncio.sleep(0)
    assert await following == list(range(4, 121))
    await written(log, 120)  # who reads the file may be ahead of whoever counts what was written
    live = asyncio.create_task(take(await log.follow(None), 1))
    await asyncio.sleep(0)
    log.take([event(200)])
    assert await live == [121]


async def test_who_was_away_too_long_is_told_to_list_again(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db", settings=LogSettings(keep=50, recent=10))
    await log.start()
    log.take([event(i) for i in range(100)])
    await written(log, 100)
    await log.prune()
    with pytest.raises(Compacted) as error:
        await anext(await log.follow(20))
    assert error.value.oldest == 51
    assert await take(await log.follow(50), 50) == list(range(51, 101))
    with pytest.raises(BadRequest):
        await log.follow(101)
    await log.stop()


async def test_what_is_too_old_goes_and_its_number_is_not_given_again(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db", settings=LogSettings(keep_for=60.0))
    await log.start()
    log.take([event(1, at=1.0), event(2, at=2.0)])
    await written(log, 2)
    await log.prune()
    assert await log.page(None, "ok", None, None, 10) == []
    await log.stop()
    again = EventLog(tmp_path / "events.db")
    await again.start()
    again.take([event(3)])
    await written(again, 3)
    assert [n for n, _ in await again.page(None, "ok", None, None, 10)] == [3]
    await again.stop()


async def test_a_damaged_file_is_put_aside_and_events_go_on(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    path.write_bytes(b"this is no database" * 100)
    log = EventLog(path)
    await log.start()
    log.take([event(1)])
    await written(log, 1)
    await log.stop()
    assert (tmp_path / "events.db-damaged").read_bytes().startswith(b"this is no database")


async def test_events_that_cannot_be_written_wait_and_then_the_oldest_are_counted_as_lost(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "missing" / "events.db", settings=LogSettings(waiting=10))
    log.take([event(i) for i in range(25)])
    assert log.lost == 15
    (tmp_path / "missing").mkdir()
    await log.start()
    await written(log, 10)
    assert (await log.page(None, "ok", None, None, 1))[0][1].message == "event 24"
    await log.stop()


@pytest.mark.slow
async def test_a_hundred_thousand_events_do_not_hold_up_the_loop(log: EventLog) -> None:
    events = [event(i, node=f"n{i}") for i in range(100_000)]
    log.take(events)
    longest = last = 0  # calls between two turns of others: how much they had to wait for
    async with asyncio.timeout(120):
        with counted() as work:
            while log.newest < 100_000:
                await asyncio.sleep(0.001)
                longest, last = max(longest, work.calls - last), work.calls
    assert longest < 300_000
