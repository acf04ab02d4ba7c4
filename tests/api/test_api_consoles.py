"""Consoles over REST, with the real service behind it: who may read whose, and that following resumes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from real_service import RealService, real_service

from strata.api.app import create_app
from strata.api.services import Watchers
from strata.hardware.consoles.capture import Status
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.service import ConsoleService

pytestmark = pytest.mark.slow


class Site:
    """The service, and the log behind it."""

    def __init__(self, real: RealService, log: ConsoleLog) -> None:
        self.real = real
        self.log = log
        self.node = real.nodes[0]

    async def print(self, node: str, *texts: str) -> None:
        written = asyncio.Event()
        self.log.listeners.append(lambda *_: written.set())
        self.log.append(node, "serial", texts)
        await asyncio.wait_for(written.wait(), 60)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with real_service(tmp_path) as real:
        yield Site(real, real.of(ConsoleService)._log)


async def test_the_last_lines_are_read(site: Site) -> None:
    await site.print(site.node, "one", "two", "three")
    async with site.real.client() as client:
        found = (await client.get(f"/v1/nodes/{site.node}/console?lines=2")).json()
        assert [(line["id"], line["text"], line["source"]) for line in found["items"]] == [
            (2, "two", "serial"), (3, "three", "serial"),
        ]  # fmt: skip
        listed = (await client.get(f"/v1/consoles?select={site.node}")).json()["items"]
        assert [(item["node"], item["lines"], item["way"]) for item in listed] == [(site.node, 3, "none")]
        assert (await client.get("/v1/nodes/absent/console")).status_code == 404
        assert (await client.get(f"/v1/nodes/{site.node}/console?lines=-1")).status_code == 400


async def test_an_operator_types_at_a_console_and_a_viewer_does_not(site: Site) -> None:
    node, path = site.node, f"/v1/nodes/{site.node}/console/keys"
    typed: list[bytes] = []
    capture = site.real.of(ConsoleService)._capture
    keys = {"data": base64.b64encode(b"root\r").decode()}
    async with site.real.client() as client:
        closed = await client.post(path, json=keys)
        assert closed.status_code == 409 and "its console is not open" in closed.json()["detail"]
        capture.status[node] = Status(way="socket", connected=True)
        capture._keys[node] = SimpleNamespace(put_nowait=typed.append)  # type: ignore[assignment]
        for _ in range(3):
            assert (await client.post(path, json=keys)).status_code == 204
        assert (await client.post(path, json={"data": ""})).status_code == 400
        assert (await client.post("/v1/nodes/absent/console/keys", json=keys)).status_code == 404
        noted = [
            entry for entry in (await client.get("/v1/audit")).json()["items"] if entry["action"] == "console.type"
        ]
    assert typed == [b"root\r"] * 3
    assert [entry["target"] for entry in noted] == [node], "that somebody types is noted, what is not"
    assert "cm9vd" not in str(noted) and "root" not in str(noted[0].get("detail"))
    for role, status in (("viewer", 403), ("operator", 204)):
        async with site.real.client("front", await site.real.token(role)) as other:
            assert (await other.post(path, json=keys)).status_code == status, role


async def test_lines_are_searched_over_many_nodes(site: Site) -> None:
    await site.print(site.real.nodes[0], "Kernel panic - not syncing", "quiet")
    await site.print(site.real.nodes[1], "another kernel PANIC")
    async with site.real.client() as client:
        found = (await client.get("/v1/consoles/search?text=kernel%20panic")).json()
        assert [hit["node"] for hit in found["items"]] == [site.real.nodes[1], site.real.nodes[0]]
        assert found["whole"]
        one = (await client.get(f"/v1/consoles/search?text=panic$&regex=true&select={site.real.nodes[1]}")).json()
        assert [hit["line"]["text"] for hit in one["items"]] == ["another kernel PANIC"]
        wrong = await client.get("/v1/consoles/search?text=(&regex=true")
        assert (wrong.status_code, "not a pattern" in wrong.json()["detail"]) == (400, True)
        assert (await client.get("/v1/consoles/search")).status_code == 400


async def test_an_excerpt_is_found_by_its_reference(site: Site) -> None:
    await site.print(site.node, "1", "2", "3")
    _, node, lines = (await site.log.keep(site.node, 1, 2)).split(":")
    async with site.real.client() as client:
        assert (await client.get(f"/v1/nodes/{node}/console/dumps")).json() == {"items": [lines]}
        found = (await client.get(f"/v1/nodes/{node}/console/dumps/{lines}")).json()
        assert [line["text"] for line in found["items"]] == ["1", "2"]
        assert (await client.get(f"/v1/nodes/{node}/console/dumps/7-9")).status_code == 404
        assert (await client.get(f"/v1/nodes/{node}/console/dumps/..%2f..")).status_code in (400, 404)


async def test_only_those_who_may_read_consoles_do_and_only_their_own(site: Site) -> None:
    inside = site.real.service.view.names(site.real.service.registry.select("@gpu"))[0]
    outside = next(name for name in site.real.nodes if name not in site.real.service.view.names(
        site.real.service.registry.select("@gpu")
    ))  # fmt: skip
    for node in (inside, outside):
        await site.print(node, "canary")
    viewer, operator = await site.real.token("viewer"), await site.real.token("operator", ("gpu",))
    async with site.real.client("front", viewer) as client:
        for path in ("/v1/consoles", "/v1/consoles/search?text=x", f"/v1/nodes/{inside}/console"):
            assert (await client.get(path)).status_code == 403
    async with site.real.client("front", operator) as client:
        assert (await client.get(f"/v1/nodes/{inside}/console")).status_code == 200
        for more in ("", "/follow", "/dumps", "/dumps/1-2"):
            assert (await client.get(f"/v1/nodes/{outside}/console{more}")).status_code == 404
        hits = (await client.get("/v1/consoles/search?text=canary")).json()["items"]
        assert [hit["node"] for hit in hits] == [inside]
        listed = (await client.get("/v1/consoles")).json()["items"]
        assert outside not in {item["node"] for item in listed}


class Follower:
    """A client of the stream, on the bare application: httpx would wait for its end."""

    def __init__(self, site: Site, path: str, headers: dict[str, str] | None = None) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "server": ("x", 1),
            "client": ("x", 1), "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
        }  # fmt: skip
        self._task = asyncio.create_task(create_app(site.real.services, "admin")(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._gone.is_set() and self._chunks.empty() and not getattr(self, "_asked", False):
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self._chunks.put_nowait(message.get("body", b""))

    async def lines(self, count: int) -> list[tuple[int, str]]:
        """The next lines: (id, text)."""
        found: list[tuple[int, str]] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                for event in (await self._chunks.get()).split(b"\n\n"):
                    if event.startswith(b"id:"):
                        data = json.loads(event.partition(b"data: ")[2])
                        found.append((data["id"], data["text"]))
        return found

    async def leave(self) -> None:
        self._gone.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(self._task, 60)


async def test_following_resumes_after_the_last_line_seen(site: Site) -> None:
    await site.print(site.node, "1", "2", "3")
    path = f"/v1/nodes/{site.node}/console/follow"
    first = Follower(site, f"{path}?since=1")
    assert await first.lines(2) == [(2, "2"), (3, "3")]
    await site.print(site.node, "4")
    assert await first.lines(1) == [(4, "4")]
    await first.leave()
    await site.print(site.node, "5", "6")
    again = Follower(site, path, {"Last-Event-ID": "4"})
    assert await again.lines(2) == [(5, "5"), (6, "6")]
    await again.leave()
    assert site.real.services.get(Watchers).count == 0


async def test_nothing_is_resumed_after_what_never_was(site: Site) -> None:
    async with site.real.client() as client:
        answer: httpx.Response = await client.get(f"/v1/nodes/{site.node}/console/follow?since=99")
        assert (answer.status_code, "newest line is 0" in answer.text) == (400, True)
