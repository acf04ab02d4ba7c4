"""Webhooks over real sockets: alerts arrive, signed, once a receiver is able to take them; nobody waits for it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from strata.core.errors import BadRequest, NotFound
from strata.fleet.access.sealing import Seal
from strata.hardware.alerts.records import Alert
from strata.hardware.webhooks.webhooks import DELIVERY, SIGNATURE, PostSettings, Webhooks
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Put

SECRET = b"correct horse battery staple"


class Receiver:
    """Takes deliveries, after misbehaving as it was told to."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        self.tricks: list[str] = []
        self.asked = 0
        self.elsewhere = 0
        self.url = ""
        self.queries: list[str] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/hook", self._hook)
        app.router.add_route("*", "/elsewhere", self._elsewhere)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/hook"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _hook(self, request: web.Request) -> web.Response:
        self.asked += 1
        body = await request.read()
        trick = self.tricks.pop(0) if self.tricks else ""
        if trick == "hang up":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if trick == "redirect":
            return web.Response(status=307, headers={"Location": "/elsewhere"})
        if trick == "sleep":
            await asyncio.sleep(30)
        if trick.isdigit():
            return web.Response(status=int(trick), text="secret inner workings")
        self.raw.append(body)
        self.queries.append(request.query_string)
        self.headers.append(dict(request.headers))
        self.bodies.append(json.loads(body))
        return web.Response(status=204)

    async def _elsewhere(self, request: web.Request) -> web.Response:
        self.elsewhere += 1
        return web.Response(status=204)

    @property
    def told(self) -> list[str]:
        return [alert["id"] for body in self.bodies for alert in body["alerts"]]


class Marks(dict[str, str]):
    """What would be in a file."""

    def mark(self, name: str) -> str:
        return self.get(name, "")

    def set_mark(self, name: str, value: str) -> None:
        self[name] = value


