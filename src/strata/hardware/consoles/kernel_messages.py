"""Kernel messages that nodes send by the network: syslog (RFC 3164 and 5424) and netconsole, over UDP.

They land in the node's console log. Who sent a datagram is told by its address alone, which UDP does not prove:
listen on the management network only. A sender that is no node is counted and dropped.
"""

from __future__ import annotations

import abc
import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from strata.core.errors import Unavailable
from strata.hardware.consoles.files import Source
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.text import clean

NodeOf = Callable[[str], str | None]
"""The node that has an address, if any."""

_STRANGERS = 64
_MOST_LINES = 64
_FRAGMENTS = 1024
"""Messages that wait for the rest of them."""
_MOST_MESSAGE = 16 * 1024

_PRIORITY = re.compile(r"<(\d{1,3})>")
_NEW = re.compile(r"1 (\S{1,64}) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32}) ")
_OLD = re.compile(r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:(\S{1,255}) )?)?(?=\S)")
_STRUCTURED = re.compile(r'(?:-|(?:\[[^ \]"=]{1,32}(?: [^ \]"=]{1,32}="(?:[^"\\\]]|\\.)*")*\])+)(?: |$)')
_EXTENDED = re.compile(r"(?:[^,;\s]{1,64},)?(\d{1,3}),(\d{1,20}),(\d{1,20}),([-c+])((?:,[^;]{0,200})?);")
_FRAGMENT = re.compile(r"ncfrag=(\d{1,6})/(\d{1,6})")


class _Receiver(asyncio.DatagramProtocol, abc.ABC):
    """Finds out who sent it, and hands it on."""

    source: Source

    def __init__(self, log: ConsoleLog, node_of: NodeOf) -> None:
        self.received = 0
        self.unknown = 0
        """Datagrams from nobody that we know."""
        self.strangers: OrderedDict[str, int] = OrderedDict()
        """The addresses of the last few of those."""
        self._log = log
        self._node_of = node_of

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        address = str(addr[0]).removeprefix("::ffff:")
        node = self._node_of(address)
        if node is None:
            self.unknown += 1
            self.strangers[address] = self.strangers.get(address, 0) + 1
            self.strangers.move_to_end(address)
            if len(self.strangers) > _STRANGERS:
                self.strangers.popitem(last=False)
            return
        self.received += 1
        texts = [line for line in map(clean, self.texts(node, data)[:_MOST_LINES]) if line]
        if texts:
            self._log.append(node, self.source, texts)

    @abc.abstractmethod
    def texts(self, node: str, data: bytes) -> list[str]:
        """The lines of a datagram."""


class Syslog(_Receiver):
    """Takes syslog. Times are those of arrival: a node that boots does not know the time."""

    source: Source = "syslog"

    def texts(self, node: str, data: bytes) -> list[str]:
        """The lines of a datagram."""
        text = data.decode("utf-8", "replace").replace("\ufeff", "")
        found = _PRIORITY.match(text)
        facility = int(found[1]) >> 3 if found else 1
        text = text[found.end() :] if found else text
        new = _NEW.match(text)
        if new:
            structured = _STRUCTURED.match(text, new.end())
            said = text[structured.end() :] if structured else text[new.end() :]
            app, process = new[3], new[4]
            tag = "" if app == "-" else app if process == "-" else f"{app}[{process}]"
            head = f"{tag}: " if tag else ""
        else:
            old = _OLD.match(text)
            said, head = text[old.end() :] if old else text, ""
        # The kernel's own are told by their facility, so that nobody else can speak in its name.
        named = said.startswith("kernel:") if not head else head == "kernel: "
        if facility == 0 and not named:
            head = "kernel: "
        elif facility != 0 and named:
            head = f"(facility {facility}) {head}"
        return [head + line for line in said.split("\n")]


class Netconsole(_Receiver):
    """Takes netconsole, plain and extended; messages that came in fragments are put together."""

    source: Source = "netconsole"

    def __init__(self, log: ConsoleLog, node_of: NodeOf) -> None:
        super().__init__(log, node_of)
        self._parts: OrderedDict[tuple[str, str], dict[int, bytes]] = OrderedDict()

    def texts(self, node: str, data: bytes) -> list[str]:
        """The lines of a datagram; none of a fragment until all are there."""
        head, semicolon, body = data.partition(b";")
        found = _EXTENDED.fullmatch((head + semicolon).decode("latin-1")) if len(head) < 400 else None
        if found is None:
            return data.decode("utf-8", "replace").split("\n")
        fragment = _FRAGMENT.search(found[5])
        if fragment:
            whole = self._joined((node, found[2]), int(fragment[1]), int(fragment[2]), body)
            if whole is None:
                return []
            body = whole
        seconds, rest = divmod(int(found[3]), 1_000_000)
        # What follows the text on lines of its own that begin with a space describes the device.
        texts = [line for line in body.decode("utf-8", "replace").split("\n") if line and not line.startswith(" ")]
        return [f"[{seconds:5}.{rest:06}] {line}" for line in texts]

    def _joined(self, message: tuple[str, str], offset: int, total: int, part: bytes) -> bytes | None:
        if total > _MOST_MESSAGE:
            return None
        parts = self._parts.setdefault(message, {})
        if len(parts) < 64:
            parts[offset] = part
        if len(self._parts) > _FRAGMENTS:
            self._parts.popitem(last=False)
        whole = b""
        for start in sorted(parts):
            if start != len(whole):
                return None
            whole += parts[start]
        if len(whole) < total:
            return None
        self._parts.pop(message, None)
        return whole[:total]


class KernelMessages:
    """Both receivers, each only where an address (``host:port``) is given. Start it, and stop it."""

    def __init__(self, log: ConsoleLog, node_of: NodeOf, *, syslog: str = "", netconsole: str = "") -> None:
        self.receivers: list[_Receiver] = []
        self._wanted: list[tuple[str, _Receiver]] = []
        if syslog:
            self._wanted.append((syslog, Syslog(log, node_of)))
        if netconsole:
            self._wanted.append((netconsole, Netconsole(log, node_of)))

    async def start(self) -> None:
        """Listen."""
        for address, receiver in self._wanted:
            await self._listen(address, receiver)

    async def _listen(self, address: str, receiver: _Receiver) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(lambda: receiver, local_addr=(host.strip("[]"), int(port)))
        except (OSError, ValueError) as wrong:
            raise Unavailable(f"cannot listen for {receiver.source}: {wrong}", where=address) from wrong
        self.receivers.append(receiver)

    async def stop(self) -> None:
        """Listen no more."""
        for receiver in self.receivers:
            receiver.transport.close()
        self.receivers.clear()
