"""A small HTTP/1.1 server that can also misbehave on purpose. Knows requests and replies, not what they are about.

Hand-written because a fleet's worth of BMCs in one process is a load test: aiohttp's server costs several
times as much a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple, cast

import httptools

MOST_BODY = 64 << 20
"""Bytes: a request with more than this in its body is cut off."""
MOST_UNREAD = 4 << 20
"""Bytes that may wait for the client of a stream."""


class Manner(Enum):
    """How a reply goes out."""

    WHOLE = "whole"
    CLOSED = "closed"
    """Not at all: the connection is closed."""
    NEVER = "never"
    """Not at all, and the connection stays open."""
    CUT = "cut"
    """Half of the body, then the connection is closed."""
    ENDLESS = "endless"
    """A body that does not end for as long as the client reads."""


class Pipe:
    """A connection that is no longer HTTP's: whoever took it over reads and writes it as they like."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.received: Callable[[bytes], None] = lambda _: None
        self.lost: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        """Send; a client that does not keep up loses the connection."""
        if self._transport.get_write_buffer_size() > MOST_UNREAD:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._transport.close()


class Request(NamedTuple):
    """One request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    local: tuple[str, int]
    """The address and port that the client spoke to."""
    last: bool = False
    """The client wants the connection closed afterwards."""
    query: str = ""


class Reply(NamedTuple):
    """One reply, and how it goes out."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "application/json"
    delay: float = 0.0
    manner: Manner = Manner.WHOLE
    takeover: Callable[[Pipe], None] | None = None
    """Gets the connection once the head of the reply is out: for streams and WebSockets."""
    promise: asyncio.Future[Reply] | None = None
    """The real reply, which comes later. What was begun for it goes on if the client leaves."""


Handler = Callable[[Request], Reply]

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class HttpProtocol(asyncio.Protocol):
    """One connection. Requests are answered in order, one at a time."""

    def __init__(self, handler: Handler, connections: set[HttpProtocol]) -> None:
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._pipe: Pipe | None = None
        self._waiting: deque[Request] = deque()
        self._late: asyncio.TimerHandle | asyncio.Future[Reply] | None = None
        self._stuck = False
        self._writable = True
        self._local = ("", 0)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        self._local = transport.get_extra_info("sockname")[:2]
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        self._waiting.clear()
        if isinstance(self._late, asyncio.TimerHandle):
            self._late.cancel()
        if self._pipe is not None:
            self._pipe.lost()

    def data_received(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.received(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            raise  # a fault of ours, not the client's
        except httptools.HttpParserError:
            self._send(Reply(400, headers=(("Connection", "close"),)), "GET", last=True)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._body = []
        self._size = 0

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MOST_BODY:
            self.close()
            return
        self._body.append(part)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        path, _, query = self._url.decode("latin-1").partition("?")
        last = self._headers.get("connection", "").lower() == "close" or self._parser.get_http_version() == "1.0"
        request = Request(method, path, self._headers, b"".join(self._body), self._local, last, query)
        if self._late is not None or self._stuck:
            self._waiting.append(request)
        else:
            self._answer(request)

    # -- answering

    def _answer(self, request: Request) -> None:
        reply = self._handler(request)
        if reply.promise is not None:
            self._late = reply.promise
            reply.promise.add_done_callback(lambda promise: self._after_promise(promise, request))
        elif reply.delay > 0:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(reply.delay, self._after_delay, reply, request)
        else:
            self._send(reply, request.method, last=request.last)

    def _after_promise(self, promise: asyncio.Future[Reply], request: Request) -> None:
        if promise.cancelled():
            self.close()
        else:
            self._after_delay(promise.result(), request)

    def _after_delay(self, reply: Reply, request: Request) -> None:
        self._late = None
        self._send(reply, request.method, last=request.last)
        while self._waiting and self._late is None and not self._stuck and self._transport is not None:
            self._answer(self._waiting.popleft())

    def _send(self, reply: Reply, method: str, *, last: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if reply.manner is Manner.NEVER:
            self._stuck = True
            return
        if reply.manner is Manner.CLOSED:
            self._transport.abort()
            return
        lines = [_LINES[reply.status]]
        lines += [f"{name}: {value}\r\n" for name, value in reply.headers]
        if reply.manner is Manner.ENDLESS:
            lines.append(f"Content-Type: {reply.kind}\r\nTransfer-Encoding: chunked\r\n\r\n")
            self._transport.write("".join(lines).encode("latin-1"))
            self._stuck = True
            self._pour()
            return
        if reply.takeover is not None:
            self._hand_over(lines, reply.takeover)
            return
        if reply.status != 204:
            lines.append(f"Content-Type: {reply.kind}\r\nContent-Length: {len(reply.body)}\r\n")
        lines.append("\r\n")
        body = b"" if method == "HEAD" else reply.body
        if reply.manner is Manner.CUT:
            body = body[: len(body) // 2]
        self._transport.write("".join(lines).encode("latin-1") + body)
        if reply.manner is Manner.CUT or last:
            self._transport.close()

    def _hand_over(self, head: list[str], takeover: Callable[[Pipe], None]) -> None:
        assert self._transport is not None
        self._transport.write("".join((*head, "\r\n")).encode("latin-1"))
        self._pipe = Pipe(self._transport)
        takeover(self._pipe)

    def _upgraded(self, rest: bytes) -> None:
        """The client wants another protocol: what follows is for whoever took the connection over."""
        if self._pipe is None:
            self.close()
        elif rest:
            self._pipe.received(rest)

    def _pour(self) -> None:
        """Another 64 KiB of nothing, and again as fast as the client takes it."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._writable:
            self._transport.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        self._late = asyncio.get_running_loop().call_later(0.001, self._pour)
