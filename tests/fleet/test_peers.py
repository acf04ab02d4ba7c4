"""Who the other controllers are: how they come and go, and who of them is believed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from strata.core.errors import BadRequest, Conflict
from strata.fleet.controller.leadership import Holder, Leadership
from strata.fleet.peers.open import _compared
from strata.fleet.peers.peers import Peer, Peers
from strata.fleet.settings import LeadershipSettings
from strata.provisioning.layer import _led_for
from strata.store.memory import MemoryStore
from strata.store.protocol import Put


def peer(name: str, **other: str) -> Peer:
    fields = {"url": f"https://{name}:8443", "fingerprint": "CA", "signing": "KEY", "sealing": "SEAL", **other}
    return Peer(controller=name, **fields)


class Known:
    """What ``alpha`` knows of the others."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.troubles: list[tuple[str, str]] = []
        self.announced: dict[str, bytes] = {}
        self.peers = Peers(
            store,
            peer("alpha"),
            announce=self.announced.__setitem__,
            opens=("SEAL", "OLD"),
            compared=lambda found, trouble: self.troubles.append((found.controller, trouble)),
        )

    async def comes(self, found: Peer, key: str = "", lease: int = 0) -> None:
        value = msgspec.msgpack.encode(found)
        await self.store.txn([Put(f"peer/{key or found.controller}", value, lease)])


@pytest.fixture
async def known() -> AsyncIterator[Known]:
    store = MemoryStore()
    made = Known(store)
    await made.peers.start()
    yield made
    await made.peers.stop()
    await store.close()


async def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.005)


async def test_nodes_are_told_of_this_controller_first_and_then_of_all_others(known: Known) -> None:
    assert known.peers.urls() == ("https://alpha:8443",)
    await known.comes(peer("gamma"))
    await known.comes(peer("beta"))
    await until(lambda: len(known.peers.others()) == 2)
    assert known.peers.urls() == ("https://alpha:8443", "https://beta:8443", "https://gamma:8443")
    assert known.troubles == [("gamma", ""), ("beta", "")]


async def test_a_controller_that_goes_is_forgotten_with_its_lease(known: Known) -> None:
    lease = await known.store.grant(60)
    await known.comes(peer("beta"), lease=lease)
    await until(lambda: known.peers.get("beta") is not None)
    await known.store.revoke(lease)
    await until(lambda: known.peers.get("beta") is None)
    assert known.peers.urls() == ("https://alpha:8443",)


async def test_a_controller_with_another_authority_is_not_believed_and_told_of(known: Known) -> None:
    await known.comes(peer("beta", fingerprint="OTHER"))
    await until(lambda: bool(known.troubles))
    [(name, trouble)] = known.troubles
    assert name == "beta"
    assert "authority that nodes of alpha do not trust" in trouble
    assert "copy ca/ into" in trouble
    assert known.peers.others() == ()
    assert known.peers.get("beta") is None
    assert known.peers.urls() == ("https://alpha:8443",)


async def test_a_controller_with_another_signing_key_is_spoken_to_and_told_of(known: Known) -> None:
    await known.comes(peer("beta", signing="OTHER"))
    await until(lambda: bool(known.troubles))
    assert "copy signing/ into" in known.troubles[0][1]
    assert [found.controller for found in known.peers.others()] == ["beta"]
    await known.comes(peer("beta"))
    await until(lambda: len(known.troubles) == 2)
    assert known.troubles[1] == ("beta", "")


async def test_all_that_does_not_fit_is_told_at_once(known: Known) -> None:
    await known.comes(peer("old", sealing="OLD"))  # a key that was there before is still held
    await known.comes(peer("beta", fingerprint="OTHER", signing="OTHER", sealing="OTHER"))
    await until(lambda: len(known.troubles) == 2)
    assert known.troubles[0] == ("old", "")
    assert "copy ca/, signing/, secrets.key into its state directory" in known.troubles[1][1]


async def test_one_that_does_not_fit_and_goes_is_told_of_too(known: Known) -> None:
    lease = await known.store.grant(60)
    await known.comes(peer("beta", fingerprint="OTHER"), lease=lease)
    await until(lambda: len(known.troubles) == 1)
    await known.store.revoke(lease)
    await until(lambda: len(known.troubles) == 2)
    assert known.troubles[1] == ("beta", "")


def test_an_alert_about_a_controller_is_raised_once_and_ends_also_after_a_restart() -> None:
    told: list[tuple[str, str]] = []
    compared = _compared(lambda alarm: told.append((f"{alarm.kind}/{alarm.about}", alarm.severity)))
    for trouble in ("another authority", "another authority", "", ""):
        compared(peer("beta"), trouble)
    assert told == [("controller/beta", "critical"), ("controller/beta", "ok")]
    told.clear()
    started_anew = _compared(lambda alarm: told.append((f"{alarm.kind}/{alarm.about}", alarm.severity)))
    started_anew(peer("beta"), "")
    assert told == [("controller/beta", "ok")], "what was raised before may be open yet"


