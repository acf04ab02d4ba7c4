"""All IPMI BMCs through a few shared sockets: sessions that are reused, and given back when idle.

Knows addresses, logins and who refused our password. A BMC that does not answer costs a future and a timer,
so it holds up nobody else; ``IpmiBmc`` knows what to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast
from urllib.parse import urlsplit

from strata.core.errors import DeviceError, NotOffered, OutcomeUnknown
from strata.hardware.bmc.ipmi import wire
from strata.hardware.bmc.ipmi.session import IpmiSettings, Refusal, Session, Silent, WrongPassword
from strata.hardware.bmc.pace import Pace
from strata.hardware.bmc.redfish.endpoint import Credentials

DEFAULT_PORT = 623
_RECEIVE_BUFFER = 4 * 2**20
_FRESH = 5.0
"""Seconds after which a session is tried with a harmless command before one that must leave only once."""

Login = Callable[[str], Credentials]
"""Who we are at an address."""

_Peer = tuple[str, int]


class IpmiClient:
    """Close it: that logs out everywhere."""

    def __init__(self, login: Login, *, settings: IpmiSettings | None = None) -> None:
        self.settings = settings or IpmiSettings()
        self.login = login
        chosen = self.settings
        self._pace = Pace(at_once=chosen.at_once, patience=chosen.patience)
        self._silent = Pace(at_once=chosen.silent_at_once, patience=chosen.patience)
        self._bmcs: dict[str, _Bmc] = {}
        self._sockets: dict[int, list[_Socket]] = {}
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Log out everywhere, close the sockets."""
        await asyncio.gather(*(bmc.close() for bmc in list(self._bmcs.values())), return_exceptions=True)
        self._bmcs.clear()
        for opened in self._opened():
            opened.transport.close()
        self._sockets.clear()

    def forget(self, address: str) -> None:
        """Its credentials changed: what it refused before says nothing any more."""
        bmc = self._bmcs.get(address)
        if bmc is not None:
            bmc.refused = 0
            bmc.stale = True

    async def ask(
        self, address: str, netfn: int, command: int, data: bytes = b"", *, lun: int = 0, once: bool = False
    ) -> bytes:
        """One command. A session that was lost is renewed, and the command sent again unless ``once``."""
        async with self.session(address, sure=once) as session:
            try:
                return await session.ask(netfn, command, data, lun=lun, once=once)
            except (Refusal, NotOffered, OutcomeUnknown):
                raise
            except DeviceError:
                if once or session.heard == 0:
                    raise
        # It answered in this session before, so it may have restarted since.
        async with self.session(address) as session:
            return await session.ask(netfn, command, data, lun=lun)

    @contextlib.asynccontextmanager
    async def session(self, address: str, *, sure: bool = False) -> AsyncIterator[Session]:
        """The BMC's session, opened if there is none. ``sure``: known to be alive just now."""
        async with self._begun(address) as bmc:
            session = await bmc.ready(sure=sure)
            try:
                yield session
            finally:
                bmc.used()

    async def fresh(self, address: str) -> Session:
        """A session of one's own, for a console. Whoever asked logs it out and calls ``dismiss``."""
        async with self._begun(address) as bmc:
            return await bmc.new()

    @contextlib.asynccontextmanager
    async def _begun(self, address: str) -> AsyncIterator[_Bmc]:
        """An operation with a BMC, which has a place until it is over, or slow."""
        bmc = self._bmcs.get(address)
        if bmc is None:
            bmc = self._bmcs[address] = _Bmc(self, address)
        async with (self._silent if bmc.silent else self._pace).turn():
            try:
                yield bmc
                bmc.silent = False
            except DeviceError as wrong:
                bmc.silent = isinstance(wrong, Silent)
                raise

    def dismiss(self, session: Session) -> None:
        """Nothing more is to be delivered to it."""
        for opened in self._opened():
            opened.remove(session)

    def _opened(self) -> Iterator[_Socket]:
        for sockets in self._sockets.values():
            yield from sockets

    # -- for _Bmc

    async def link(self, name: str, host: str, port: int) -> tuple[_Socket, Any]:
        """The socket that reaches ``host``, and its address there."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as wrong:
            raise DeviceError("its name cannot be resolved", node=name) from wrong
        family, _, _, _, peer = found[0]
        # Two sessions with one BMC go through two sockets: some tell them apart by our port alone.
        async with self._opening:
            sockets = self._sockets.setdefault(family, [])
            for opened in sockets:
                if not opened.reaches(peer):
                    return opened, peer
            raw = socket.socket(family, socket.SOCK_DGRAM)
            raw.setblocking(False)
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            raw.bind(("", 0))
            _, opened = await loop.create_datagram_endpoint(_Socket, sock=raw)
            sockets.append(opened)
        return opened, peer


class _Bmc:
    """One BMC: its session, and what it did to us."""

    __slots__ = (
        "_address", "_client", "_closing", "_door", "_host", "_port", "_session", "_timer",
        "refused", "silent", "stale",
    )  # fmt: skip

    def __init__(self, client: IpmiClient, address: str) -> None:
        parts = urlsplit(address)
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError:
            port = 0
        if parts.scheme != "ipmi" or not parts.hostname or parts.username is not None or not port:
            raise DeviceError(
                "not an ipmi address", node=address[:80], hint="give the node's bmc as ipmi://HOST[:PORT]"
            )
        self.refused = 0
        self.silent = False
        """Whether it did not answer last time."""
        self.stale = False
        self._client = client
        self._address = address
        self._host, self._port = parts.hostname, port
        self._session: Session | None = None
        self._door = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def ready(self, *, sure: bool) -> Session:
        async with self._door:
            session = self._session
            if session is not None and (not session.open or self.stale):
                await self._drop()
                session = None
            now = asyncio.get_running_loop().time()
            if session is not None and sure and now - session.heard > _FRESH:
                try:
                    await session.ask(0x06, 0x01)
                except DeviceError:
                    await self._drop()
                    session = None
            if session is None:
                session = self._session = await self.new()
                self.stale = False
            return session

    async def new(self) -> Session:
        settings = self._client.settings
        if self.refused >= settings.wrong_passwords:
            raise DeviceError(
                f"not tried: it refused the password {self.refused} times",
                node=self._address,
                hint="correct them: strata hardware credentials set",
            )
        opened, peer = await self._client.link(self._address, self._host, self._port)
        session = Session(self._address, _Link(opened, peer), settings)
        opened.add(session, peer)
        try:
            known = self._client.login(self._address)
            await session.log_in(known.user, known.secret().encode())
        except WrongPassword:
            self.refused += 1
            opened.remove(session)
            raise
        except BaseException:
            opened.remove(session)
            raise
        self.refused = 0
        return session

    def used(self) -> None:
        """Close the session when nobody wants it for a while."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._client.settings.idle, self._idle)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._closing is not None:
            await self._closing
        async with self._door:
            await self._drop()

    def _idle(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self._forget())

    async def _forget(self) -> None:
        async with self._door:
            await self._drop()

    async def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.log_out()
            self._client.dismiss(session)


