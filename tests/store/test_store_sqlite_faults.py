"""What the SQLite store does when the disk fails, the file is damaged, or the process is killed."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_vfs import FaultyDisk
from store_support import Clock, eventually, watching

from strata.core.errors import Conflict, Corrupt, NotFound, Unavailable
from strata.store.open import open_store
from strata.store.protocol import Put
from strata.store.restore import restore
from strata.store.sqlite.store import SqliteStore


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    made = FaultyDisk(f"faulty-{uuid.uuid4().hex}")
    yield made
    made.unregister()


@pytest.mark.parametrize("fault", ["full", "broken", "sync_broken"])
async def test_a_failing_disk_refuses_writes_serves_reads_and_recovers_by_itself(
    disk: FaultyDisk, tmp_path: Path, fault: str
) -> None:
    store = SqliteStore(tmp_path / "s.db", vfs=disk.name)
    revision = await store.txn([Put("a", b"before")])
    setattr(disk, fault, True)
    with pytest.raises(Unavailable):
        await store.txn([Put("a", b"refused")])
    assert disk.refused
    entry = await store.get("a")
    assert entry is not None
    assert (entry.value, entry.modified) == (b"before", revision)
    assert await store.revision() == revision
    setattr(disk, fault, False)
    assert await store.txn([Put("a", b"after")], expect={"a": revision}) == revision + 1
    assert await store.check() == []
    await store.close()


async def test_a_failed_sync_fails_everybody_who_shared_it(disk: FaultyDisk, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", vfs=disk.name)
    await store.txn([Put("k0", b"")])
    disk.sync_broken = True
    results = await asyncio.gather(*(store.txn([Put(f"k{i}", b"")]) for i in range(1, 9)), return_exceptions=True)
    assert all(isinstance(r, Unavailable) for r in results)
    disk.sync_broken = False
    assert [e.key for e in (await store.range("")).entries] == ["k0"]
    await store.close()


async def test_a_refused_change_does_not_come_back_after_a_crash(disk: FaultyDisk, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, vfs=disk.name)
    await store.txn([Put("a", b"kept")])
    disk.sync_broken = True
    with pytest.raises(Unavailable):
        await store.txn([Put("a", b"refused")])
    disk.sync_broken = False

    async def scrubbed() -> bool:
        return not store._refused

    await eventually(scrubbed)
    # The files as a crash would leave them at this moment.
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in ("s.db", "s.db-wal"):
        shutil.copy(tmp_path / file, crashed / file)
    await store.close()
    survivor = SqliteStore(crashed / "s.db")
    entry = await survivor.get("a")
    assert entry is not None
    assert entry.value == b"kept"
    await survivor.close()


async def test_a_watcher_is_not_told_of_a_refused_change(disk: FaultyDisk, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", vfs=disk.name)
    start = await store.revision() + 1
    async with watching(store, "", start) as watcher:
        disk.full = True
        with pytest.raises(Unavailable):
            await store.txn([Put("a", b"refused")])
        disk.full = False
        await store.txn([Put("a", b"done")])
        assert [e.value for e in await watcher.next()] == [b"done"]
    await store.close()


async def test_a_conflict_harms_nobody_who_shares_the_sync(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    results = await asyncio.gather(
        *(store.txn([Put(f"k{i}", b"")], expect={f"k{i}": i % 2}) for i in range(10)), return_exceptions=True
    )
    assert [isinstance(r, Conflict) for r in results] == [False, True] * 5
    assert len((await store.range("k")).entries) == 5
    await store.close()


async def _filled(path: Path) -> None:
    store = SqliteStore(path)
    for start in range(0, 600, 100):
        await store.txn([Put(f"k{i:04}", bytes([i % 256]) * 100) for i in range(start, start + 100)])
    await store.close()


@pytest.mark.slow
async def test_a_flipped_bit_anywhere_in_the_file_is_detected_and_never_served(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await _filled(path)
    whole = path.read_bytes()
    draw = random.Random(7)
    for offset in [*range(24), *(draw.randrange(len(whole)) for _ in range(60))]:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            store = SqliteStore(path)
        except Corrupt:
            continue
        try:
            served = {e.key: e.value for e in (await store.range("")).entries}
        except Corrupt:
            assert await store.check() != [], f"offset {offset}"
        else:
            # The bit is in a page that holds nothing now.
            assert served == {f"k{i:04}": bytes([i % 256]) * 100 for i in range(600)}, f"offset {offset}"
        finally:
            await store.close()


@pytest.mark.parametrize("left", [0, 50, 4096, 20_000, -4096, -1])
async def test_a_truncated_file_is_detected(tmp_path: Path, left: int) -> None:
    path = tmp_path / "s.db"
    await _filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    with pytest.raises(Corrupt, match=r"damaged|lost"):
        SqliteStore(path)


async def test_a_row_damaged_in_place_is_not_served_and_its_neighbours_are(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    await store.txn([Put("good", b"g"), Put("bad", b"b")])
    store._db.execute("UPDATE change SET value = x'63' WHERE key = 'bad'")
    with pytest.raises(Corrupt, match="bad"):
        await store.get("bad")
    with pytest.raises(Corrupt):
        await store.range("")
    assert (await store.range("good")).entries[0].value == b"g"
    assert any("checksum" in finding for finding in await store.check())
    await store.close()


@pytest.mark.parametrize("table", ["entry", "state"])
async def test_a_damaged_pointer_or_state_is_not_believed(tmp_path: Path, table: str) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await store.txn([Put("a", b"1")])
    await store.txn([Put("a", b"2")])
    change = {"entry": "UPDATE entry SET id = id - (1 << 20)", "state": "UPDATE state SET revision = revision + 1"}
    store._db.execute(change[table])
    with pytest.raises(Corrupt):
        await store.range("")
    with pytest.raises(Corrupt):
        await store.txn([Put("a", b"3")])
    assert await store.check() != []
    await store.close()


async def test_a_log_that_lost_its_end_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    await store.txn([Put("a", b"1")])
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    await store.txn([Put("a", b"2")])
    for file in ("s.db", "s.db-wal", "s.db-mark"):
        shutil.copy(tmp_path / file, crashed / file)
    await store.close()
    log = (crashed / "s.db-wal").read_bytes()
    (crashed / "s.db-wal").write_bytes(log[:-200] + bytes(200))
    with pytest.raises(Corrupt, match="acknowledged"):
        SqliteStore(crashed / "s.db")


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "other.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE t (a)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(Unavailable):
        SqliteStore(path)
    assert path.read_bytes() == before


async def test_a_damaged_store_is_set_aside_by_a_restore_and_revisions_do_not_go_back(tmp_path: Path) -> None:
    path, backup = tmp_path / "s.db", tmp_path / "backup"
    store = SqliteStore(path)
    await store.txn([Put("a", b"1")])
    await store.backup(backup)
    last = await store.txn([Put("b", b"after the backup")])
    await store.close()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(Corrupt):
        await restore(backup, f"sqlite:{path}")
    assert await restore(backup, f"sqlite:{path}", overwrite=True) > last
    assert (tmp_path / "s.db.damaged").stat().st_size == 5000


async def test_the_files_are_their_owners_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await store.txn([Put("a", b"1")])
    await store.backup(tmp_path / "backup")
    assert {file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077} == set()
    await store.close()


KILLED = """
import asyncio, sys
from pathlib import Path
from strata.store.protocol import Put
from strata.store.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    number = int(sys.argv[2])
    async def write(writer):
        nonlocal number
        while True:
            number += 1
            mine = number
            revision = await store.txn([Put(f"w/{mine}", b"x" * 200), Put(f"last/{writer}", str(mine).encode())])
            sys.stdout.write(f"{mine} {revision}\\n")
            sys.stdout.flush()
    await asyncio.gather(*(write(i) for i in range(4)))

