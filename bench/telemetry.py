"""How much telemetry costs to keep, and how soon it answers; against PostgreSQL's COPY and plain SQL in the same run.

    .venv/bin/python bench/telemetry.py --json
    .venv/bin/python bench/telemetry.py --real-time

First an hour and some minutes of every node's power go in as fast as they can, then samples come once a second as in
life. ``live_cores`` is processor time over the time that the samples span, which ``--real-time`` waits for. The job is
on nodes that are scattered over the machine, and begins and ends within a minute; once more when the nodes have energy
counters too. COPY gets some of the nodes' hour, in its binary form, made beforehand, into a table without an index; the
index that the SQL uses is made after.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psycopg
import uvloop
from measure import Figures, Gauge, arguments, main, own_peak_mb, say, scratch, show

from strata.power.series.records import Samples
from strata.power.series.series import Series

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.postgres import postgres

BEGIN = 1_699_999_200
"""A whole hour."""

_ROW = np.dtype([("n", ">i2"), ("l1", ">i4"), ("t", ">f8"), ("l2", ">i4"), ("u", ">i8"), ("l3", ">i4"), ("v", ">f8")])


class Machine:
    """Nodes whose power moves: noise of some watts every second, and now and then a job that begins or ends."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.uids = np.arange(1, nodes + 1, dtype=np.int64)
        self._noise = np.rint(self._random.normal(0, 4, (61, nodes))).astype(np.float32)
        self._load = self._random.choice(np.array([90, 250, 410], np.float32), nodes)
        self._second = 0

    def batch(self, seconds: int) -> list[Samples]:
        """What comes next."""
        return [self._next() for _ in range(seconds)]

    def _next(self) -> Samples:
        changed = self._random.integers(0, len(self.uids), max(1, len(self.uids) // 2000))
        self._load[changed] = self._random.choice(np.array([90, 250, 410], np.float32), len(changed))
        values = self._load + self._noise[self._second % len(self._noise)]
        self._second += 1
        return Samples(metric="power", time=float(BEGIN + self._second), uids=self.uids, values=values)


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument(
        "--bulk", type=int, default=3900, help="seconds that go in at once; the questions are about 3600"
    )
    parser.add_argument("--live", type=int, default=600, help="seconds that come one by one")
    parser.add_argument("--real-time", action="store_true", help="let each second last a second")
    parser.add_argument("--job", type=int, default=10_000, help="nodes of the job")
    parser.add_argument("--copied", type=int, default=1000, help="nodes that PostgreSQL gets too")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if not (1 <= given.job <= given.nodes and 1 <= given.copied <= given.nodes):
        parser.error("--job, --copied: from 1 to --nodes")
    if given.bulk < 240 or given.live < 1:
        parser.error("--bulk: at least 240; --live: at least 1")
    with scratch() as directory, postgres() as server:
        show(uvloop.run(_measure(given, directory, server.address)), as_json=given.json)


async def _measure(given: argparse.Namespace, directory: Path, address: str) -> Figures:
    path, machine = directory / "telemetry.db", Machine(given.nodes, given.seed)
    figures: Figures = {"nodes": given.nodes, "real_time": given.real_time}
    # Up to the present of the load: its newest minutes are still in memory.
    hour = (BEGIN + max(31.5, given.bulk - 3610.5), BEGIN + given.bulk - 10.5)
    async with _opened(path) as series:
        figures |= await _bulk(given, series, machine)
        figures |= await _questions(given, series, machine.uids, hour)
        figures |= await _against_sql(given, series, machine.uids, hour, address, figures["bulk_samples_per_s"])
        figures |= await _live(given, series, machine)
    samples = given.nodes * (given.bulk + given.live)
    figures["bytes_per_sample"] = sum(found.stat().st_size for found in directory.glob("telemetry.db*")) / samples
    async with _opened(path) as series:
        figures |= await _counters(given, series, machine.uids, hour)
    figures |= await _in_postgres(given, address)
    return figures | {"samples": samples, "peak_rss_mb": own_peak_mb(), "seed": given.seed}


@contextlib.asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Series]:
    series = Series.in_file(path, clock=lambda: math.inf)
    await series.start()
    try:
        yield series
    finally:
        await series.close()


async def _bulk(given: argparse.Namespace, series: Series, machine: Machine) -> Figures:
    seconds = cpu = 0.0
    for first in range(0, given.bulk, 60):
        batch = machine.batch(min(60, given.bulk - first))
        gauge = Gauge()
        await series.append(batch)
        if first % 600 == 0:
            await series.flush()
        seconds, cpu = seconds + gauge.seconds, cpu + gauge.seconds * gauge.cores
        say(f"{first + len(batch):6,} s in after {seconds:.1f} s", quiet=given.json)
    return {"bulk_samples_per_s": given.nodes * given.bulk / seconds, "bulk_cores": cpu / seconds}


async def _questions(
    given: argparse.Namespace, series: Series, uids: npt.NDArray[np.int64], hour: tuple[float, float]
) -> Figures:
    scattered = _scattered(given, uids)

    async def system() -> None:
        found = await series.total("power", None, *hour)
        if not (found.counts == given.nodes).all() or not found.sums.min() > 0:
            raise SystemExit("the power of the system is not all known")

    return {
        "job_stats_ms": await _median_ms(lambda: _job(series, scattered, hour)),
        "job_stats_cpu_ms": await _median_ms(lambda: _job(series, scattered, hour), time.process_time),
        "job_stats_side_by_side_ms": await _median_ms(lambda: _job(series, uids[: given.job], hour)),
        "system_power_ms": await _median_ms(system),
        "node_history_ms": await _median_ms(lambda: series.window("power", uids[:1], *hour)),
        "all_nodes_latest_ms": await _median_ms(lambda: series.latest("power", None, math.inf)),
    }


async def _job(series: Series, nodes: npt.NDArray[np.int64], hour: tuple[float, float]) -> None:
    found = await series.energy(nodes, *hour)
    used = found.joules
    stats = (used.sum(), used.mean(), used.std(), used.max(), used.min(), found.peak.max())
    if not (found.known > 0.999).all() or not all(map(math.isfinite, stats)):
        raise SystemExit("the energy of the job is not all known")


def _scattered(given: argparse.Namespace, uids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.sort(np.random.default_rng(given.seed).choice(uids, given.job, replace=False))


async def _counters(
    given: argparse.Namespace, series: Series, uids: npt.NDArray[np.int64], hour: tuple[float, float]
) -> Figures:
    """Every node has an energy counter too, read every ten seconds."""
    begun = np.random.default_rng(given.seed).integers(0, 10**9, len(uids)).astype(float)
    for second in range(0, given.bulk, 10):
        shown = begun + 300.0 * second
        await series.append([Samples(metric="energy", time=float(BEGIN + second), uids=uids, values=shown)])
    scattered = _scattered(given, uids)
    return {"job_stats_with_counters_ms": await _median_ms(lambda: _job(series, scattered, hour))}


async def _live(given: argparse.Namespace, series: Series, machine: Machine) -> Figures:
    spent = 0.0
    worst = 0.0
    begun = time.monotonic()
    for second in range(given.live):
        (samples,) = machine.batch(1)
        cpu, wall = time.process_time(), time.perf_counter()
        await series.append([samples])
        if second % 5 == 4 and not given.real_time:
            await series.flush()
        worst = max(worst, time.perf_counter() - wall)
        if given.real_time:
            await asyncio.sleep(max(0.0, begun + second + 1 - time.monotonic()))
        spent += time.process_time() - cpu
    return {"live_cores": spent / given.live, "live_seconds": given.live, "append_worst_ms": worst * 1000}


async def _against_sql(
    given: argparse.Namespace,
    series: Series,
    uids: npt.NDArray[np.int64],
    hour: tuple[float, float],
    address: str,
    bulk: float,
) -> Figures:
    """The same samples of some nodes, as rows of a table."""
    some = uids[: given.copied]
    found = await series.window("power", some, *hour)
    rows = np.zeros(found.values.size, _ROW)
    rows["n"], rows["l1"], rows["l2"], rows["l3"] = 3, 8, 8, 8
    rows["t"], rows["u"], rows["v"] = (
        np.repeat(found.times, len(some)),
        np.tile(some, len(found.times)),
        found.values.ravel(),
    )
    data = rows.tobytes()
    say(f"{len(rows):,} rows for PostgreSQL", quiet=given.json)
    with _table(address) as db:
        gauge = Gauge()
        with db.cursor() as cursor, cursor.copy("COPY plain FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
            for first in range(0, len(data), 1 << 20):
                copy.write(data[first : first + (1 << 20)])
            copy.write(b"\xff\xff")
        copied = len(rows) / gauge.seconds
        db.execute("CREATE INDEX ON plain (uid, time)")
        db.execute("VACUUM ANALYZE plain")
        size = db.execute("SELECT pg_total_relation_size('plain')").fetchone()
        sql_job = _sql_ms(
            db,
            "SELECT sum(j), avg(j), stddev_pop(j), max(j), min(j) FROM (SELECT uid, sum(value) AS j FROM plain"
            " WHERE uid <= %s AND time >= %s AND time < %s GROUP BY uid) AS used",
            (int(some[-1]), *hour),
        )
        sql_system = _sql_ms(
            db, "SELECT time, sum(value) FROM plain WHERE time >= %s AND time < %s GROUP BY time", hour
        )
    our_job = await _median_ms(lambda: series.energy(some, *hour))
    our_system = await _median_ms(lambda: series.total("power", some, *hour))
    return {
        "copy_samples_per_s": copied,
        "ratio_to_copy": bulk / copied,
        "copied_nodes": given.copied,
        "sql_job_ms": sql_job,
        "same_job_ms": our_job,
        "job_ratio_to_sql": sql_job / our_job,
        "sql_power_ms": sql_system,
        "same_power_ms": our_system,
        "power_ratio_to_sql": sql_system / our_system,
        "sql_bytes_per_sample": (size[0] if size else 0) / len(rows),
    }


async def _in_postgres(given: argparse.Namespace, address: str) -> Figures:
    """Ten minutes of chunks in PostgreSQL."""
    series = Series.in_postgres(address, "bench", clock=lambda: math.inf)
    await series.start()
    seconds, many = 0.0, min(600, given.bulk)
    try:
        machine = Machine(given.nodes, given.seed)
        for first in range(0, many, 60):
            batch = machine.batch(min(60, many - first))
            gauge = Gauge()
            await series.append(batch)
            seconds += gauge.seconds
    finally:
        await series.close()
    return {"postgres_bulk_samples_per_s": given.nodes * many / seconds}


@contextlib.contextmanager
def _table(address: str) -> Iterator[psycopg.Connection[tuple[float, ...]]]:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE TABLE plain (time double precision, uid bigint, value double precision)")
        yield db
        db.execute("DROP TABLE plain")


def _sql_ms(db: psycopg.Connection[tuple[float, ...]], statement: str, values: tuple[float, ...]) -> float:
    found = []
    for _ in range(3):
        gauge = Gauge()
        db.execute(statement.encode(), values).fetchall()
        found.append(gauge.seconds * 1000)
    return statistics.median(found)


async def _median_ms(ask: Callable[[], Awaitable[object]], clock: Callable[[], float] = time.perf_counter) -> float:
    found = []
    for _ in range(5):
        begun = clock()
        await ask()
        found.append((clock() - begun) * 1000)
    return statistics.median(found)


if __name__ == "__main__":
    main(run)