class _Link:
    """The way to one BMC through a shared socket."""

    def __init__(self, opened: _Socket, peer: Any) -> None:
        self._opened = opened
        self._peer = peer

    def send(self, datagram: bytes) -> None:
        if not self._opened.transport.is_closing():
            self._opened.transport.sendto(datagram, self._peer)


class _Socket(asyncio.DatagramProtocol):
    """Gives datagrams to the sessions with their sender: a BMC's own and, with a console, a second."""

    transport: asyncio.DatagramTransport

    def __init__(self) -> None:
        self._sessions: dict[_Peer, list[Session]] = {}
        self._peers: dict[Session, _Peer] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def add(self, session: Session, peer: Any) -> None:
        self._peers[session] = peer[:2]
        self._sessions.setdefault(peer[:2], []).append(session)

    def reaches(self, peer: Any) -> bool:
        """Whether a session with this peer goes through it."""
        return peer[:2] in self._sessions

    def remove(self, session: Session) -> None:
        peer = self._peers.pop(session, None)
        if peer is not None:
            self._sessions[peer].remove(session)
            if not self._sessions[peer]:
                del self._sessions[peer]

    def datagram_received(self, data: bytes, addr: Any) -> None:
        sessions = self._sessions.get(addr[:2])
        packet = wire.parse(data) if sessions else None
        if packet is not None:
            for session in tuple(sessions or ()):
                session.received(data, packet)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there (ICMP): the session's own time limit says so."""
