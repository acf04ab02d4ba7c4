"""Watching: events in order, resumed where one left off, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from api_support import Service

from strata.api.services import Limits, Watchers


class Watcher:
    """A client of ``/v1/watch`` that speaks ASGI, so that it can be slow or leave at will."""

    def __init__(self) -> None:
        self.status = 0
        self.text = ""
        self.done = False
        self.news = asyncio.Event()
        self.taking = asyncio.Event()
        self.taking.set()
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.taking.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.text += message["body"].decode()
            self.done = not message.get("more_body", False)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.news.clear()
                await self.news.wait()

    @property
    def events(self) -> list[dict[str, str]]:
        blocks = [block for block in self.text.split("\n\n") if block.startswith(("id:", "event:"))]
        return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


@asynccontextmanager
async def watching(service: Service, query: str = "", last: str = "") -> AsyncIterator[Watcher]:
    watcher = Watcher()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/watch",
        "query_string": query.encode(),
        "headers": [(b"last-event-id", last.encode())] if last else [],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("strata", 80),
        "client": ("test", 1),
        "root_path": "",
    }
    task = asyncio.create_task(service.app()(scope, watcher.receive, watcher.send))
    await watcher.until(lambda: bool(watcher.text))
    yield watcher
    watcher.taking.set()
    watcher.left.set()
    async with asyncio.timeout(60):
        await asyncio.wait({task})


async def test_events_come_as_they_happen_with_their_revision() -> None:
    service = Service()
    async with watching(service) as watcher:
        await service.facade.say("transition", node="n001", new="on")
        await service.facade.say("hold", node="n001")
        await watcher.until(lambda: len(watcher.events) == 2)
    first, second = watcher.events
    assert (first["event"], json.loads(first["data"])) == ("transition", {"node": "n001", "new": "on"})
    assert int(second["id"]) == int(first["id"]) + 1


async def test_a_client_that_comes_back_sees_every_event_once() -> None:
    service = Service()
    async with watching(service) as watcher:
        await service.facade.say("node", name="a")
        await watcher.until(lambda: len(watcher.events) == 1)
    last = watcher.events[0]["id"]
    await service.facade.say("node", name="b")
    await service.facade.say("node", name="c")
    async with watching(service, "since=50", last) as again:
        await again.until(lambda: len(again.events) == 2)
    assert [json.loads(e["data"])["name"] for e in again.events] == ["b", "c"]


async def test_who_comes_back_too_late_is_told_to_list_again() -> None:
    async with watching(Service(), "since=1") as watcher:
        await watcher.until(lambda: watcher.done)
    assert watcher.events[0]["event"] == "compacted"
    assert json.loads(watcher.events[0]["data"])["oldest"] == 5


async def test_silence_is_broken_by_comments() -> None:
    async with watching(Service(limits=Limits(keep_alive=0.01))) as watcher:
        await watcher.until(lambda: watcher.text.count(": still here") >= 2)
    assert watcher.events == []


async def test_a_client_that_leaves_leaves_nothing_behind() -> None:
    service = Service()
    async with watching(service):
        await service.facade.say("node", name="a")
        assert service.services.get(Watchers).count == 1
    assert (service.services.get(Watchers).count, service.facade.watchers) == (0, 0)


async def test_a_client_that_takes_nothing_is_dropped_and_costs_no_memory() -> None:
    service = Service(limits=Limits(stalled=0.05))
    async with watching(service) as watcher:
        watcher.taking.clear()
        for number in range(100):
            await service.facade.say("node", name=str(number))
        async with asyncio.timeout(60):
            while service.services.get(Watchers).count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert service.facade.watchers == 0


async def test_only_so_many_may_watch() -> None:
    service = Service(limits=Limits(watchers=1))
    async with watching(service), watching(service) as second:
        assert second.status == 503


async def test_watchers_are_sent_away_when_the_service_stops() -> None:
    service = Service()
    async with watching(service) as watcher:
        service.services.get(Watchers).stopping.set()
        await watcher.until(lambda: watcher.done)
    assert service.facade.watchers == 0