async def test_nobody_speaks_for_another_and_nothing_unreadable_or_without_tls_counts(known: Known) -> None:
    await known.comes(peer("beta"), key="gamma")
    await known.comes(peer("alpha", fingerprint="OTHER"))
    for number, url in enumerate(("http://delta:8443", "https://d:1 https://e:1", "https://d:1\r\nSet-Cookie: a", "")):
        await known.comes(peer(f"delta{number}", url=url))
    await known.store.txn([Put("peer/broken", b"\xff")])
    await known.comes(peer("last"))
    await until(lambda: known.peers.get("last") is not None)
    assert [found.controller for found in known.peers.others()] == ["last"]


def leadership_of(store: MemoryStore, clock: Callable[[], float], name: str = "alpha", shards: int = 2) -> Leadership:
    async def gained(shards: dict[int, int]) -> None: ...
    async def quiet() -> None: ...
    async def reached(revision: int) -> None: ...

    return Leadership(
        store,
        LeadershipSettings(shards=shards, lease=60.0, renew_every=0.01),
        Holder(name, "1"),
        clock,
        gained=gained,
        lost=lambda shards: None,
        moved=lambda: None,
        quiet=quiet,
        reached=reached,
    )


async def test_a_leader_that_slept_does_not_claim_to_have_listened() -> None:
    store, now = MemoryStore(), [1000.0]
    leadership = leadership_of(store, lambda: now[0])
    await leadership._tick()
    controller = SimpleNamespace(
        leadership=leadership,
        registry=SimpleNamespace(find=lambda name: 0, uids=[0]),
        settings=SimpleNamespace(shards=2),
        clock=SimpleNamespace(now=lambda: now[0]),
    )
    led_for = _led_for(cast("Any", SimpleNamespace(controller=controller)))
    now[0] += 50.0
    assert led_for("n1") == 50.0
    now[0] += 60.0
    assert led_for("n1") == 0.0, "another may lead it by now, and its agent speak to that one"
    await store.close()


async def test_a_controller_that_divides_the_fleet_otherwise_is_refused() -> None:
    store = MemoryStore()
    alpha = leadership_of(store, lambda: 1000.0)
    await alpha.agree()
    same, other = leadership_of(store, lambda: 1000.0, "beta"), leadership_of(store, lambda: 1000.0, "gamma", shards=3)
    await same.agree()
    with pytest.raises(Conflict, match=r"\(alpha, beta\) divide the fleet into 2 shards, this one into 3") as refused:
        await other.agree()
    assert "leadership.shards=2" in refused.value.hint
    assert await store.get("controller/gamma") is None, "it is not counted among them"
    await alpha.resign()
    await same.resign()
    await other.agree()
    with pytest.raises(Conflict, match=r"\(gamma\) divide the fleet into 3 shards"):
        await alpha.agree()
    await store.close()


async def test_who_cannot_be_announced_leads_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    leadership, txn = leadership_of(store, lambda: 1000.0), store.txn

    async def picky(ops: Any, **more: Any) -> int:
        if any(op.key.startswith("holding/") for op in ops):
            raise BadRequest("too large")
        return await txn(ops, **more)

    monkeypatch.setattr(store, "txn", picky)
    leadership.announce("holding/alpha", b"much")
    await leadership._tick()
    assert leadership.epochs.keys() == {0, 1}
    monkeypatch.setattr(store, "txn", txn)
    await leadership._tick()
    assert await store.get("holding/alpha") is not None, "it is tried again"
    await store.close()


async def test_what_is_announced_lives_with_the_lease_and_returns_with_a_new_one() -> None:
    store = MemoryStore()
    leadership = leadership_of(store, asyncio.get_running_loop().time)
    running = asyncio.create_task(leadership.run())

    async def lease_of(key: str) -> int:
        entry = await store.get(key)
        return entry.lease if entry is not None and entry.value == b"here" else 0

    async def changed_from(*leases: int) -> int:
        deadline = time.monotonic() + 120
        while (now := await lease_of("peer/alpha")) in leases:
            assert time.monotonic() < deadline, "it did not come about"
            await asyncio.sleep(0.005)
        return now

    try:
        leadership.announce("peer/alpha", b"here")
        first = await changed_from(0)
        entry = await store.get("shard/0000")
        assert entry is not None
        assert entry.lease == first, "the same lease as that of what it leads"
        assert leadership.since.keys() == {0, 1}
        await store.revoke(first)
        await changed_from(0, first)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    await leadership.resign()
    assert await store.get("peer/alpha") is None
    await store.close()
