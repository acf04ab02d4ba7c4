"""Serves the API on two local sockets, in the running event loop. The network is nginx's (``strata.api.nginx``).

``admin.sock`` is for people on this machine: whoever may open it (its owner, or root) is the administrator.
``front.sock`` is for nginx alone: what it says about client certificates is believed. It is in a directory that
only nginx's account enters, and whoever comes by it must know the secret that nginx was given. Both check the
peer's uid with the kernel, so that a file mode gone wrong opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from strata.api.app import create_app
from strata.api.front import Front
from strata.api.services import Watchers
from strata.api.web_account import ACCOUNT, web_account
from strata.core.errors import Unavailable
from strata.fleet.services import Services
from strata.fleet.settings import SOCKET_PATH_MAX

log = logging.getLogger(__name__)

GRACE = 5
"""Seconds that requests under way get when the service stops."""
BACKLOG = 2048
_CREDENTIALS = struct.Struct("3i")


class ApiServer:
    """The two sockets. ``start``, then ``stop``; requests under way are finished."""

    def __init__(self, services: Services, admin: Path, front: Path | None = None, *, account: str = ACCOUNT) -> None:
        """``front`` None: no nginx, so no such door. ``account``: nginx's workers, if we are root."""
        self._services = services
        self._admin = admin
        self._front = front
        self._account = account
        self._running: list[tuple[_Server, asyncio.Task[None], Path]] = []

    async def start(self) -> None:
        """Listen; returns when requests would be answered."""
        own = {0, os.geteuid()}
        await self._listen(create_app(self._services, "admin"), self._admin, own, None)
        if self._front is not None:
            account = web_account(self._account)
            owner = (account.pw_uid, account.pw_gid) if account is not None else None
            peers = own | ({owner[0]} if owner else set())
            await self._listen(create_app(self._services, "front"), self._front, peers, owner)

    def quiet(self) -> None:
        """Send watchers and agents away: whoever is in front of us need not wait for them."""
        self._services.get(Watchers).stopping.set()
        for let_go in self._services.held:
            let_go()

    async def stop(self) -> None:
        """Finish what is under way, and remove the sockets."""
        self.quiet()
        for server, _, _ in self._running:
            server.should_exit = True
        for _, task, path in self._running:
            await task
            path.unlink(missing_ok=True)
        self._running.clear()

    async def _listen(self, app: Front, path: Path, peers: Collection[int], owner: tuple[int, int] | None) -> None:
        sock = bind_private(path, owner)
        config = uvicorn.Config(
            app,
            http=_protocol_for(peers),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[sock]), name=f"api-{path.name}")
        up = asyncio.ensure_future(server.up.wait())
        await asyncio.wait({task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if task.done():
            await task
            raise Unavailable("the API server did not start", where=str(path))
        self._running.append((server, task, path))


class _Server(uvicorn.Server):
    """Leaves signals to the process that it is a part of, and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _protocol_for(peers: Collection[int]) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol, for connections from ``peers`` (uids) only."""
    allowed = frozenset(peers)

    class PeerChecked(HttpToolsProtocol):
        refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            uid = peer_uid(transport.get_extra_info("socket"))
            if uid in allowed:
                super().connection_made(transport)
            else:
                log.warning("connection refused", extra={"peer_uid": uid})
                self.refused = True
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            if not self.refused:
                super().connection_lost(exc)

        def on_headers_complete(self) -> None:
            answer = self._answered_at_once()
            if answer is None:
                super().on_headers_complete()
                return
            self.cycle = _ANSWERED  # type: ignore[assignment]  # uvicorn asks it whether the last request is over
            self.transport.write(answer)
            self.on_response_complete()

        def _answered_at_once(self) -> bytes | None:
            """The reply that needs no task; None where there is none, or where anything is out of the ordinary."""
            if self.cycle is not None and not self.cycle.response_complete:
                return None  # an earlier one is not answered yet
            parser = self.parser
            if (
                parser.get_method() != b"GET"
                or parser.get_http_version() != "1.1"
                or not parser.should_keep_alive()
                or parser.should_upgrade()
                or self.expect_100_continue
                or self.flow.write_paused
                or not isinstance(self.app, Front)
            ):
                return None
            return self.app.at_once(self.url, self.headers)

    return PeerChecked


class _Answered:
    """Stands for a request that is over."""

    response_complete = True
    disconnected = False

    class message_event:  # noqa: N801 - uvicorn's name
        @staticmethod
        def set() -> None:
            """Nobody waits."""


_ANSWERED = _Answered()


def peer_uid(sock: socket.socket) -> int:
    """Who is at the other end of a local socket, as the kernel knows it."""
    return int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])


def bind_private(path: Path, owner: tuple[int, int] | None = None) -> socket.socket:
    """A listening local socket that its owner alone can open; never, not even for a moment, by others. If that is
    somebody else than we, its directory is for the two of us alone."""
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise Unavailable(
            f"the path of a local socket is at most {SOCKET_PATH_MAX} bytes",
            where=str(path),
            hint="use a shorter directory",
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if owner is not None and owner[0] != os.geteuid():
        os.chown(path.parent, -1, owner[1])
        path.parent.chmod(0o710)
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Nobody can connect before listen(), so the mode set in between is the first that matters.
        sock.bind(str(path))
        path.chmod(0o600)
        if owner is not None and owner[0] != os.geteuid():
            os.chown(path, *owner)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on any more; refuse if somebody does, or if it is something else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Unavailable("something that is not a socket is in the way", where=str(path), hint="move it elsewhere")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise Unavailable("another service listens here already", where=str(path), hint="stop it first")
