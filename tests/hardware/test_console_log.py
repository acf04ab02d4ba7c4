"""Console logs: nothing is lost that was written, nothing grows without bound, nothing drives a terminal."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest, Compacted, NotFound
from strata.hardware.consoles.files import PACKED, Line, directory_of, parse, segments, written
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.text import LONGEST, Lines, clean
from strata.hardware.consoles.writer import ConsoleLimits


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


QUICK = ConsoleLimits(every=0.001)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def log(tmp_path: Path, clock: Clock) -> AsyncIterator[ConsoleLog]:
    found = ConsoleLog(tmp_path, limits=QUICK, clock=clock)
    await found.start()
    yield found
    await found.stop()


async def put(log: ConsoleLog, node: str, *texts: str) -> None:
    """Append, and wait until it is written."""
    heard = asyncio.Event()
    left = len(texts)

    def listener(where: str, lines: object) -> None:
        nonlocal left
        left -= len(lines) if where == node else 0  # type: ignore[arg-type]
        if left <= 0:
            heard.set()

    log.listeners.append(listener)
    log.append(node, "serial", texts)
    async with asyncio.timeout(60):
        await heard.wait()


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


# what a line is


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[31mred\x1b[0m\r\n", "red"),
        (b"\x1b]0;title\x07prompt$ ls\n", "prompt$ ls"),
        (b"a\x1b[2J\x1b[Hb\n", "ab"),
        (b"typo\x08\x08\x08\x08word\n", "word"),
        (b"nul\x00bell\x07\n", "nulbell"),
        ("rtl \u202e evil\n".encode(), "rtl  evil"),
        (b"\xff\xfebroken\n", "��broken"),
        (b"tab\there\n", "tab    here"),
        (b"password=hunter2 next\n", "[hidden] next"),
    ],
)
def test_a_line_is_plain_text(raw: bytes, shown: str) -> None:
    assert Lines().feed(raw) == [shown]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_whatever_comes_is_printable_and_bounded(pieces: list[bytes]) -> None:
    lines = Lines()
    for line in [line for piece in pieces for line in lines.feed(piece)] + lines.rest():
        assert "\n" not in line and "\x1b" not in line and len(line) <= 4 * LONGEST + 1
        assert parse(written(Line(1, 2.0, "serial", line)).decode().rstrip("\n")) is not None


@given(st.text(max_size=100), st.integers(1, 50))
def test_lines_do_not_depend_on_how_they_are_cut(text: str, size: int) -> None:
    data = (text + "\n").encode("utf-8", "replace")
    whole, cut = Lines(), Lines()
    by_parts = [line for at in range(0, len(data), size) for line in cut.feed(data[at : at + size])]
    assert whole.feed(data) == by_parts


def test_an_endless_line_is_cut() -> None:
    lines = Lines()
    assert all(len(line) <= LONGEST + 1 for line in lines.feed(b"x" * 100_000))
    assert clean("y" * 10_000).endswith("…")


# writing and reading


async def test_lines_are_numbered_and_read_back(log: ConsoleLog, clock: Clock) -> None:
    await put(log, "n1", "one", "two", "three")
    assert await log.tail("n1", 2) == [Line(2, clock.now, "serial", "two"), Line(3, clock.now, "serial", "three")]
    assert texts(await log.read("n1", 1, 2)) == ["one", "two"]
    assert await log.tail("n2", 10) == []
    assert await log.tail("n1", 0) == []


async def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        log = ConsoleLog(tmp_path, limits=QUICK)
        await log.start()
        await put(log, "n1", f"run {expected}")
        await log.stop()
    assert [line.id for line in await log.tail("n1", 9)] == [1, 2, 3]


async def test_a_torn_last_line_spoils_nothing(tmp_path: Path) -> None:
    log = ConsoleLog(tmp_path, limits=QUICK)
    await log.start()
    await put(log, "n1", "whole")
    await log.stop()
    segment = segments(directory_of(tmp_path, "n1"))[-1].path
    with segment.open("ab") as file:
        file.write(b"2\t17000")
    log = ConsoleLog(tmp_path, limits=QUICK)
    await log.start()
    await put(log, "n1", "after")
    await log.stop()
    assert [(line.id, line.text) for line in await log.tail("n1", 9)] == [(1, "whole"), (2, "after")]


async def test_old_segments_are_packed_and_the_oldest_go(tmp_path: Path) -> None:
    limits = ConsoleLimits(every=0.001, segment=2000, node=3000, burst=100_000)
    log = ConsoleLog(tmp_path, limits=limits)
    await log.start()
    for batch in range(60):
        # Random enough that it does not pack to nothing.
        await put(log, "n1", *(os.urandom(40).hex() for _ in range(10)), f"batch {batch}")
    kept = segments(directory_of(tmp_path, "n1"))
    assert any(segment.packed for segment in kept)
    about = await log.about("n1")
    assert about.bytes <= 3000 + 2000 + 2000
    assert about.first > 1
    assert about.last == 60 * 11
    lines = await log.tail("n1", 25)
    assert [line.id for line in lines] == list(range(636, 661))
    with pytest.raises(Compacted) as gone:
        await anext(await log.follow("n1", 5))
    assert gone.value.oldest == about.first
    await log.stop()


async def test_all_logs_together_keep_within_their_limit(tmp_path: Path) -> None:
    log = ConsoleLog(tmp_path, limits=ConsoleLimits(every=0.001, segment=1000, total=20_000))
    await log.start()
    for node in range(20):
        await put(log, f"n{node}", *(os.urandom(40).hex() for _ in range(30)))
    log._writer.trim()
    assert log._writer.total <= 18_000
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*.log*"))
    assert on_disk == log._writer.total
    await log.stop()


async def test_a_flood_is_cut_back_and_counted(log: ConsoleLog, clock: Clock) -> None:
    await put(log, "n1", *(f"line {i}" for i in range(QUICK.burst)))
    log.append("n1", "serial", (f"more {i}" for i in range(1000)))
    log.append("n2", "serial", ["quiet"])
    assert log.dropped == 1000
    clock.now += 1
    await put(log, "n1", "later")
    lines = await log.tail("n1", 2)
    assert texts(lines) == ["1000 lines dropped: they came faster than 500 a second", "later"]
    assert lines[0].source == "strata"
    assert texts(await log.tail("n2", 1)) == ["quiet"]


async def test_a_flood_that_ends_is_told_of_all_the_same(log: ConsoleLog, clock: Clock) -> None:
    await put(log, "n1", *(f"line {i}" for i in range(QUICK.burst)))
    log.append("n1", "serial", ["one too many"])
    told = asyncio.Event()
    log.listeners.append(lambda node, lines: told.set() if "dropped" in lines[-1].text else None)
    clock.now += 1
    async with asyncio.timeout(60):
        await told.wait()


async def test_a_full_disk_costs_lines_and_says_so(log: ConsoleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(log, "n1", "before")
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 10:
            return real(file, data[:10])  # a torn line
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("strata.hardware.consoles.writer.os.write", full)
        log.append("n1", "serial", ["lost because there is no room"])
        async with asyncio.timeout(60):
            while not log.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert "No space left" in log.trouble
    await put(log, "n1", "after")
    assert log.trouble == ""
    assert texts(await log.tail("n1", 9)) == ["before", "after"]


async def test_no_file_stays_open(log: ConsoleLog) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for node in range(300):
        log.append(f"n{node}", "serial", ["hello"])
    await put(log, "last", "hello")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "n\n", "x" * 64])
async def test_no_name_leads_out_of_the_directory(log: ConsoleLog, name: str) -> None:
    with pytest.raises(BadRequest):
        log.append(name, "serial", ["x"])
    with pytest.raises(BadRequest):
        await log.dump(name, "1-2")


# following


async def test_following_resumes_without_gap_or_repeat(log: ConsoleLog) -> None:
    await put(log, "n1", "1", "2", "3")
    seen: list[str] = []
    async with aclosing(await log.follow("n1", 1)) as lines:  # type: ignore[type-var]
        seen += texts(await anext(lines))
        await put(log, "n1", "4", "5")
        seen += texts(await anext(lines))
    await put(log, "n1", "6")
    async with aclosing(await log.follow("n1", 5)) as lines:  # type: ignore[type-var]
        seen += texts(await anext(lines))
    assert seen == ["2", "3", "4", "5", "6"]


async def test_lines_that_come_while_a_reader_reads_are_not_skipped(
    log: ConsoleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(log, "n1", "1")
    read = log.read

    async def slow(node: str, first: int, last: int) -> Sequence[Line]:
        found = await read(node, first, last)
        await put(log, "n1", "more")
        return found

    monkeypatch.setattr(log, "read", slow)
    seen: list[int] = []
    async with aclosing(await log.follow("n1", 0)) as lines:  # type: ignore[type-var]
        for _ in range(5):
            seen += [line.id for line in await anext(lines)]
    assert seen == list(range(1, len(seen) + 1))


async def test_following_begins_now_unless_told_otherwise(log: ConsoleLog) -> None:
    await put(log, "n1", "old")
    async with aclosing(await log.follow("n1", None)) as lines:  # type: ignore[type-var]
        waiting = asyncio.ensure_future(anext(lines))
        await put(log, "n1", "new")
        assert texts(await waiting) == ["new"]
    assert not log._followers
    with pytest.raises(BadRequest, match="newest line is 2"):
        await log.follow("n1", 3)


async def test_many_lines_follow_in_order_across_rotation(tmp_path: Path) -> None:
    log = ConsoleLog(tmp_path, limits=ConsoleLimits(every=0.001, segment=5000, burst=100_000))
    await log.start()
    seen: list[int] = []
    async with aclosing(await log.follow("n1", 0)) as lines:  # type: ignore[type-var]
        for batch in range(40):
            log.append("n1", "serial", (f"{batch} {i}" for i in range(50)))
            if batch % 7 == 0:
                seen += [line.id for line in await anext(lines)]
        async with asyncio.timeout(60):
            while len(seen) < 2000:
                seen += [line.id for line in await anext(lines)]
    await log.stop()
    assert seen == list(range(1, 2001))
    assert any(path.name.endswith(PACKED) for path in tmp_path.rglob("*"))


# excerpts


async def test_an_excerpt_outlives_its_log(log: ConsoleLog, tmp_path: Path) -> None:
    await put(log, "n1", "1", "2", "3", "4")
    assert await log.keep("n1", 2, 3) == "console:n1:2-3"
    for segment in segments(directory_of(tmp_path, "n1")):
        segment.path.unlink()
    assert texts(await log.dump("n1", "2-3")) == ["2", "3"]
    assert await log.dumps("n1") == ["2-3"]
    with pytest.raises(NotFound):
        await log.dump("n1", "5-6")
    with pytest.raises(BadRequest):
        await log.dump("n1", "../../etc")


async def test_only_the_newest_excerpts_are_kept(log: ConsoleLog) -> None:
    await put(log, "n1", *map(str, range(40)))
    for first in range(1, 31):
        await log.keep("n1", first, first + 1)
    kept = await log.dumps("n1")
    assert len(kept) == QUICK.dumps and kept[-1] == "30-31"
