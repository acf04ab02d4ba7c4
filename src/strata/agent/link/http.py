"""A small HTTP/1.1 client over TLS. `http.client` brings in the mail parser: half of the agent's start-up."""

from __future__ import annotations

import json
import select
import socket
import ssl
from pathlib import Path

from ..errors import Refused, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HEADER_LIMIT = 16384
_BODY_LIMIT = 8 << 20


def tls_context(authority: Path, identity: Path | None = None) -> ssl.SSLContext:
    """TLS that believes our own CA alone, with the node's key and certificate if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cafile=str(authority))
        if identity is not None:
            context.load_cert_chain(str(identity))
    except OSError as error:
        raise Unreachable(f"no TLS: {authority} or {identity} cannot be used: {error}") from None
    return context


class Reply:
    """Status and headers of an answer; the body is read from the connection."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers

    @property
    def length(self) -> int:
        """How long the body is, or -1 where it comes in pieces."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return -1
        try:
            return max(0, int(self.headers.get("content-length", "0")))
        except ValueError:
            raise Unreachable("the controller sent a malformed Content-Length") from None


class Connection:
    """One kept-alive connection to a controller. Any failure closes it."""

    def __init__(self, url: str, context: ssl.SSLContext, timeout: float = 20.0) -> None:
        host, port = split_url(url)
        self._host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._timeout = timeout
        self._buffer = bytearray()
        try:
            plain = socket.create_connection((host, port), timeout)
        except (OSError, ValueError) as error:  # a name that no host can have is the latter
            raise Unreachable(f"{url} cannot be reached: {error}") from None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = context.wrap_socket(plain, server_hostname=host)
        except (OSError, ValueError) as error:
            plain.close()
            raise Unreachable(f"{url}: no TLS session: {error}") from None

    def fileno(self) -> int:
        """For poll()."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def usable(self) -> bool:
        """Whether an idle connection is still open: nothing is to be read from it."""
        ready, _, _ = select.select([self._socket], [], [], 0)
        return not ready and not self._buffer and not self._socket.pending()

    def arrived(self) -> bool:
        """Whether an answer has begun: TLS has messages of its own (session tickets), which poll() reports too."""
        self._socket.settimeout(0)
        try:
            self._buffer += self._socket.recv(65536)
        except ssl.SSLWantReadError:
            return False
        except OSError as error:
            raise Unreachable(f"{self._host} broke off: {error}") from None
        finally:
            self._socket.settimeout(self._timeout)
        return True

    def send(self, method: str, path: str, body: bytes = b"", headers: str = "") -> None:
        """Send one request."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        try:
            self._socket.sendall(head.encode() + body)
        except OSError as error:
            raise Unreachable(f"{self._host} broke off: {error}") from None

    def head(self) -> Reply:
        """Read status and headers of the answer."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _HEADER_LIMIT:
                raise Unreachable(f"{self._host} sent endless headers")
            self._more()
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise Unreachable(f"{self._host} does not speak HTTP")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return Reply(int(words[1]), headers)

    def body(self, reply: Reply) -> bytes:
        """Read a whole body, bounded."""
        if reply.length >= 0:
            if reply.length > _BODY_LIMIT:
                raise Unreachable(f"{self._host} sent an answer of {reply.length} bytes")
            out = bytearray(reply.length)
            self.fill(memoryview(out))
            return bytes(out)
        pieces = bytearray()
        while True:
            line = self._line()
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise Unreachable(f"{self._host} sent a malformed answer") from None
            if size < 0 or len(pieces) + size > _BODY_LIMIT:
                raise Unreachable(f"{self._host} sent an endless answer")
            piece = bytearray(size)
            self.fill(memoryview(piece))
            pieces += piece
            while self._line():  # the piece's own line end, or the trailers after the last one
                pass
            if size == 0:
                return bytes(pieces)

    def fill(self, out: memoryview) -> None:
        """Fill `out` from the body."""
        taken = min(len(out), len(self._buffer))
        out[:taken] = self._buffer[:taken]
        del self._buffer[:taken]
        try:
            while taken < len(out):
                count = self._socket.recv_into(out[taken:])
                if count == 0:
                    raise Unreachable(f"{self._host} broke off in the middle of an answer")
                taken += count
        except OSError as error:
            raise Unreachable(f"{self._host} broke off: {error}") from None

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _HEADER_LIMIT:
                raise Unreachable(f"{self._host} sent an endless line")
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _more(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            raise Unreachable(f"{self._host} broke off: {error}") from None
        if not data:
            raise Unreachable(f"{self._host} closed the connection")
        self._buffer += data


def split_url(url: str) -> tuple[str, int]:
    """Host and port of a controller's address; only https is spoken."""
    scheme, _, rest = url.partition("://")
    place = rest.split("/", 1)[0]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        host, port = place, "443"
    host = host.strip("[]")
    if scheme != "https" or not host:
        raise Unreachable(f"{url!r} is not a controller's address: expected https://HOST:PORT")
    return host, int(port)


def answer(connection: Connection, reply: Reply) -> dict[str, Any]:
    """The JSON object in an answer; Refused where the controller said no."""
    body = connection.body(reply)
    try:
        value = json.loads(body) if body else {}
    except ValueError:
        value = None
    if reply.status != 200:
        detail = value.get("detail") or value.get("title") if isinstance(value, dict) else None
        raise Refused(reply.status, str(detail or "no reason given"))
    if not isinstance(value, dict):
        raise Unreachable("the controller's answer is not a JSON object")
    return value


def post(url: str, path: str, value: object, context: ssl.SSLContext) -> dict[str, Any]:
    """Send one JSON object over a connection of its own and read the answer."""
    connection = Connection(url, context)
    try:
        connection.send("POST", path, json.dumps(value).encode(), "Content-Type: application/json\r\n")
        return answer(connection, connection.head())
    finally:
        connection.close()
