"""Watching: events in order, resumed where one left off, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from api_support import Service, open_service

from strata.api.services import Limits, Watchers
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.store.protocol import Event


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


class Watches:
    """How many watches of the store are open, of those that began since this was made."""

    def __init__(self, service: Service) -> None:
        self.open = 0
        self._watch = service.store.watch
        service.store.watch = self._counted  # type: ignore[method-assign]

    async def _counted(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        self.open += 1
        try:
            async with aclosing(self._watch(prefix, start=start)) as stream:  # type: ignore[type-var]
                async for events in stream:
                    yield events
        finally:
            self.open -= 1


async def hold(service: Service, node: str) -> None:
    """Something happens to a node."""
    await service.service.hold(LOCAL_ADMIN, node, "a visit")


def held(watcher: Watcher) -> list[str]:
    """The nodes of which a hold was told."""
    return [json.loads(event["data"])["node"] for event in watcher.events if event["event"] == "hold"]


async def test_events_come_as_they_happen_from_the_first_answer_on_with_their_revision(service: Service) -> None:
    async with watching(service) as watcher:
        await hold(service, "n001")
        await hold(service, "n002")
        await watcher.until(lambda: len(held(watcher)) == 2)
    first, second = (event for event in watcher.events if event["event"] == "hold")
    told = json.loads(first["data"])
    assert (told["node"], told["reason"], told["author"]) == ("n001", "a visit", LOCAL_ADMIN.name)
    assert int(second["id"]) > int(first["id"])


async def test_a_client_that_comes_back_sees_every_event_once(service: Service) -> None:
    before = await service.store.revision()
    async with watching(service) as watcher:
        await hold(service, "n000")
        await watcher.until(lambda: bool(held(watcher)))
    last = watcher.events[-1]["id"]
    await hold(service, "n001")
    await hold(service, "n002")
    async with watching(service, f"since={before}", last) as again:
        await again.until(lambda: len(held(again)) == 2)
    assert held(again) == ["n001", "n002"]


async def test_who_comes_back_too_late_is_told_to_list_again(service: Service) -> None:
    await service.store.compact(5)
    async with watching(service, "since=1") as watcher:
        await watcher.until(lambda: watcher.done)
    assert watcher.events[0]["event"] == "compacted"
    assert json.loads(watcher.events[0]["data"])["oldest"] == 6


async def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    limits = Limits(keep_alive=0.01)
    async with open_service(tmp_path, limits=limits) as service, watching(service, "select=n001") as watcher:
        await watcher.until(lambda: watcher.text.count(": still here") >= 2)
    assert held(watcher) == []


async def test_a_client_that_leaves_leaves_nothing_behind(service: Service) -> None:
    watches = Watches(service)
    async with watching(service) as watcher:
        await hold(service, "n000")
        await watcher.until(lambda: bool(held(watcher)))
        assert (service.services.get(Watchers).count, watches.open) == (1, 1)
    assert (service.services.get(Watchers).count, watches.open) == (0, 0)


async def test_a_client_that_takes_nothing_is_dropped_and_costs_no_memory(tmp_path: Path) -> None:
    async with open_service(tmp_path, limits=Limits(stalled=0.05)) as service:
        watches = Watches(service)
        async with watching(service) as watcher:
            watcher.taking.clear()
            for _ in range(50):
                await hold(service, "n000")
                await service.service.release(LOCAL_ADMIN, "n000")
            async with asyncio.timeout(60):
                while service.services.get(Watchers).count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert watches.open == 0


async def test_only_so_many_may_watch(tmp_path: Path) -> None:
    async with (
        open_service(tmp_path, limits=Limits(watchers=1)) as service,
        watching(service),
        watching(service) as second,
    ):
        assert second.status == 503


async def test_watchers_are_sent_away_when_the_service_stops(service: Service) -> None:
    watches = Watches(service)
    async with watching(service) as watcher:
        service.services.get(Watchers).stopping.set()
        await watcher.until(lambda: watcher.done)
    assert watches.open == 0
