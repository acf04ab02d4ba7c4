"""Kept-alive HTTP/1.1 connections to BMCs: one request, one whole reply, and never more sockets than there may be.

A general client spends several times as long on a request as the rest of us together, and a sweep over a fleet is
little else. So this one has only what BMCs need: no cookies, no proxies, no redirects, no compression. Streams and
WebSockets are not for here. Replies are parsed by llhttp (``httptools``).

Connections are shared by whatever answers at the same origin, and few go to one: BMCs behind one address (a chassis
manager, a simulator) wait for each other before their time begins. All together are bounded: the one that was used
longest ago makes room for the next.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast
from urllib.parse import quote, urlsplit

import httptools

KEPT = 120.0
"""Seconds for which a connection that nobody uses stays open."""
SWEEP = 10.0
"""Seconds between two looks for those."""
RESOLVED = 600.0
"""Seconds for which the addresses of a name are believed."""
MOST_HEAD = 64 << 10
"""Bytes of a reply's headers."""

_PLAIN = re.compile(r"[A-Za-z0-9\-._~/!$&'()*+,;=:@?%]*", re.ASCII)
_SAFE = "-._~/!$&'()*+,;=:@?%"
_BREAKS = re.compile(r"[\r\n\0]")


class NotConnected(OSError):
    """Nobody took the connection: nothing was sent."""


class NotTrusted(OSError):
    """The certificate is none that is trusted: nothing was sent."""


class Broken(OSError):
    """The connection ended, or what came over it is no HTTP, before there was a whole reply."""


class TooLong(OSError):
    """The reply is longer than it may be. ``begin``: what there is of it."""

    def __init__(self, begin: bytes) -> None:
        super().__init__("the reply is too long")
        self.begin = begin


class Reply(NamedTuple):
    """What came back, not yet judged. Names of headers are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    seconds: float = 0.0
    """That it took, from when its turn had come."""


class Check(Protocol):
    """Looks at a new TLS connection before anything is sent over it, and raises."""

    def check(self, transport: asyncio.Transport) -> None: ...


Trust = ssl.SSLContext | bool | Check
"""A context with an authority, True for the system's, or a check in place of any."""


def target(path: str) -> str:
    """A path (with its query) as it goes on the wire: what may not stand there as it is, is quoted."""
    return path if _PLAIN.fullmatch(path) else quote(path, safe=_SAFE, errors="surrogatepass")