class Bench:
    """Webhooks over a store that outlives them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.marks = Marks()
        self.seal = Seal([b"k" * 32])
        self.hooks = self.make()

    def make(self, **settings: float) -> Webhooks:
        fast = PostSettings(**{"again_after": 0.01, "again_most": 0.02, "timeout": 60.0, "gather": 0.0} | settings)  # type: ignore[arg-type]
        self.hooks = Webhooks(self.store, Ledger(self.store), self.seal, self.marks, owner="c1", settings=fast)
        return self.hooks


def alert(number: int, **more: Any) -> Alert:
    fields: dict[str, Any] = {"severity": "warning", "worst": "warning", "changed": time.time(), "owner": "c1"}
    fields |= {"node": f"n{number}", "bmc": "", "key": "k", "message": "hot", "first": 1.0, "last": 2.0}
    return Alert(id=f"a{number}", **fields | more)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    found = Bench()
    await found.hooks.start(())
    yield found
    await found.hooks.stop()


async def test_an_alert_is_delivered_with_a_signature_over_the_body(receiver: Receiver, bench: Bench) -> None:
    await bench.hooks.put("alice", "pager", receiver.url, "warning", SECRET)
    bench.hooks.tell([alert(1)])
    await until(lambda: bench.hooks.posts["pager"].delivered == 1)
    expected = hmac.new(SECRET, receiver.raw[0], hashlib.sha256).hexdigest()
    assert receiver.headers[0][SIGNATURE] == f"sha256={expected}"
    assert receiver.headers[0][DELIVERY] == receiver.bodies[0]["id"]
    [told] = receiver.bodies[0]["alerts"]
    assert (told["node"], told["state"], told["severity"]) == ("n1", "open", "warning")


@pytest.mark.slow
@pytest.mark.parametrize("trick", ["500", "429", "404", "hang up", "redirect", "sleep"])
async def test_a_receiver_that_fails_is_tried_again_until_it_takes_it(receiver: Receiver, trick: str) -> None:
    bench = Bench()
    bench.make(timeout=1.0 if trick == "sleep" else 60.0)
    await bench.hooks.start(())
    receiver.tricks = [trick, trick]
    await bench.hooks.put("alice", "pager", receiver.url, "warning", None)
    bench.hooks.tell([alert(1)])
    await until(lambda: bool(bench.hooks.posts["pager"].failing))
    assert "secret" not in bench.hooks.posts["pager"].failing
    await until(lambda: bool(receiver.bodies))
    await until(lambda: not bench.hooks.posts["pager"].failing)
    assert receiver.told == ["a1"]
    assert (receiver.asked, receiver.elsewhere) == (3, 0)
    await bench.hooks.stop()


async def test_a_dead_receiver_holds_up_no_other_and_no_alert(receiver: Receiver, bench: Bench) -> None:
    await bench.hooks.put("alice", "dead", "http://127.0.0.1:9/nobody", "warning", None)
    await bench.hooks.put("alice", "live", receiver.url, "warning", None)
    bench.hooks.tell([alert(i) for i in range(50)])
    await until(lambda: len(receiver.told) == 50)
    await until(lambda: bool(bench.hooks.posts["dead"].failing))
    assert "127.0.0.1" not in bench.hooks.posts["dead"].failing


async def test_a_receiver_hears_only_of_what_is_bad_enough_and_of_its_end(receiver: Receiver, bench: Bench) -> None:
    await bench.hooks.put("alice", "pager", receiver.url, "critical", None)
    bench.hooks.tell([alert(1), alert(2, severity="critical", worst="critical")])
    await until(lambda: receiver.told == ["a2"])
    bench.hooks.tell([alert(1, over=True), alert(2, severity="warning", worst="critical", over=True)])
    await until(lambda: receiver.told == ["a2", "a2"])
    assert receiver.bodies[1]["alerts"][0]["state"] == "over"


async def test_a_storm_goes_in_batches_and_what_cannot_wait_is_counted(receiver: Receiver) -> None:
    bench = Bench()
    bench.make(waiting=250, batch=100)
    await bench.hooks.start(())
    await bench.hooks.put("alice", "pager", receiver.url, "warning", None)
    bench.hooks.tell([alert(i) for i in range(1000)])
    await until(lambda: len(receiver.told) == 250)
    assert receiver.told == [f"a{i}" for i in range(750, 1000)]
    assert [body["dropped"] for body in receiver.bodies] == [750, 0, 0]
    await bench.hooks.stop()


async def test_what_was_not_delivered_before_a_crash_is_delivered_after_it(receiver: Receiver) -> None:
    bench = Bench()
    await bench.hooks.start(())
    await bench.hooks.put("alice", "pager", receiver.url, "warning", None)
    first = alert(1)
    bench.hooks.tell([first])
    await until(lambda: receiver.told == ["a1"])
    receiver.tricks = ["500"] * 1000
    second, foreign = alert(2), alert(3, owner="c2")
    bench.hooks.tell([second])
    await until(lambda: receiver.asked > 2)
    await bench.hooks.stop()
    receiver.tricks = []
    bench.make()
    await bench.hooks.start([first, second, foreign])
    await until(lambda: receiver.told == ["a1", "a2"])
    await bench.hooks.stop()


async def test_a_webhook_that_is_changed_keeps_what_waits(receiver: Receiver, bench: Bench) -> None:
    await bench.hooks.put("alice", "pager", "http://127.0.0.1:9/nobody", "warning", SECRET)
    bench.hooks.tell([alert(1)])
    await until(lambda: bool(bench.hooks.posts["pager"].failing))
    await bench.hooks.put("alice", "pager", receiver.url, "warning", None)
    await until(lambda: receiver.told == ["a1"])
    assert SIGNATURE in receiver.headers[0]  # the secret stayed


async def test_the_secret_is_nowhere_in_the_open(bench: Bench, tmp_path: Path) -> None:
    await bench.hooks.put("alice", "pager", "https://x.example/hook", "warning", SECRET)
    for prefix in ("webhook/", "audit/"):
        for entry in (await bench.store.range(prefix)).entries:
            assert SECRET not in entry.value
    assert "correct" not in repr(bench.hooks.records)


async def test_an_address_is_sealed_and_shown_without_what_may_be_a_secret(bench: Bench, receiver: Receiver) -> None:
    await bench.hooks.put("alice", "pager", f"{receiver.url}?token=s3cret", "warning", None)
    for entry in (await bench.store.range("")).entries:
        assert b"s3cret" not in entry.value, entry.key
    assert bench.hooks.find("pager").url == f"{receiver.url}?[hidden]"
    bench.hooks.tell([alert(1)])
    await until(lambda: bool(receiver.told))
    assert receiver.queries == ["token=s3cret"]


async def test_an_address_that_was_stored_in_the_open_is_sealed_at_the_next_start(receiver: Receiver) -> None:
    bench = Bench()
    old = {"name": "pager", "url": f"{receiver.url}?token=s3cret", "least": "warning", "secret": None}
    await bench.store.txn([Put("webhook/pager", msgspec.msgpack.encode({**old, "author": "alice", "changed": 1.0}))])
    await bench.hooks.start(())
    try:
        found = await bench.store.get("webhook/pager")
        assert found is not None and b"s3cret" not in found.value
        bench.hooks.tell([alert(1)])
        await until(lambda: bool(receiver.told))
        assert receiver.queries == ["token=s3cret"]
    finally:
        await bench.hooks.stop()


async def test_addresses_and_secrets_come_under_the_key_that_seals_now(receiver: Receiver) -> None:
    bench = Bench()
    await bench.hooks.start(())
    await bench.hooks.put("alice", "pager", receiver.url, "warning", SECRET)
    await bench.hooks.stop()
    bench.seal = Seal([b"n" * 32, b"k" * 32])
    await bench.make().start(())
    await bench.hooks.stop()
    bench.seal = Seal([b"n" * 32])  # the old key is gone
    await bench.make().start(())
    bench.hooks.tell([alert(1)])
    await until(lambda: bool(receiver.told))
    assert SIGNATURE in receiver.headers[0]
    await bench.hooks.stop()


@pytest.mark.parametrize("url", ["https://alice:pw@x.example/", "ftp://x.example/", "https:///nowhere"])
async def test_an_address_that_shows_a_password_or_is_none_is_refused(bench: Bench, url: str) -> None:
    with pytest.raises(BadRequest):
        await bench.hooks.put("alice", "pager", url, "warning", None)
    with pytest.raises(NotFound):
        await bench.hooks.delete("alice", "pager")
