"""Nodes that are encoded ahead of time are the same, byte for byte, as those that are put together when asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest
from api_support import Service
from real_service import RealService, real_service

from strata.api.server import ApiServer
from strata.api.services import FrontSecret
from strata.engine.progress import Phase
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.nodes.encoded import EncodedNodes
from strata.fleet.nodes.records import NodeSpec

pytestmark = pytest.mark.slow

ODD = NodeSpec(name="n00003", labels={"state": "ready", "note": "50"}, bmc='http://b/%20"x', location="x9000c0s0b0n1")


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealService]:
    async with real_service(tmp_path) as found:
        yield found


def still(service: Service) -> None:
    """Time stands."""
    clock = service.service.controller.clock
    now, wall = clock.now(), clock.wall()
    clock.now, clock.wall = (lambda: now), (lambda: wall)


def all_of(real: RealService) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.flatnonzero(real.service.registry.alive)


async def test_encoded_nodes_are_what_their_views_would_become(real: RealService) -> None:
    fleet = real.service
    await fleet.replace_node(LOCAL_ADMIN, "n00003", ODD, None)
    await fleet.hold(LOCAL_ADMIN, "n00004", 'a "reason"')
    await fleet.freeze(LOCAL_ADMIN, "group:gpu", "a visit")
    encoded = EncodedNodes(fleet.controller, fleet.view)
    encoded.many(all_of(real))  # what is kept from now on must not be what is shown when it is old
    await fleet.release(LOCAL_ADMIN, "n00004")
    await fleet.hold(LOCAL_ADMIN, "n00005", "another")
    work = fleet.controller.engine.progress
    work.fault[6], work.phase[7] = True, Phase.ACTING
    next(iter(fleet.controller.engine.facts.observers.values())).blind[8] = 1
    still(real)
    views = [msgspec.json.encode(fleet.view.node(index)) for index in all_of(real).tolist()]
    assert encoded.many(all_of(real)) == views
    assert [encoded.one(index) for index in all_of(real).tolist()] == views
    clock = fleet.controller.clock
    later, epoch = clock.now() + 5.5, clock.to_wall(0.0)
    clock.now, clock.wall = (lambda: later), (lambda: epoch + later)
    for index in all_of(real).tolist():
        assert encoded.one(index) == msgspec.json.encode(fleet.view.node(index)), "and grow older as they should"
    assert len({msgspec.json.decode(view)["state"] for view in views}) > 2, "they are not all alike"


async def test_a_page_leaves_out_nodes_that_went_while_it_was_made(
    real: RealService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strata.fleet.nodes import service
    from strata.fleet.nodes.records import NodeQuery

    monkeypatch.setattr(service, "_BREATH", 10)
    last = real.nodes[-1]
    deleting = asyncio.create_task(real.service.delete_node(LOCAL_ADMIN, last, None))

    async def slowly(seconds: float) -> None:
        await deleting

    monkeypatch.setattr(service.asyncio, "sleep", slowly)
    page = await real.service.nodes_json(LOCAL_ADMIN, NodeQuery())
    names = [msgspec.json.decode(item)["name"] for item in page.items]
    assert last not in names
    assert names == sorted(set(real.service.view.names(all_of(real))))


# -- at once, over a socket


@pytest.fixture
async def running(service: Service, tmp_path: Path) -> AsyncIterator[Service]:
    api = ApiServer(service.services, tmp_path / "admin.sock", tmp_path / "front.sock")
    await api.start()
    fleet = service.service
    async with asyncio.timeout(60):
        # One fact of each driver: a first look that is under way would come after time has stopped.
        while not all(
            fleet.view.node(index).facts[variable].seen
            for index in np.flatnonzero(fleet.registry.alive).tolist()
            for variable in ("power", "os", "workload")
        ):
            await fleet.controller.stepped()
    still(service)
    yield service
    await api.stop()


def over(path: Path, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://strata", headers=headers
    )


def same(one: httpx.Response, other: httpx.Response) -> bool:
    """But for ids and lengths of what has no body."""
    own = ("x-request-id", "content-length")
    heads = [{name: value for name, value in reply.headers.items() if name not in own} for reply in (one, other)]
    return one.status_code == other.status_code and one.content == other.content and heads[0] == heads[1]


@pytest.mark.parametrize("name", ["n001", "nowhere", "n..1", "n001?x=1", "n%30%301", "-n", "n001/why"])
async def test_a_node_is_answered_at_once_as_it_is_in_the_usual_way(
    running: Service, tmp_path: Path, name: str
) -> None:
    async with over(tmp_path / "admin.sock", **{"X-Request-ID": "same"}) as client:
        for _ in range(20):
            quick = await client.get(f"/v1/nodes/{name}")
            # A connection that is to be closed, or a name in another spelling, is no matter for the short way.
            usual = await client.get(f"/v1/nodes/{name}", headers={"Connection": "close"})
            if same(quick, await client.get(f"/v1/nodes/{name}")):
                break  # nothing was seen of the node between the two
        usual.headers.pop("connection", None)
        assert same(quick, usual)


async def test_what_a_client_has_already_is_not_sent_again(running: Service, tmp_path: Path) -> None:
    async with over(tmp_path / "admin.sock") as client:
        first = await client.get("/v1/nodes/n001")
        again = await client.get("/v1/nodes/n001", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("/v1/nodes/n001")).content == first.content, "and the connection goes on"


async def test_the_short_way_asks_who_it_is_as_well(running: Service, tmp_path: Path) -> None:
    async with over(tmp_path / "front.sock") as stranger:
        assert (await stranger.get("/v1/nodes/n001")).status_code == 403, "not nginx"
    secret = running.services.get(FrontSecret).value
    async with over(tmp_path / "front.sock", **{"X-Strata-Front-Secret": secret}) as nobody:
        assert (await nobody.get("/v1/nodes/n001")).status_code == 401
        assert (await nobody.get("/v1/nodes/n001", headers={"Authorization": "Bearer x"})).status_code == 401
    async with over(tmp_path / "admin.sock") as client:
        twice = [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]
        assert (await client.get("/v1/nodes/n001", headers=twice)).status_code == 401


async def test_requests_sent_ahead_are_answered_in_their_order(running: Service, tmp_path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "admin.sock"))
    paths = ("/v1/nodes/n001", "/v1/groups", "/v1/nodes/n002", "/v1/nodes/n001")
    writer.write(b"".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in paths))
    bodies = []
    async with asyncio.timeout(60):
        for _ in paths:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            bodies.append(msgspec.json.decode(await reader.readexactly(length)))
    writer.close()
    assert [body.get("name") for body in bodies] == ["n001", None, "n002", "n001"]
