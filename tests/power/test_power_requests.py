"""One controller keeps the machine's power; another asks it before it starts nodes."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from strata.core.errors import Conflict, Unavailable
from strata.power.capping.ledger import Ledger
from strata.power.capping.ledger_store import LedgerStore, forget
from strata.power.capping.terms import Ratings, Use
from strata.power.site import requests as power_requests
from strata.power.site.requests import PowerRequests, Verdict, Verdicts
from strata.power.telemetry.columns import Uids
from strata.store.memory import MemoryStore
from strata.store.protocol import Delete


async def test_a_question_is_answered_once_and_to_whom_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_requests, "PATIENCE", 60.0)
    store = MemoryStore()
    keeper, other = PowerRequests(store, "keeper"), PowerRequests(store, "other")
    decided: list[list[int]] = []

    async def decide(uids: Uids) -> Verdicts:
        decided.append(uids.tolist())
        return np.where(uids % 2 == 0, Verdict.GRANTED, Verdict.PACED).astype(np.int8)

    asked = asyncio.create_task(other.ask(np.array([1, 2, 4])))
    async with asyncio.timeout(60):
        while not decided:
            await keeper.answer(decide)
            await asyncio.sleep(0)
    await keeper.answer(decide)
    assert (await asked).tolist() == [Verdict.PACED, Verdict.GRANTED, Verdict.GRANTED]
    assert decided == [[1, 2, 4]]
    await store.close()


async def test_nobody_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_requests, "PATIENCE", 0.01)
    store = MemoryStore()
    assert (await PowerRequests(store, "other").ask(np.array([1]))).tolist() == [Verdict.NO_ANSWER]
    await store.close()


def a_ledger(count: int) -> Ledger:
    ratings = Ratings.alike(count, idle=50, boot=150, low=200, high=400)
    return Ledger(ratings, caps=np.arange(count) + 200.0, use=Use.BUSY)


async def test_the_ledger_is_read_back_by_uid_whoever_came_and_went() -> None:
    store = MemoryStore()
    shelf = LedgerStore(store, np.array([3, 5, 9]), lambda: True)
    assert await shelf.load() is None
    await shelf.save(a_ledger(3).snapshot())
    kept = await LedgerStore(store, np.array([5, 7, 9, 11]), lambda: True).load()
    assert kept is not None
    found = Ledger.restore(a_ledger(4).ratings, kept)
    assert found.cap.tolist() == [201.0, 400.0, 202.0, 400.0], "who is new counts as not capped"
    await forget(store)
    assert await LedgerStore(store, np.array([5]), lambda: True).load() is None
    assert not (await store.range("power/")).entries
    await store.close()


async def test_who_lost_the_lead_keeps_nothing_any_more() -> None:
    store = MemoryStore()
    old = LedgerStore(store, np.array([1, 2]), lambda: True)
    await old.load()
    await old.save(a_ledger(2).snapshot())
    new = LedgerStore(store, np.array([1, 2]), lambda: True)
    await new.load()
    changed = a_ledger(2)
    changed.cap[:] = 333.0
    await new.save(changed.snapshot())
    changed.cap[:] = 222.0
    with pytest.raises(Conflict, match="another controller"):
        await old.save(changed.snapshot())
    assert old.lost
    with pytest.raises(Unavailable, match="another controller leads"):
        await LedgerStore(store, np.array([1]), lambda: False).save(b"x")
    await store.close()


async def test_a_damaged_ledger_is_not_the_same_as_none() -> None:
    store = MemoryStore()
    shelf = LedgerStore(store, np.array([1, 2]), lambda: True)
    await shelf.load()
    await shelf.save(a_ledger(2).snapshot())
    [piece] = (await store.range("power/ledger-piece/")).entries
    await store.txn([Delete(piece.key)])
    assert await LedgerStore(store, np.array([1, 2]), lambda: True).load() == b""
    await store.close()
