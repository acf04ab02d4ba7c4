"""The boot server as hostile, slow and hurried clients see it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from strata.core.errors import Unavailable
from strata.provisioning.boot.http import Answer, HttpServer, Limits, Request
from strata.store.sqlite.store import SqliteStore
from support.boot_site import address_of, booting, fetch, mac_of


async def late(answer: Answer) -> Answer:
    await asyncio.sleep(0)
    return answer


def answer(request: Request) -> Answer | Awaitable[Answer]:
    if request.path == "/late":
        return late(Answer(b"late"))
    if request.path == "/broken":
        raise ValueError("canary")
    if request.path == "/large":
        return Answer(bytes(20_000_000))
    return Answer(f"{request.path} {request.query}".encode())


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    found = HttpServer(answer, limits=Limits(arrive=0.5, idle=0.5, per_peer=8, connections=12, header=2048))
    await found.start(["127.0.0.1"], 0)
    yield found
    await found.stop()


async def talk(server: HttpServer, raw: bytes, source: str = "127.0.0.1") -> bytes:
    """What comes back for raw bytes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))
    with contextlib.suppress(ConnectionError):
        writer.write(raw)
        await writer.drain()
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_several_requests_on_one_connection_are_answered_in_order(server: HttpServer) -> None:
    raw = b"GET /a HTTP/1.1\r\n\r\nGET /late HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c?x=1 HTTP/1.0\r\n\r\n"
    found = await talk(server, raw)
    assert found.count(b"HTTP/1.1 200 OK") == 4
    assert [found.index(part) for part in (b"/a ", b"late", b"/c x=1")] == sorted(
        found.index(part) for part in (b"/a ", b"late", b"/c x=1")
    )
    assert b"/b" not in found


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 5000, b"431"),
        (b"GET /" + b"a" * 5000, b"431"),
        (b"GET /broken HTTP/1.0\r\n\r\n", b"500"),
        (b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_server_goes_on(
    server: HttpServer, raw: bytes, status: bytes
) -> None:
    found = await talk(server, raw)
    assert found.split()[1] == status
    assert b"canary" not in found
    assert (await fetch(server.port, "/fine", "127.0.0.1"))[0] == 200


async def flood(stored: list[int]) -> None:
    """Ask for a great deal on one connection without taking any of it; how much the server holds meanwhile."""
    server = HttpServer(answer, limits=Limits(queued=32))
    await server.start(["127.0.0.1"], 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(b"GET /large HTTP/1.1\r\n\r\n" * 20)
    for _ in range(200):
        await asyncio.sleep(0.001)
        stored.append(sum(connection.unsent for connection in server.connections))
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    await server.stop()
    del reader


@pytest.mark.slow
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_asks_for_much_and_takes_nothing_does_not_fill_the_memory(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    stored: list[int] = []
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(flood(stored))
    assert 0 < max(stored) < 2 * 20_000_000


@pytest.mark.slow
async def test_slow_clients_are_dropped(server: HttpServer) -> None:
    assert await talk(server, b"GET / HTTP/1.1\r\nX") == b""  # never ends its request
    assert await talk(server, b"GET / HTTP/1.1\r\n\r\n") != b""  # rests after it
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(60):
        while server.connections:  # takes nothing of what it asked for  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    assert not server.peers
    del reader


async def test_one_address_and_all_together_have_so_many_connections_and_no_more(server: HttpServer) -> None:
    held = []
    for number in range(20):
        source = "127.0.0.1" if number < 10 else f"127.2.0.{number}"
        held.append(await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0)))
    await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert server.peers["127.0.0.1"] <= 8
    assert len(server.connections) <= 12
    for _, writer in held:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_port_that_is_taken_says_so(server: HttpServer) -> None:
    second = HttpServer(answer)
    with pytest.raises(Unavailable, match="boot server"):
        await second.start(["127.0.0.1"], server.port)


@pytest.mark.slow
async def test_five_thousand_nodes_that_boot_at_once_all_get_script_and_fragment(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "strata.db")
    async with booting(tmp_path, nodes=5000, store=store) as site:
        gate = asyncio.Semaphore(500)  # what a test process may hold open; each node has its own address

        async def boot(number: int) -> int:
            async with gate:
                port, source = site.service.server.port, address_of(number)
                status, script = await fetch(port, f"/boot/script?mac={mac_of(number)}", source)
                assert status == 200 and b"vmlinuz" in script
                status, fragment = await fetch(port, f"/boot/fragment/n{number:04d}/1", source)
                assert status == 200
                return len(fragment)

        began = time.monotonic()
        sizes = await asyncio.gather(*(boot(number) for number in range(1, 5001)))
        print(f"5000 scripts and fragments in {time.monotonic() - began:.1f} s")
        assert len(sizes) == 5000
        assert all(site.identity.record(f"n{number:04d}").generation == 1 for number in range(1, 5001))
        assert not site.alarms
    await store.close()
