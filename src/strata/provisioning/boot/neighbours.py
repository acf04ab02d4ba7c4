"""Whose machine is behind an address: the MAC that the kernel reaches it by, where it is on a link of ours.

What a machine says of itself is a claim; that its packets reach us from there is not. Behind a router, a relay or on
the loopback nothing can be seen. Asks the kernel (rtnetlink), for all that are asked about at the same time together.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct

log = logging.getLogger(__name__)

_NEWNEIGH, _GETNEIGH, _REQUEST = 28, 30, 1
_DST, _LLADDR = 1, 2
_KNOWN = 0x02 | 0x04 | 0x08 | 0x10 | 0x80
"""Reachable, stale, delay, probe, permanent; not those that failed, are not found out yet, or have no address."""
_HEAD = struct.Struct("=IHHII")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_ATTRIBUTE = struct.Struct("=HH")
_NOWHERE = 2**31 - 1
"""The number of no interface."""
_AT_ONCE = 256
_LARGEST = 4096
_BUFFER = 512 * 1024
"""Bytes: the answers to as many as are asked at once, with room to spare."""


class Neighbours:
    """``start`` it in the network namespace that it is about, then ``stop``."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._waiting: list[tuple[str, str, asyncio.Future[str]]] = []
        self._looking: asyncio.Task[None] | None = None
        self._serial = 0

    def start(self) -> None:
        """Open the way to the kernel. Where there is none, nothing is seen."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            self._socket.bind((0, 0))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        except OSError as error:
            log.warning("the MACs of machines that boot are not compared", extra={"reason": error.strerror})

    async def stop(self) -> None:
        """Close it."""
        if self._looking is not None:
            await asyncio.wait([self._looking])
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def mac(self, interface: str, address: str) -> str:
        """The MAC of an IPv4 ``address`` on ``interface``, lower case with colons; empty: it cannot be seen."""
        if self._socket is None:
            return ""
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((interface, address, found))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="neighbours")
        return await found

    async def _look(self) -> None:
        while self._waiting and self._socket is not None:
            batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            asked = dict(enumerate(batch, self._serial))
            self._serial = (self._serial + len(batch)) % 2**31
            try:
                questions = b"".join(_question(serial, *about) for serial, (*about, _) in asked.items())
                # It waits while somebody changes the machine's interfaces. The answers are there when it is done.
                await asyncio.to_thread(self._socket.send, questions)
                while asked:
                    serial, mac = _answer(self._socket.recv(_LARGEST, socket.MSG_DONTWAIT))
                    if (answered := asked.pop(serial, None)) is not None and not answered[2].done():
                        answered[2].set_result(mac)
            except OSError as error:
                # Answers that found no room are asked for again: who was not asked about is not let pass as unseen.
                if len(asked) < len(batch) or error.errno == errno.ENOBUFS:
                    self._waiting[:0] = asked.values()
                    continue
                log.warning("the MACs of machines that boot cannot be seen", extra={"reason": error.strerror})
                for _, _, found in asked.values():
                    if not found.done():
                        found.set_result("")


def _question(serial: int, interface: str, address: str) -> bytes:
    """What the kernel is asked about an address. An interface that there is not has no neighbours."""
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        index = _NOWHERE
    body = _NEIGHBOUR.pack(socket.AF_INET, index, 0, 0, 0) + _ATTRIBUTE.pack(8, _DST) + socket.inet_aton(address)
    return _HEAD.pack(_HEAD.size + len(body), _GETNEIGH, _REQUEST, serial, 0) + body


def _answer(reply: bytes) -> tuple[int, str]:
    """Which question it answers, and the MAC; empty: there is none."""
    size, kind, _, serial, _ = _HEAD.unpack_from(reply)
    return serial, _mac(reply[_HEAD.size : size]) if kind == _NEWNEIGH else ""


def _mac(body: bytes) -> str:
    _, _, state, _, _ = _NEIGHBOUR.unpack_from(body)
    if not state & _KNOWN:
        return ""
    at = _NEIGHBOUR.size
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if kind == _LLADDR and size == _ATTRIBUTE.size + 6:
            return body[at + _ATTRIBUTE.size : at + size].hex(":")
        at += max((size + 3) & ~3, _ATTRIBUTE.size)
    return ""
