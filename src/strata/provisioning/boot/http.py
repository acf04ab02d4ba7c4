"""A small HTTP/1.1 server for machines that boot: GET and HEAD, keep-alive, everything bounded. Knows no boot.

Nothing here is a file, so there is no path to leave. Whoever is too slow, sends too much or opens too many connections
is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

import httptools
import msgspec

from strata.core.errors import Unavailable

log = logging.getLogger(__name__)

BACKLOG = 8192

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}


class Request(NamedTuple):
    """What somebody asks for."""

    path: str
    query: str
    peer: str
    """The address that asks."""
    server: str
    """The address of ours that is asked."""
    agent: bytes
    """What it says it is."""
    head: bool
    """It wants to know what a GET would give, no more: nothing may change by it."""


class Answer(NamedTuple):
    """What it gets."""

    body: bytes
    status: int = 200
    kind: bytes = b"text/plain"


Handler = Callable[[Request], "Answer | Awaitable[Answer]"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one machine, and all together, may take."""

    header: int = 8192
    """Bytes of a request."""
    connections: int = 20_000
    per_peer: int = 64
    """Connections from one address. A firmware opens one or two."""
    arrive: float = 10.0
    """Seconds for a whole request, from its first byte."""
    idle: float = 60.0
    """Seconds that a connection may rest, or that a client may leave an answer lying."""
    queued: int = 32
    """Requests that may wait behind one another on a connection."""


class HttpServer:
    """Listens on some addresses; ``start``, then ``stop``."""

    def __init__(self, handler: Handler, *, limits: Limits | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.peers: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, hosts: Sequence[str], port: int) -> None:
        """Listen on ``port`` of every address."""
        loop = asyncio.get_running_loop()
        try:
            for host in hosts:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                server = await loop.create_server(
                    lambda: Connection(self), host, port, family=family, backlog=BACKLOG, reuse_address=True
                )
                self._servers.append(server)
        except OSError as error:
            await self.stop()
            raise Unavailable(
                f"cannot listen: {error.strerror or error}",
                where=f"boot server {host}:{port}",
                hint="is the address on this machine, and the port free?",
            ) from None
        self._later()

    async def stop(self) -> None:
        """Close everything."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.drop()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    @property
    def port(self) -> int:
        """The port of the first address."""
        return int(self._servers[0].sockets[0].getsockname()[1])

    def _later(self) -> None:
        period = min(self.limits.arrive, self.limits.idle) / 2
        self._sweep = asyncio.get_running_loop().call_later(period, self._drop_slow)

    def _drop_slow(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in tuple(self.connections):
            if connection.is_slow(now):
                connection.drop()
        self._later()


class Connection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_agent",
        "_began",
        "_last",
        "_loop",
        "_open",
        "_parser",
        "_partial",
        "_peer",
        "_server",
        "_stalled",
        "_task",
        "_transport",
        "_unsent",
        "_url",
        "_waiting",
        "server",
    )

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._agent = b""
        self._partial = 0
        self._began = 0.0
        self._last = 0.0
        self._unsent = 0
        self._open = True
        self._stalled = False
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._peer, self._server = peer[0] if peer else "", own[0] if own else ""
        server = self.server
        self._transport = transport
        if len(server.connections) >= server.limits.connections or server.peers[self._peer] >= server.limits.per_peer:
            self._open = False
            transport.abort()
            return
        server.connections.add(self)
        server.peers[self._peer] += 1
        self._last = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.server.connections:
            self.server.connections.discard(self)
            self.server.peers[self._peer] -= 1
            if not self.server.peers[self._peer]:
                del self.server.peers[self._peer]
        self._open = False
        self._waiting.clear()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if not self._open:
            return
        self._last = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400)
            return
        if self._began:
            self._partial += len(data)
            if self._partial > self.server.limits.header:
                self._refuse(431)

    def pause_writing(self) -> None:
        """The client does not take what it asked for: its next requests wait."""
        self._stalled = True

    def resume_writing(self) -> None:
        self._stalled = False
        self._serve_waiting()

    def is_slow(self, now: float) -> bool:
        """Whether the client takes more time than it may."""
        limits = self.server.limits
        if self._began and now - self._began > limits.arrive:
            return True
        if self.unsent != self._unsent:
            self._unsent, self._last = self.unsent, now
        return self._task is None and now - self._last > limits.idle

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def drop(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # httptools

    def on_message_begin(self) -> None:
        self._url = self._agent = b""
        self._partial = 0
        self._began = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 10 and name.lower() == b"user-agent":
            self._agent = value[:200]

    def on_message_complete(self) -> None:
        self._began = 0.0
        if not self._open:
            return
        method, keep = self._parser.get_method(), self._parser.should_keep_alive()
        if method not in (b"GET", b"HEAD"):
            self._refuse(405)
            return
        path, _, query = self._url.partition(b"?")
        try:
            request = Request(
                path.decode("ascii"), query.decode("ascii"), self._peer, self._server, self._agent, method == b"HEAD"
            )
        except UnicodeDecodeError:
            self._refuse(400)
            return
        if self._task is not None or self._stalled:
            if len(self._waiting) >= self.server.limits.queued:
                self._refuse(503)
            else:
                self._waiting.append((request, keep))
            return
        self._serve(request, keep)

    # answering

    def _serve(self, request: Request, keep: bool) -> None:
        try:
            answer = self.server.handler(request)
        except Exception:
            log.exception("a boot request failed")
            answer = Answer(b"internal error\n", 500)
        if isinstance(answer, Answer):
            self._send(answer, request.head, keep)
        else:
            self._task = self._loop.create_task(self._finish(answer, request, keep))

    async def _finish(self, coming: Awaitable[Answer], request: Request, keep: bool) -> None:
        try:
            answer = await coming
        except Exception:
            log.exception("a boot request failed")
            answer = Answer(b"internal error\n", 500)
        self._last = self._loop.time()
        self._send(answer, request.head, keep)
        self._task = None
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._task is None and self._open and not self._stalled:
            self._serve(*self._waiting.popleft())

    def _send(self, answer: Answer, head: bool, keep: bool) -> None:
        if not self._open or self._transport is None:
            return
        top = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nCache-Control: no-store\r\n%b\r\n" % (
            answer.status,
            _REASONS[answer.status],
            answer.kind,
            len(answer.body),
            b"" if keep else b"Connection: close\r\n",
        )
        self._transport.write(top if head else top + answer.body)
        if not keep:
            self._open = False
            self._transport.close()

    def _refuse(self, status: int) -> None:
        self._send(Answer(_REASONS[status].lower() + b"\n", status), head=False, keep=False)
        self._open = False
