"""The one way to keep records, over every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import Conflict, NotFound
from strata.core.redact import redact
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Put, Store
from strata.store.records import Records
from strata.store.sqlite.store import SqliteStore


class Lamp(msgspec.Struct, frozen=True):
    """Something to keep."""

    watts: int


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "strata.db")
    yield made
    await made.close()


@pytest.fixture
async def lamps(store: Store) -> AsyncIterator[Records[Lamp]]:
    made = of(store)
    await made.start()
    yield made
    await made.stop()


def of(store: Store) -> Records[Lamp]:
    return Records(store, Ledger(store), Lamp, kind="lamp", listed_by="strata lamp list")


async def actions(store: Store) -> list[tuple[str, str, str]]:
    return [(one.author, one.action, one.target) for one in await Ledger(store).entries(0, 100)]


async def test_who_wrote_reads_what_was_written_and_the_audit_log_has_it(store: Store, lamps: Records[Lamp]) -> None:
    await lamps.put("ann", "desk", Lamp(7))
    assert lamps.get("desk") == Lamp(7)
    await lamps.delete("bob", "desk")
    assert lamps.find("desk") is None
    assert await actions(store) == [("ann", "lamp.put", "desk"), ("bob", "lamp.delete", "desk")]


async def test_one_that_is_not_there_is_told_with_how_to_list_them(lamps: Records[Lamp]) -> None:
    with pytest.raises(NotFound, match=r"no lamp named desk.*strata lamp list"):
        lamps.get("desk")
    with pytest.raises(NotFound):
        await lamps.delete("ann", "desk")


async def test_one_that_is_not_there_is_called_what_people_call_it(store: Store) -> None:
    for kind, called, said in (
        ("slurm", "Slurm cluster", "no Slurm cluster named main"),
        ("desk-lamp", "", "no desk lamp named main"),
    ):
        with pytest.raises(NotFound, match=said):
            Records(store, Ledger(store), Lamp, kind=kind, called=called).get("main")


async def test_a_change_that_expects_another_revision_is_refused_and_changes_nothing(
    store: Store, lamps: Records[Lamp]
) -> None:
    await lamps.put("ann", "desk", Lamp(7), expected=0)
    seen = lamps.revision("desk")
    await lamps.put("ann", "desk", Lamp(8), expected=seen)
    with pytest.raises(Conflict) as caught:
        await lamps.put("bob", "desk", Lamp(9), expected=seen)
    assert caught.value.revision == lamps.revision("desk") > seen
    assert lamps.get("desk") == Lamp(8)
    assert len(await actions(store)) == 2


async def test_two_who_change_the_same_one_lose_nothing(store: Store, lamps: Records[Lamp]) -> None:
    await lamps.put("ann", "desk", Lamp(0))
    other = of(store)
    await other.start()

    def brighter(before: Lamp | None) -> Lamp:
        assert before is not None
        return Lamp(before.watts + 1)

    await asyncio.gather(*(one.change("x", "desk", brighter) for one in (lamps, other) * 10))
    await other.stop()
    entry = await store.get("lamp/desk")
    assert entry is not None
    assert msgspec.msgpack.decode(entry.value, type=Lamp) == Lamp(20)


async def test_what_others_write_is_followed_and_told(store: Store) -> None:
    told: list[tuple[str, Lamp | None]] = []
    here = Records(store, Ledger(store), Lamp, kind="lamp", changed=lambda name, record: told.append((name, record)))
    await here.start()
    there = of(store)
    await there.start()
    await there.put("ann", "desk", Lamp(7))
    await there.delete("ann", "desk")
    async with asyncio.timeout(120):
        while len(told) < 2:  # noqa: ASYNC110 (the watch has no event)
            await asyncio.sleep(0.01)
    assert told == [("desk", Lamp(7)), ("desk", None)]
    await there.stop()
    await here.stop()


async def test_one_that_cannot_be_read_costs_nobody_the_others(store: Store) -> None:
    await store.txn([Put("lamp/bad", b"\xc1"), Put("lamp/desk", msgspec.msgpack.encode(Lamp(7)))])
    lamps = of(store)
    await lamps.start()
    assert dict(lamps.all) == {"desk": Lamp(7)}
    await lamps.stop()


async def test_a_name_that_is_not_there_can_be_read_also_where_the_kind_sounds_like_a_secret(store: Store) -> None:
    made: Records[Lamp] = Records(store, Ledger(store), Lamp, kind="secret", listed_by="strata secret list")
    with pytest.raises(NotFound) as caught:
        made.get("munge")
    assert "munge" in str(redact(str(caught.value)))
