"""How fast the stores are: SQLite (embedded) and a real etcd (one member), next to raw SQLite in the same run.

    .venv/bin/python bench/store.py --json

``single``: one writer, one put a transaction, each waited for. ``many``: 64 writers, the same. ``puts``: as many puts
in a transaction as the store takes, up to 1,000. ``watch``: from the sending of a put to its arrival at a watcher.
Raw SQLite is a plain table of keys and values, with the same journal and the same syncs, without revisions, past
versions, watches or leases: what the disk and the library can do at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import socket
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import uvloop
from measure import Figures, arguments, child, main, percentile, say, scratch, show, wait_until

from strata.store.open import open_store
from strata.store.protocol import Op, Put, Store

SIZE = 200
"""Bytes of a value: about what a node's description weighs."""

BATCH = 1000
WRITERS = 64
TURNS = 8


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each phase")
    parser.add_argument("--no-etcd", action="store_true", help="leave etcd out")
    given = parser.parse_args()
    figures: Figures = {"seconds_per_phase": given.seconds, "value_bytes": SIZE}
    with scratch() as directory, contextlib.closing(Raw(directory / "raw.db")) as raw:
        stores: dict[str, contextlib.AbstractContextManager[str]] = {
            "sqlite": contextlib.nullcontext(f"sqlite:{directory / 'store.db'}")
        }
        if not given.no_etcd:
            stores["etcd"] = _etcd(directory / "etcd")
        for name, address in stores.items():
            say(name, quiet=given.json)
            with address as url:
                found = uvloop.run(_measure(url, raw, given.seconds))
            figures |= {f"{name}_{key}": value for key, value in found.items()}
    show(figures, as_json=given.json)


# -- the stores


async def _measure(url: str, raw: Raw, seconds: float) -> Figures:
    store = open_store(url)
    batch = min(BATCH, store.max_ops)
    try:
        # The large ones first: they make the journals as large as they get, and a sync of a growing file is slower.
        puts = await _held_against(raw, BATCH, seconds, lambda part: _batches(store, batch, part))
        single = await _held_against(raw, 1, seconds, lambda part: _writers(store, 1, part))
        many = await _writers(store, WRITERS, seconds)
        latencies = await _watch(store, seconds)
    finally:
        await store.close()
    return {
        "single_per_s": single[0],
        "single_raw_sqlite_per_s": single[1],
        "single_ratio_to_raw_sqlite": single[0] / single[1],
        f"many{WRITERS}_per_s": many,
        "puts_per_s": puts[0],
        "puts_raw_sqlite_per_s": puts[1],
        "puts_ratio_to_raw_sqlite": puts[0] / puts[1],
        "puts_in_a_transaction": batch,
        "watch_p50_ms": statistics.median(latencies) * 1000,
        "watch_p99_ms": percentile(sorted(latencies), 0.99) * 1000,
    }


async def _held_against(
    raw: Raw, size: int, seconds: float, measure: Callable[[float], Awaitable[float]]
) -> tuple[float, float]:
    """The store and raw SQLite in turns, so that a disk that is busy with others for a while slows both; neither has
    to wait for what the other left to be written."""
    part = seconds / TURNS
    ours, theirs = [], []
    for _ in range(TURNS):
        os.sync()
        ours.append(await measure(part))
        os.sync()
        theirs.append(raw.upserts(size, part))
    return statistics.median(ours), statistics.median(theirs)


async def _writers(store: Store, count: int, seconds: float) -> float:
    """Transactions a second with ``count`` writers, each on keys of its own."""
    end = time.perf_counter() + seconds

    async def write(number: int) -> int:
        for done in itertools.count():
            if time.perf_counter() >= end:
                return done
            await store.txn([Put(f"w/{count}/{number}/{done % 100:03d}", _value(done))])
        raise AssertionError("unreachable")

    begun = time.perf_counter()
    done = await asyncio.gather(*(write(number) for number in range(count)))
    return sum(done) / (time.perf_counter() - begun)


async def _batches(store: Store, size: int, seconds: float) -> float:
    """Puts a second in transactions of ``size``, two under way at a time, over 100,000 keys."""
    begun = time.perf_counter()
    end = begun + seconds
    batches = itertools.count()

    async def write() -> int:
        done = 0
        while time.perf_counter() < end:
            first = next(batches) * size
            ops: list[Op] = [Put(f"b/{key % 100_000:06d}", _value(key)) for key in range(first, first + size)]
            await store.txn(ops)
            done += size
        return done

    return sum(await asyncio.gather(write(), write())) / (time.perf_counter() - begun)


async def _watch(store: Store, seconds: float) -> list[float]:
    """Seconds from the sending of a put until a watcher has it."""
    sent: dict[int, float] = {}
    found: list[float] = []
    arrived = asyncio.Event()

    async def follow() -> None:
        async with contextlib.aclosing(store.watch("watched/", start=start)) as stream:  # type: ignore[type-var]
            async for events in stream:
                now = time.perf_counter()
                for event in events:
                    found.append(now - sent.pop(int(event.key.rpartition("/")[2])))
                arrived.set()

    start = await store.revision() + 1
    watcher = asyncio.create_task(follow())
    end = time.perf_counter() + seconds
    try:
        for number in itertools.count():
            if time.perf_counter() >= end and len(found) > 1:
                return found[1:]  # the first also waits for the watch to begin
            arrived.clear()
            sent[number] = time.perf_counter()
            await store.txn([Put(f"watched/{number}", _value(number))])
            await asyncio.wait_for(arrived.wait(), 10)
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
    raise AssertionError("unreachable")


def _value(number: int) -> bytes:
    """A value that no key had before: SQLite does not write what is there already."""
    return number.to_bytes(8, "big") + bytes(SIZE - 8)


# -- what they are held against


class Raw:
    """A plain table of keys and values."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute("CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self._next = 0

    def upserts(self, size: int, seconds: float) -> float:
        """Upserts a second, ``size`` in a transaction, over 100,000 keys."""
        statement = "INSERT INTO kv VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        begun, first = time.perf_counter(), self._next
        while time.perf_counter() < begun + seconds:
            keys = range(self._next, self._next + size)
            with self._db:
                self._db.executemany(statement, [(f"b/{key % 100_000:06d}", _value(key)) for key in keys])
            self._next += size
        return (self._next - first) / (time.perf_counter() - begun)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


@contextlib.contextmanager
def _etcd(directory: Path) -> Iterator[str]:
    """A real etcd with one member: the address of a store in it."""
    binary = shutil.which("etcd")
    if binary is None:
        raise SystemExit("etcd is not installed; as root: apt-get install etcd-server (or use --no-etcd)")
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        client, peer = (each.getsockname()[1] for each in sockets)
    command = [
        binary,
        "--name=bench",
        f"--data-dir={directory}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=bench=http://127.0.0.1:{peer}",
        "--log-level=error",
    ]

    def healthy() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{client}/health", timeout=2) as reply:
                return b'"true"' in reply.read()
        except OSError:
            return False

    environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": ""}
    with child(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until("etcd", healthy, process)
        yield f"etcd://127.0.0.1:{client}/bench"


if __name__ == "__main__":
    main(run)