class Connections:
    """``most`` in all, ``per_origin`` to one host and port, of which each carries one request at a time. Close it."""

    def __init__(self, *, most: int, per_origin: int) -> None:
        self._most = asyncio.Semaphore(most)
        self._limit = most
        self._per_origin = per_origin
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._idle: dict[str, list[_Connection]] = {}
        self._by_age: OrderedDict[_Connection, float] = OrderedDict()
        """Those that nobody uses, by when they were given back."""
        self._open: set[_Connection] = set()
        self._resolved: dict[tuple[str, int], tuple[float, list[_Address]]] = {}
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def open(self) -> int:
        """Connections that there are now."""
        return len(self._open)

    async def close(self) -> None:
        """Close all of them; requests under way break."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        ended = [connection.ended for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if ended:
            await asyncio.wait(ended, timeout=1.0)

    async def send(
        self,
        origin: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        trust: Trust,
        limit: float,
        most: int,
        again: bool,
    ) -> Reply:
        """One request. ``limit``: seconds, from when its turn has come. ``most``: bytes of the reply. ``again``: it may
        be sent twice, where the other side closes a kept connection just then.

        Raises ``TimeoutError``, ``NotConnected``, ``NotTrusted``, ``Broken``, ``TooLong`` or what ``trust`` raises.
        """
        gate = self._gates.get(origin)
        if gate is None:
            gate = self._gates[origin] = asyncio.Semaphore(self._per_origin)
        async with gate, self._most:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            deadline = begun + limit
            wire = _wire(origin, method, path, headers, body)
            connection, kept = self._kept(origin), True
            while True:
                if connection is None:
                    kept = False
                    async with asyncio.timeout_at(deadline):
                        connection = await self._connect(origin, trust)
                try:
                    reply = await connection.ask(wire, deadline, most)
                except Broken:
                    if not (kept and again and connection.untouched):
                        raise
                    connection = None
                    continue
                if connection.reusable:
                    self._keep(origin, connection)
                else:
                    connection.abort()
                return reply._replace(seconds=loop.time() - begun)

    def _kept(self, origin: str) -> _Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            self._by_age.pop(connection, None)
            if connection.reusable:
                return connection
            connection.abort()
        return None

    def _keep(self, origin: str, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = []
        idle.append(connection)
        self._by_age[connection] = loop.time()
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP, self._swept)

    def _swept(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._by_age and next(iter(self._by_age.values())) < loop.time() - KEPT:
            self._drop_oldest()
        if self._by_age:
            self._sweep = loop.call_later(SWEEP, self._swept)

    def _drop_oldest(self) -> None:
        connection, _ = self._by_age.popitem(last=False)
        idle = self._idle[connection.origin]
        idle.remove(connection)
        if not idle:
            del self._idle[connection.origin]
        connection.abort()

    def _lost(self, connection: _Connection) -> None:
        """It has ended, also one that lay idle."""
        self._open.discard(connection)
        if self._by_age.pop(connection, None) is not None:
            idle = self._idle[connection.origin]
            idle.remove(connection)
            if not idle:
                del self._idle[connection.origin]

    # -- connecting

    async def _connect(self, origin: str, trust: Trust) -> _Connection:
        while len(self._open) >= self._limit and self._by_age:
            self._drop_oldest()
        parts = urlsplit(origin)
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        loop = asyncio.get_running_loop()
        wrong: OSError = NotConnected("its name has no address")
        addresses = await self._addresses(host, port)
        for address in list(addresses):
            connection = _Connection(self, origin)
            self._open.add(connection)
            try:
                sock = socket.socket(address.family, socket.SOCK_STREAM)
                try:
                    sock.setblocking(False)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await loop.sock_connect(sock, address.to)
                except BaseException:
                    sock.close()
                    raise
                context = self._context(trust) if secure else None
                await loop.create_connection(
                    lambda connection=connection: connection,
                    sock=sock,
                    ssl=context,
                    server_hostname=host.rstrip(".") if secure else None,
                )
                if secure and not isinstance(trust, ssl.SSLContext | bool):
                    assert connection.transport is not None
                    trust.check(connection.transport)
            except ssl.SSLError as error:
                connection.abort()
                raise NotTrusted(str(error)) from error
            except OSError as error:
                connection.abort()
                wrong = error
                addresses.append(addresses.pop(addresses.index(address)))  # the next one may be better
            except BaseException:
                connection.abort()
                raise
            else:
                return connection
        raise NotConnected(wrong.strerror or str(wrong)) from wrong

    async def _addresses(self, host: str, port: int) -> list[_Address]:
        """Where ``host`` is, the one that answered last first."""
        loop = asyncio.get_running_loop()
        known = self._resolved.get((host, port))
        if known is not None and known[0] > loop.time():
            return known[1]
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise NotConnected(str(error)) from error
        addresses = [_Address(family, to) for family, _, _, _, to in found]
        self._resolved[host, port] = (loop.time() + RESOLVED, addresses)
        return addresses

    def _context(self, trust: Trust) -> ssl.SSLContext:
        if isinstance(trust, ssl.SSLContext):
            return trust
        verified = trust is True
        context = self._contexts.get(verified)
        if context is None:
            context = ssl.create_default_context()
            if not verified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[verified] = context
        return context


class _Address(NamedTuple):
    family: int
    to: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


def _wire(origin: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {target(path)} HTTP/1.1", f"Host: {origin.partition('://')[2]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method not in ("GET", "DELETE"):
        lines.append(f"Content-Length: {len(body)}")
    if any(_BREAKS.search(line) for line in lines):
        raise ValueError("a line break in a header")
    lines += ["", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + body


class _Connection(asyncio.Protocol):
    """One connection: a request, its reply, the next request."""

    def __init__(self, pool: Connections, origin: str) -> None:
        self.origin = origin
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.untouched = False
        """No byte of a reply to the last request has come."""
        self._pool = pool
        self._up = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(  # firmware is lenient with itself
            lenient_headers=True,
            lenient_optional_lf_after_cr=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._waiter: asyncio.Future[Reply] | None = None
        self._most = 0
        self._size = 0
        self._head = 0
        self._body_begun = False
        self._parts: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._to_the_end = False
        """The body has no length: it ends with the connection."""

    @property
    def reusable(self) -> bool:
        """Whether another request may go over it."""
        return self._up and self._waiter is None

    async def ask(self, wire: bytes, deadline: float, most: int) -> Reply:
        """Send a request and wait for the reply. Whatever goes wrong, the connection is not used again."""
        loop = asyncio.get_running_loop()
        self._most, self.untouched = most, True
        if self.transport is None or not self._up:
            raise Broken("it was closed")
        waiter: asyncio.Future[Reply] = loop.create_future()
        self._waiter = waiter
        timer = loop.call_at(deadline, self._late)
        try:
            self.transport.write(wire)
            return await waiter
        finally:
            timer.cancel()
            if self._waiter is not None:
                self._waiter = None
                self.abort()

    def abort(self) -> None:
        """Close it now."""
        if self.transport is None:
            self.connection_lost(None)  # it never came to be
        elif self._up:
            self._up = False
            self.transport.abort()

    def _late(self) -> None:
        self._fail(TimeoutError())

    def _fail(self, wrong: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(wrong)
        self.abort()

    # -- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by their type
        self._up = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._up = False
        if not self.ended.done():
            self.ended.set_result(None)
        self._pool._lost(self)
        if self._waiter is None or self._waiter.done():
            return
        if self._to_the_end and exc is None:
            self._done()
        else:
            self._waiter.set_exception(Broken(exc.__class__.__name__ if exc is not None else "it was closed"))

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # nobody asked
            return
        self.untouched = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Broken("it wants to speak something else"))
        except httptools.HttpParserError as error:
            self._fail(error.__context__ if isinstance(error.__context__, TooLong) else Broken("it is no HTTP"))
        else:
            if not self._body_begun:
                self._head += len(data)
                if self._head > MOST_HEAD:
                    self._fail(Broken("its headers have no end"))

    # -- what the parser tells

    def on_message_begin(self) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # a second reply, to what nobody asked
            return
        self._size = self._head = 0
        self._body_begun = False
        self._parts = []
        self._headers = {}
        self._to_the_end = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape").strip(" \t"))

    def on_headers_complete(self) -> None:
        self._body_begun = True
        length = self._headers.get("content-length", "")
        chunked = "chunked" in self._headers.get("transfer-encoding", "").lower()
        self._to_the_end = not length and not chunked
        if length.isdecimal() and not chunked and int(length[:20]) > self._most:
            raise TooLong(b"")

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        self._parts.append(data)
        if self._size > self._most:
            raise TooLong(self._parts[0])

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._done()

    def _done(self) -> None:
        waiter, self._waiter = self._waiter, None
        if not self._parser.should_keep_alive():
            self.abort()
        if waiter is not None and not waiter.done():
            parts = self._parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            waiter.set_result(Reply(self._parser.get_status_code(), body, self._headers))
