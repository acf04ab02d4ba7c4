"""A light HTTP/1.1 load generator: one thread, one epoll loop, kept-alive connections, one request on each at a time.

Written for benchmarks on one machine, where a heavy client would measure itself. Knows nothing of what it asks for.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import NamedTuple

from measure import percentile

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_READ = 1 << 18


class Door(NamedTuple):
    """Where a server listens: a unix socket's path, or a host and port with TLS."""

    address: str | tuple[str, int]
    tls: ssl.SSLContext | None = None

    def connect(self) -> socket.socket:
        """A new connection, still blocking."""
        if isinstance(self.address, str):
            plain = socket.socket(socket.AF_UNIX)
            plain.connect(self.address)
            return plain
        plain = socket.create_connection(self.address)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.tls.wrap_socket(plain, server_hostname=self.address[0]) if self.tls else plain


class Answer(NamedTuple):
    """One reply."""

    status: int
    body: bytes


class Load(NamedTuple):
    """What came of a phase."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    client_cores: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def request(method: str, path: str, *, token: str = "", body: bytes = b"") -> bytes:
    """A request, ready for the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Accept: */*"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask(door: Door, wire: bytes) -> Answer:
    """One request on a connection of its own."""
    with contextlib.closing(door.connect()) as connection:
        connection.settimeout(60)
        connection.sendall(wire)
        got = b""
        while (whole := _whole(got)) == 0 or len(got) < whole:
            part = connection.recv(_READ)
            if not part:
                raise SystemExit(f"the server hung up: {got[:200]!r}")
            got += part
    return Answer(int(got.split(b" ", 2)[1]), got[got.find(_END) + 4 :])


def load(door: Door, wire: bytes, *, connections: int, seconds: float) -> Load:
    """Send the same request over and over; every answer must be whole and a 200."""
    with _connected(door, connections) as sockets:
        _drive(sockets, wire, min(0.5, seconds / 4))  # until caches and connections are warm
        begun, cpu = time.perf_counter(), time.process_time()
        times = _drive(sockets, wire, seconds)
        took = time.perf_counter() - begun
        cores = (time.process_time() - cpu) / took
    times.sort()
    return Load(len(times), took, percentile(times, 0.5) * 1000, percentile(times, 0.99) * 1000, cores)


@contextlib.contextmanager
def _connected(door: Door, count: int) -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(door.connect())
            sockets[-1].setblocking(False)
        yield sockets
    finally:
        for each in sockets:
            each.close()


def _drive(sockets: list[socket.socket], wire: bytes, seconds: float) -> list[float]:
    """Keep one request under way on each connection until the time is over; how long each took."""
    clock = time.perf_counter
    poll = select.epoll()
    by_fd = {each.fileno(): each for each in sockets}
    sent: dict[int, float] = {}
    partial: dict[int, bytes] = {}
    times: list[float] = []
    end = clock() + seconds
    try:
        for fd, each in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            sent[fd] = clock()
            each.send(wire)
        while sent:
            for fd, _ in poll.poll(10):
                got = partial.pop(fd, b"") + _received(by_fd[fd])
                whole = _whole(got)
                if not whole or len(got) < whole:
                    partial[fd] = got
                    continue
                if got[9:12] != b"200" or len(got) > whole:
                    raise SystemExit(f"not the answer that was expected: {got[:300]!r}")
                now = clock()
                times.append(now - sent[fd])
                if now < end:
                    sent[fd] = now
                    by_fd[fd].send(wire)
                else:
                    del sent[fd]
    finally:
        poll.close()
    return times


def _received(connection: socket.socket) -> bytes:
    """All that has arrived. A TLS connection may hold more than the kernel shows."""
    if not isinstance(connection, ssl.SSLSocket):
        got = connection.recv(_READ)
    else:
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := connection.recv(_READ):
                parts.append(part)
                if not connection.pending():
                    break
            else:
                raise SystemExit("the server hung up")
        return b"".join(parts)
    if not got:
        raise SystemExit("the server hung up")
    return got


def _whole(got: bytes) -> int:
    """How long the reply at the beginning of ``got`` is; 0 while its head is not complete."""
    head = got.find(_END)
    if head < 0:
        return 0
    lower = got[:head].lower()
    at = lower.find(_LENGTH)
    if at < 0:
        raise SystemExit(f"a reply without a length: {got[:head]!r}")
    return head + 4 + int(lower[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
