"""Connections to BMCs: few to one address, never more than allowed, and what comes over them is not taken on trust."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.connections import Broken, Connections, NotConnected, Reply, TooLong, target
from strata.hardware.bmc.redfish.power import read_power
from strata.virtual.bmc.server import BmcServer, By
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes

PATIENT = RedfishSettings(timeout=60.0, quick=60.0)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def fleet(count: int, by: By) -> AsyncIterator[BmcServer]:
    server = BmcServer(SimNodes(count, timing=Timing(scale=0)), by=by)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Peak:
    """How many connections the other side ever had at a time."""

    def __init__(self, server: BmcServer) -> None:
        self.most = 0
        self._server = server
        handle = server._handle

        def counted(request):
            self.most = max(self.most, len(server._connections))
            return handle(request)

        server._handle = counted


async def read_all(server: BmcServer, settings: RedfishSettings) -> list[str | None]:
    async with RedfishClient(Credentials("root", "simulated"), settings=settings) as client:
        return await asyncio.gather(*(read_power(client, server.url(name)) for name in server.nodes.names))


async def test_bmcs_behind_one_address_share_a_few_connections():
    settings = RedfishSettings(timeout=60.0, quick=60.0, per_origin=4)
    async with fleet(100, "path") as server:
        peak = Peak(server)
        assert await read_all(server, settings) == ["off"] * 100
        assert 1 <= peak.most <= 4


async def test_there_are_never_more_connections_than_allowed_and_every_bmc_is_read():
    settings = RedfishSettings(timeout=60.0, quick=60.0, connections=5)
    async with fleet(30, "port") as server:
        peak = Peak(server)
        assert await read_all(server, settings) == ["off"] * 30
        # The other side may see a new one before it has noticed that an old one was closed.
        assert 1 <= peak.most <= 10


@pytest.mark.slow
async def test_a_wait_for_others_at_the_same_address_does_not_count_as_silence():
    settings = RedfishSettings(timeout=60.0, quick=0.2, per_origin=1)
    async with fleet(20, "path") as server:
        for name in server.nodes.names:
            server.prank(name).latency = 0.02  # all of them together take much longer than one may
        assert await read_all(server, settings) == ["off"] * 20


def test_it_works_on_the_loop_that_the_service_runs_on():
    async def run() -> list[str | None]:
        async with fleet(5, "port") as server:
            return await read_all(server, PATIENT)

    assert uvloop.run(run()) == ["off"] * 5


# -- one connection


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Somebody who answers as told; its address, and the requests that came."""
    heard: list[bytes] = []
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                heard.append(await reader.readuntil(b"\r\n\r\n"))
                await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def says(*pieces: bytes, close: bool = False) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if close:
            writer.close()

    return answer


async def ask(
    connections: Connections, origin: str, path: str = "/", *, method: str = "GET", again: bool = True
) -> Reply:
    return await connections.send(origin, method, path, {}, b"", trust=True, limit=60.0, most=1000, again=again)


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    found = Connections(most=10, per_origin=2)
    yield found
    await found.close()


@pytest.mark.parametrize(
    ("pieces", "close", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], False, b"ok"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"], False, b"ok"),
        ([b"HTTP/1.0 200 OK\r\n\r\no", b"k"], True, b"ok"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], False, b"ok"),
        ([b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"], False, b"ok"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], False, b""),
    ],
    ids=("length", "chunks", "to-the-end", "continue", "newlines", "empty"),
)
async def test_a_reply_is_read_to_its_end_however_that_is_marked(connections, pieces, close, body):
    async with listening(says(*pieces, close=close)) as (origin, _):
        for _ in range(2):
            assert (await ask(connections, origin)).body == body


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (b"<html>", Broken),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", Broken),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, Broken),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", Broken),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", TooLong),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, TooLong),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, TooLong),
    ],
    ids=("page", "half", "endless-header", "upgrade", "said-long", "long", "long-without-length"),
)
async def test_what_is_no_reply_or_too_long_is_an_error_and_the_connection_is_not_used_again(connections, said, wrong):
    async with listening(says(said, close=True)) as (origin, _):
        with pytest.raises(wrong):
            await ask(connections, origin)
        await until(lambda: connections.open == 0)


async def test_a_second_reply_that_nobody_asked_for_is_never_taken_for_the_answer_to_the_next_request(connections):
    two = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none" + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo"
    async with listening(says(two)) as (origin, heard):
        assert (await ask(connections, origin)).body == b"one"
        assert (await ask(connections, origin)).body == b"one"
        assert len(heard) == 2


async def test_a_read_on_a_connection_that_was_just_closed_is_sent_again_and_an_act_is_not(connections):
    async def once_each(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if getattr(writer, "used", False):
            writer.close()  # the second request on a connection gets no answer
            return
        writer.used = True
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with listening(once_each) as (origin, heard):
        await ask(connections, origin)
        await ask(connections, origin)
        assert len(heard) == 3
        with pytest.raises(Broken):
            await ask(connections, origin, method="POST", again=False)
        assert len(heard) == 4


async def test_nobody_there_is_told_from_a_broken_connection(connections):
    async with listening(says(b"")) as (origin, _):
        pass
    with pytest.raises(NotConnected):
        await ask(connections, origin)
    with pytest.raises(NotConnected):
        await ask(connections, "http://name.invalid:1")


async def test_no_answer_in_time_is_a_timeout_and_gives_the_place_back(connections):
    async with listening(says()) as (origin, _):
        for _ in range(5):  # more than there are places
            with pytest.raises(TimeoutError):
                await connections.send(origin, "GET", "/", {}, b"", trust=True, limit=0.01, most=10, again=True)
        await until(lambda: connections.open == 0)


async def test_a_header_cannot_begin_another_line(connections):
    with pytest.raises(ValueError, match="line break"):
        await connections.send(
            "http://127.0.0.1:1", "GET", "/", {"X": "a\r\nY: b"}, b"", trust=True, limit=1.0, most=10, again=True
        )


def test_a_path_is_quoted_where_it_must_be():
    assert target("/redfish/v1/Systems/1?$expand=.($levels=1)") == "/redfish/v1/Systems/1?$expand=.($levels=1)"
    assert target("/redfish/v1/Chassis/a b®") == "/redfish/v1/Chassis/a%20b%C2%AE"
