"""The socket of one interface: takes datagrams in, sends replies out. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable

from strata.core.errors import Unavailable
from strata.fleet.tasks import all_cancelled
from strata.provisioning.dhcp.quiet import Quiet
from strata.provisioning.dhcp.responder import Reply

log = logging.getLogger(__name__)

PORT = 67
_BATCH = 64
"""Datagrams handled before others get their turn."""
_BUFFER = 4 * 1024 * 1024
"""Bytes: thousands of machines that are switched on together wait here for a moment."""
_LOOK_EVERY = 2.0
"""Seconds between looks at whether the interface is still the same."""
_IP_PKTINFO = 8
_SO_RCVBUFFORCE = 33

Answer = Callable[[bytes, str, float, str], Reply | None]


class Listener:
    """Answers on one interface and on no other, also when the interface goes away and comes back."""

    def __init__(self, interface: str, answer: Answer) -> None:
        self.interface = interface
        self._answer = answer
        self._socket: socket.socket | None = None
        self._index = 0
        self._watch: asyncio.Task[None] | None = None
        self._quiet = Quiet(every=60.0)
        self._sources: dict[bytes, list[tuple[int, int, bytes]]] = {}
        """By our address: what tells the system to send from it."""

    async def start(self) -> None:
        """Listen; ``Unavailable`` says why that cannot be."""
        try:
            self._open()
        except OSError as error:
            raise Unavailable(
                f"DHCP cannot be served: {error.strerror}",
                where=f"interface {self.interface}, UDP port {PORT}",
                hint="is the interface there, does no other DHCP server run on it, and are we root?",
            ) from error
        self._watch = asyncio.create_task(self._follow(), name=f"dhcp {self.interface}")

    async def stop(self) -> None:
        """Hear no more."""
        if self._watch is not None:
            await all_cancelled([self._watch])
            self._watch = None
        self._close()

    def _open(self) -> None:
        index = socket.if_nametoindex(self.interface)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.interface.encode())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            _enlarge(sock)
            sock.bind(("", PORT))
        except OSError:
            sock.close()
            raise
        self._socket, self._index = sock, index
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)

    def _close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        sock = self._socket
        if sock is None:
            return
        now = time.monotonic()
        for _ in range(_BATCH):
            try:
                packet, sender = sock.recvfrom(2048)
            except OSError:
                return
            try:
                reply = self._answer(packet, self.interface, now, sender[0])
            except Exception:
                # One datagram must not stop the service for everybody else.
                if self._quiet.allows("failed", now):
                    log.exception("a DHCP request could not be handled", extra={"interface": self.interface})
                continue
            if reply is not None:
                self._send(sock, reply, now)

    def _send(self, sock: socket.socket, reply: Reply, now: float) -> None:
        # An interface can have several addresses: the reply comes from the one that the machine will know us by.
        source = self._sources.get(reply.source)
        if source is None:
            packed = struct.pack("=i4s4s", 0, reply.source, b"\x00\x00\x00\x00")
            source = self._sources[reply.source] = [(socket.IPPROTO_IP, _IP_PKTINFO, packed)]
        try:
            sock.sendmsg((reply.payload,), source, 0, reply.to)
        except OSError as error:
            if self._quiet.allows(str(error.errno), now):
                log.warning(
                    "a DHCP reply could not be sent",
                    extra={"interface": self.interface, "to": reply.to[0], "reason": error.strerror},
                )

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            try:
                if self._socket is not None and socket.if_nametoindex(self.interface) == self._index:
                    continue
                self._close()
                self._open()
                log.info("the interface is back", extra={"interface": self.interface})
            except OSError as error:
                self._close()
                if self._quiet.allows("away", time.monotonic()):
                    log.error(
                        "DHCP waits for its interface", extra={"interface": self.interface, "reason": error.strerror}
                    )


def _enlarge(sock: socket.socket) -> None:
    try:
        # Beyond what the system allows everybody: that holds some 250 requests, which is few.
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
