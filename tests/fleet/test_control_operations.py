"""Operations: durable once accepted, tracked, cancelled between chunks, resumed by whoever is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, Conflict, NotFound, Unavailable
from strata.fleet.operations.operations import Operations, OperationSettings
from strata.fleet.operations.records import OperationError, OperationRow, Step, decode, encode
from strata.store.audit import Ledger, verify
from strata.store.protocol import Put, Store
from support.registry_support import YieldingStore

QUICK = OperationSettings(report_every=0.0, retry_after=0.001)


class Count:
    """Work that counts to ``total``, one chunk each, and stops before a chunk until it is let through."""

    def __init__(self, gate: asyncio.Semaphore | None = None) -> None:
        self.gate = gate
        self.did: list[int] = []

    async def __call__(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        for at in range(position or 0, arguments["total"]):
            if self.gate:
                await self.gate.acquire()
            self.did.append(at)
            bad = at in arguments.get("bad", ())
            yield Step(position=at + 1, done=0 if bad else 1, failed=[(f"n{at}", "no")] if bad else [])


def jobs(store: Store, work: Any, owner: str = "c1", settings: OperationSettings = QUICK) -> Operations:
    made = Operations(store, Ledger(store), owner=owner, settings=settings)
    made.register("count", work)
    return made


async def until(jobs: Operations, job: str, done: int) -> None:
    """Until the store shows so much progress."""
    async with asyncio.timeout(60):
        while (await jobs.show(job)).done < done:  # noqa: ASYNC110 - what is watched is the store
            await asyncio.sleep(0)


async def test_an_operation_is_accepted_tracked_and_done() -> None:
    store = YieldingStore()
    here = jobs(store, Count())
    job = await here.start("count", "alice", 5, {"total": 5, "bad": [1, 3]})
    ended = (await here.wait(job.id)).shown()
    assert (ended.state, ended.total, ended.done, ended.failed, ended.author) == ("done", 5, 3, 2, "alice")
    assert [(error.node, error.detail) for error in ended.errors] == [("n1", "no"), ("n3", "no")]
    assert ended.finished is not None and ended.finished >= ended.created
    assert [(r.author, r.action) for r in await Ledger(store).entries(0)] == [("alice", "operation.start")]


async def test_only_the_first_failures_are_kept_and_all_are_counted() -> None:
    here = jobs(YieldingStore(), Count())
    job = await here.start("count", "alice", 151, {"total": 151, "bad": list(range(150))})
    ended = await here.wait(job.id)
    assert (ended.state, ended.failed, len(ended.errors)) == ("done", 150, 100)


async def test_an_operation_of_which_every_node_failed_has_failed() -> None:
    here = jobs(YieldingStore(), Count())
    job = await here.start("count", "alice", 2, {"total": 2, "bad": [0, 1]})
    assert (await here.wait(job.id)).state == "failed"


async def test_progress_is_written_at_a_bounded_rate() -> None:
    store = YieldingStore()
    here = jobs(store, Count(), settings=OperationSettings(report_every=3600))
    job = await here.start("count", "alice", 1000, {"total": 1000})
    await here.wait(job.id)
    entry = await store.get(f"job/{job.id}")
    assert entry is not None
    assert entry.modified - entry.created == 2, "running, done; and nothing in between"


async def test_a_cancel_stops_between_chunks_and_what_is_done_stays_done() -> None:
    work = Count(asyncio.Semaphore(2))
    here = jobs(YieldingStore(), work)
    job = await here.start("count", "alice", 9, {"total": 9})
    await until(here, job.id, 2)
    assert (await here.cancel(job.id, "bob")).cancel
    work.gate.release()  # type: ignore[union-attr]
    ended = await here.wait(job.id)
    assert (ended.state, ended.done) == ("cancelled", 3)
    assert work.did == [0, 1, 2]
    with pytest.raises(Conflict, match="cancelled already"):
        await here.cancel(job.id, "bob")


async def test_a_cancel_at_another_controller_is_seen() -> None:
    store = YieldingStore()
    await store.txn([Put("controller/c1", b"")])
    gate = asyncio.Semaphore(1)
    here, other = jobs(store, Count(gate)), jobs(store, Count(), owner="c2")
    job = await here.start("count", "alice", 9, {"total": 9})
    await until(here, job.id, 1)
    await other.cancel(job.id, "bob")
    for _ in range(8):
        gate.release()
    ended = await here.wait(job.id)
    assert ended.state == "cancelled" and ended.done < 9


async def test_a_restarted_controller_goes_on_where_it_was() -> None:
    store = YieldingStore()
    first = Count(asyncio.Semaphore(3))
    before = jobs(store, first)
    job = await before.start("count", "alice", 6, {"total": 6})
    await until(before, job.id, 3)
    await before.close()
    assert (await before.show(job.id)).state == "running"
    second = Count()
    after = jobs(store, second)
    assert await after.recover() == [job.id]
    ended = await after.wait(job.id)
    assert (ended.state, ended.done) == ("done", 6)
    assert first.did == [0, 1, 2] and second.did == [3, 4, 5]
    assert await after.recover() == []


async def test_an_operation_is_taken_over_only_when_its_controller_is_gone_and_by_one_only() -> None:
    store = YieldingStore()
    lease = await store.grant(60)
    await store.txn([Put("controller/c1", b"", lease)])
    gate = asyncio.Semaphore(1)
    one = jobs(store, Count(gate))
    work = Count()
    two, three = jobs(store, work, owner="c2"), jobs(store, work, owner="c3")
    job = await one.start("count", "alice", 4, {"total": 4})
    await until(one, job.id, 1)
    assert await two.recover() == []
    await store.revoke(lease)
    taken = await asyncio.gather(two.recover(), three.recover())
    assert sorted(taken) == [[], [job.id]]
    for each in (two, three):
        await each.wait(job.id)
    gate.release()  # the first one wakes up late
    await one.wait(job.id)
    ended = await one.show(job.id)
    assert (ended.state, ended.done, ended.owner) == ("done", 4, "c2" if taken[0] else "c3")
    assert work.did == [1, 2, 3]


async def test_a_cancelled_operation_whose_controller_is_gone_is_over_at_once() -> None:
    store = YieldingStore()
    job = OperationRow(id="1", kind="count", author="alice", created=1, owner="gone", instance="x", state="running")
    await store.txn([Put("job/1", encode(job))])
    here = jobs(store, Count())
    assert (await here.cancel("1", "bob")).state == "cancelled"
    assert await here.recover() == []


async def test_work_that_breaks_ends_the_operation_and_says_why_without_its_inner_text() -> None:
    async def broken(arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        yield Step(position=1, done=1)
        if arguments["how"] == "ours":
            raise BadRequest("the group went away", where="@g")
        raise RuntimeError("s3cret")

    here = jobs(YieldingStore(), broken)
    for how, words in (("ours", "@g: the group went away"), ("bug", "internal error: RuntimeError")):
        job = await here.start("count", "alice", 3, {"how": how})
        ended = await here.wait(job.id)
        assert (ended.state, ended.done, ended.errors) == ("failed", 1, (OperationError(node="", detail=words),))


async def test_a_store_that_is_away_for_a_while_only_delays_an_operation() -> None:
    away = 3

    async def patient(arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        nonlocal away
        for at in range(position or 0, 3):
            if at == 1 and away:
                away -= 1
                raise Unavailable("disk full")
            yield Step(position=at + 1, done=1)

    here = jobs(YieldingStore(), patient)
    job = await here.start("count", "alice", 3, {})
    ended = await here.wait(job.id)
    assert (ended.state, ended.done, away) == ("done", 3, 0)


async def test_a_kind_that_nobody_knows_is_refused_and_an_old_one_fails_in_words() -> None:
    store = YieldingStore()
    here = jobs(store, Count())
    with pytest.raises(BadRequest, match="count"):
        await here.start("dance", "alice", 1, {})
    with pytest.raises(BadRequest, match="twice"):
        here.register("count", Count())
    await store.txn([Put("job/1", encode(OperationRow(id="1", kind="dance", author="alice", created=1, owner="gone")))])
    await here.recover()
    ended = await here.wait("1")
    assert ended.state == "failed" and "does not know operations of kind dance" in ended.errors[0].detail


async def test_operations_are_listed_newest_first_in_pages_and_forgotten_when_old() -> None:
    store = YieldingStore()
    here = jobs(store, Count())
    records = [
        OperationRow(id=f"{i:017x}", kind="count", author="a", created=i, state="done", finished=float(i))
        for i in range(5)
    ]
    await store.txn([Put(f"job/{job.id}", encode(job)) for job in records])
    fresh = await here.start("count", "alice", 1, {"total": 1})
    await here.wait(fresh.id)
    assert [job.id for job in await here.recent(2)] == [fresh.id, records[4].id]
    assert [job.id for job in await here.recent(2, after=records[4].id)] == [records[3].id, records[2].id]
    assert await here.prune(time.time() - 100) == 5
    assert [job.id for job in await here.recent()] == [fresh.id]
    assert (await verify(store)).ok
    with pytest.raises(NotFound):
        await here.show(records[0].id)


def test_a_stored_operation_reads_back_also_one_of_an_older_store() -> None:
    error = OperationError(node="n1", detail="no")
    row = OperationRow(id="1", kind="count", author="a", created=1.5, position={"chunk": 7}, errors=(error,))
    assert decode(encode(row)) == row
    older = {
        "id": "1",
        "kind": "count",
        "author": "a",
        "created": 1.5,
        "position": {"chunk": 7},
        "errors": [("n1", "no")],
    }
    assert decode(msgspec.msgpack.encode(older)) == row


def test_what_is_shown_of_an_operation_has_nothing_that_only_controllers_need() -> None:
    row = OperationRow(id="1", kind="count", author="a", created=1.5, arguments={"password": "x"}, owner="c1")
    assert b"password" not in msgspec.json.encode(row.shown()) and b"owner" not in msgspec.json.encode(row.shown())
