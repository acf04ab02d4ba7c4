"""A serial console over a WebSocket (RFC 6455): what the node prints goes to everybody who watches."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1

from strata.virtual.bmc.http import Pipe, Reply, Request
from strata.virtual.redfish.body import error

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_MOST = 1 << 16
"""Bytes in a frame that a client sends."""


class Console:
    """One node's console. What watchers type is kept in ``typed``."""

    def __init__(self) -> None:
        self.typed = b""
        self._watchers: set[_WebSocket] = set()

    @property
    def watched(self) -> bool:
        return bool(self._watchers)

    def write(self, data: bytes) -> None:
        """Print it, for all who watch now."""
        for watcher in list(self._watchers):
            watcher.send(_BINARY, data)

    def type(self, data: bytes) -> None:
        self.typed = (self.typed + data)[-_MOST:]

    def break_off(self) -> None:
        for watcher in list(self._watchers):
            watcher.pipe.close()

    def attach(self, request: Request) -> Reply:
        """The reply to a WebSocket's opening."""
        key = request.headers.get("sec-websocket-key", "")
        if request.headers.get("upgrade", "").lower() != "websocket" or not key:
            return error(426, "GeneralError", "This is a WebSocket.", (("Upgrade", "websocket"),))
        accept = b64encode(sha1(f"{key}{_MAGIC}".encode(), usedforsecurity=False).digest()).decode()
        head = (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept))
        return Reply(101, headers=head, takeover=self._watch)

    def _watch(self, pipe: Pipe) -> None:
        watcher = _WebSocket(pipe, self)
        self._watchers.add(watcher)
        pipe.received = watcher.receive
        pipe.lost = lambda: self._watchers.discard(watcher)


class _WebSocket:
    """The server's side of one connection."""

    def __init__(self, pipe: Pipe, console: Console) -> None:
        self.pipe = pipe
        self._console = console
        self._buffer = b""

    def send(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes((0x80 | kind, size))
        elif size < 1 << 16:
            head = bytes((0x80 | kind, 126)) + size.to_bytes(2)
        else:
            head = bytes((0x80 | kind, 127)) + size.to_bytes(8)
        self.pipe.write(head + data)

    def receive(self, data: bytes) -> None:
        """Take in what the client sent: whole frames, the rest is kept."""
        self._buffer += data
        while (frame := self._frame()) is not None:
            kind, payload = frame
            if kind in (_TEXT, _BINARY):
                self._console.type(payload)
            elif kind == _PING:
                self.send(_PONG, payload)
            elif kind == _CLOSE:
                self.send(_CLOSE, payload)
                self.pipe.close()

    def _frame(self) -> tuple[int, bytes] | None:
        """The first whole frame: its kind and what is in it."""
        data = self._buffer
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        if size > 125:
            wide = 2 if size == 126 else 8
            size, at = int.from_bytes(data[2 : 2 + wide]), 2 + wide
        if not data[1] & 0x80 or (size > _MOST and len(data) >= at):
            self._buffer = b""
            self.pipe.close()
            return None
        end = at + 4 + size
        if len(data) < end:
            return None
        mask = data[at : at + 4]
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data[at + 4 : end]))
        self._buffer = data[end:]
        return data[0] & 0x0F, payload