asyncio.run(main())
"""


@pytest.mark.slow
async def test_what_was_acknowledged_survives_kill_9_and_revisions_never_go_back(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    draw = random.Random(3)
    acknowledged: dict[int, int] = {}
    for round_ in range(4):
        process = subprocess.Popen(  # noqa: ASYNC220 - there is nothing else to do meanwhile
            [sys.executable, "-c", KILLED, str(path), str(round_ * 1_000_000)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        assert process.stdout is not None
        wanted = draw.randrange(50, 800)
        for _ in range(wanted):
            number, revision = process.stdout.readline().split()
            acknowledged[int(number)] = int(revision)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout.read().splitlines():
            if line.count(" ") == 1 and line.split()[1]:
                acknowledged[int(line.split()[0])] = int(line.split()[1])
        process.wait()
        process.stdout.close()
        store = SqliteStore(path)
        stored = {int(e.key[2:]): e.modified for e in (await store.range("w/")).entries}
        assert acknowledged.items() <= stored.items()
        assert await store.revision() >= max(acknowledged.values())
        assert await store.check() == []
        await store.close()


async def test_two_processes_worth_of_stores_share_one_file(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 's.db'}"
    one, other = open_store(url), open_store(url)
    start = await one.revision() + 1
    async with watching(one, "", start) as watcher:
        first = await other.txn([Put("a", b"other")])
        second = await one.txn([Put("b", b"one")], expect={"a": first})
        third = await other.txn([Put("c", b"other")])
        assert (second, third) == (first + 1, first + 2)
        assert [e.key for e in await watcher.until(third)] == ["a", "b", "c"]
    with pytest.raises(Conflict):
        await one.txn([Put("c", b"")], expect={"c": 0})
    await one.close()
    await other.close()


async def test_leases_follow_their_clock_and_not_the_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    lease = await store.grant(10)
    revision = await store.txn([Put("leader", b"me", lease)])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    clock.now += 9
    assert await store.renew(lease)
    clock.now += 9.9
    assert await store.get("leader") is not None
    async with watching(store, "leader", revision + 1) as watcher:
        clock.now += 0.2
        assert (await watcher.next())[0].value is None
    assert not await store.renew(lease)
    with pytest.raises(NotFound):
        await store.txn([Put("leader", b"me", lease)])
    await store.close()


@pytest.mark.parametrize("clock_after", [1060.0, 5.0], ids=["process-was-down", "machine-was-restarted"])
async def test_after_a_restart_a_lease_gets_its_time_anew_and_no_more(tmp_path: Path, clock_after: float) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    renewed, left = await store.grant(10), await store.grant(10)
    await store.txn([Put("renewed", b"", renewed), Put("left", b"", left)])
    await store.close()
    clock.now = clock_after
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    clock.now += 9
    assert await store.renew(renewed)
    clock.now += 2
    assert not await store.renew(left)

    async def gone() -> bool:
        return await store.get("left") is None

    await eventually(gone)
    assert await store.get("renewed") is not None
    await store.close()


async def test_opening_a_store_that_is_in_use_prolongs_nothing(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    lease = await store.grant(10)
    clock.now += 9
    other = SqliteStore(tmp_path / "s.db", clock=clock)
    clock.now += 2
    assert not await other.renew(lease)
    await store.close()
    await other.close()


async def test_the_event_loop_turns_while_the_disk_is_slow(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    write = asyncio.create_task(store.txn([Put(f"k{i}", b"x" * 100) for i in range(10_000)]))
    turns = 0
    while not write.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    await store.close()


async def test_compaction_frees_what_nobody_can_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    for number in range(50):
        last = await store.txn([Put("a", str(number).encode()), Put(f"b{number}", b"")])
    await store.compact(last)
    assert store._db.execute("SELECT count(*) FROM change").get == 51
    assert len((await store.range("", revision=last)).entries) == 51
    await store.close()
    reopened = SqliteStore(tmp_path / "s.db")
    assert await reopened.revision() == last
    assert await reopened.check() == []
    await reopened.close()
