"""What waits to be written: kept while the store is slow or away, each change once, and the oldest dropped last."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from strata.core.errors import Unavailable
from strata.engine.effects import Change
from strata.fleet.history import recorder, transitions
from strata.fleet.history.recorder import HistoryRecorder
from strata.store.memory import MemoryStore

UIDS = np.arange(100, dtype=np.int64)


class HeldStore(MemoryStore):
    """Writes when it is let, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.away = False

    async def txn(self, *arguments: Any, **named: Any) -> Any:
        self.asked.set()
        await self.let.wait()
        if self.away:
            raise Unavailable("the store is away")
        return await super().txn(*arguments, **named)


def note(recorder: HistoryRecorder, cause: str, nodes: int) -> None:
    change = Change("power", "off", "on", "bmc", cause, np.arange(nodes, dtype=np.int64))
    recorder.add([change], UIDS, 1000.0, {})


async def causes(store: MemoryStore) -> list[str]:
    page = await store.range(transitions.PREFIX)
    rows = (transitions.decode(entry.value, entry.key) for entry in page.entries)
    return [change.cause for row in rows for change in row.changes]


@pytest.fixture
async def store() -> HeldStore:
    return HeldStore()


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryRecorder, "_ours", lambda self, changes, epochs: list(changes))


@pytest.mark.usefixtures("led")
async def test_what_comes_while_something_is_written_is_never_dropped_in_its_place(
    store: HeldStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST_WAITING", 30)
    history = HistoryRecorder(store, "c", None, shards=1)
    note(history, "first", 20)
    writing = asyncio.create_task(history.flush())
    await store.asked.wait()
    note(history, "second", 8)
    note(history, "third", 8)  # too many by now: the second is dropped, and the first is being written
    store.let.set()
    await writing
    await history.flush()
    assert await causes(store) == ["first", "third"]


@pytest.mark.usefixtures("led")
async def test_what_could_not_be_written_is_written_later_in_its_order(store: HeldStore) -> None:
    history = HistoryRecorder(store, "c", None, shards=1)
    note(history, "first", 5)
    store.away = True
    store.let.set()
    with pytest.raises(Unavailable):
        await history.flush()
    note(history, "second", 5)
    store.away = False
    await history.flush()
    assert await causes(store) == ["first", "second"]
