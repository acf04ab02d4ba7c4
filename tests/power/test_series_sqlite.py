"""What only a file has: a process that is killed, damage, a lock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from series_support import BEGIN, at, steady

from strata.core.errors import Corrupt, Refused
from strata.power.series.series import Series

WRITER = """
import asyncio, sys
from pathlib import Path
import numpy as np
from strata.power.series.records import Samples
from strata.power.series.series import Series

async def main():
    series = Series.in_file(Path(sys.argv[1]))
    await series.start()
    uids = np.arange(1000)
    for second in range(int(sys.argv[2]), 10**10):
        values = np.full(1000, second % 500.0)
        await series.append([Samples(metric="power", time=float(second), uids=uids, values=values)])
        if second % 7 == 0:
            await series.flush()
            print(second, flush=True)

asyncio.run(main())
"""


def series_in(path: Path) -> Series:
    return Series.in_file(path, clock=lambda: 4e9, lateness=30.0)


def write_until_killed(path: Path, second: int, lines: int) -> int:
    """Starts a writer, and kills it some flushes later; the last second that it said was flushed."""
    command = [sys.executable, "-c", WRITER, str(path), str(second)]
    promised = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(lines):
            promised = int(process.stdout.readline())
        process.kill()
    return promised


@pytest.mark.slow
async def test_what_was_flushed_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.db"
    second = BEGIN
    for lines in (3, 40, 11):
        promised = await asyncio.to_thread(write_until_killed, path, second, lines)
        series = series_in(path)
        await series.start()
        found = await series.window("power", np.array([7, 999]), BEGIN, 4e9)
        await series.close()
        seconds = found.times.astype(int)
        assert (np.diff(seconds) == 1).all()
        assert (seconds[0], seconds[-1] >= promised) == (BEGIN, True)
        assert (found.values == (seconds % 500)[:, None]).all()
        second = int(seconds[-1]) + 1


async def test_nobody_else_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.db"
    path.touch(mode=0o644)
    series = series_in(path)
    await series.start()
    await series.append(steady(BEGIN, 10, {1: 100.0}))
    await series.flush()
    modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    assert f"{path.name}-wal" in modes and set(modes.values()) == {0o600}
    await series.close()


async def test_a_file_has_one_writer(tmp_path: Path) -> None:
    one, two = series_in(tmp_path / "t.db"), series_in(tmp_path / "t.db")
    await one.start()
    with pytest.raises(Refused, match="another process"):
        await two.start()
    await two.close()
    await one.close()
    three = series_in(tmp_path / "t.db")
    await three.start()
    await three.close()


async def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"a poem, perhaps" * 1000)
    series = series_in(path)
    with pytest.raises(Corrupt, match="move the file away"):
        await series.start()
    await series.close()
    assert path.read_bytes().startswith(b"a poem")


@pytest.mark.slow
async def test_readers_and_the_writer_go_on_side_by_side(tmp_path: Path) -> None:
    series = series_in(tmp_path / "t.db")
    await series.start()
    try:

        async def ask(upto: int) -> None:
            found = await series.window("power", np.array([1]), BEGIN, BEGIN + 1000)
            assert len(found.times) >= upto
            assert (np.diff(found.times) == 1).all()

        for second in range(0, 600, 20):
            await asyncio.gather(
                series.append(steady(BEGIN + second, 20, {1: 100.0, 2: 100.0})), ask(second), ask(second)
            )
    finally:
        await series.close()


@pytest.mark.slow
async def test_minutes_become_longer_chunks_as_soon_as_these_are_complete(tmp_path: Path) -> None:
    series = series_in(tmp_path / "t.db")
    await series.start()
    await series.append([at(BEGIN + second, {1: 100.0}) for second in range(0, 7300, 10)])
    counts = {level: len(series._intake.store.heads("power", level, BEGIN, BEGIN + 7300)) for level in (60, 600, 3600)}
    await series.close()
    assert counts == {60: 121, 600: 12, 3600: 2}
