"""How a controller speaks to another: HTTPS to its front door, with a certificate that says that it is a controller.

Makes that certificate itself, with the shared authority, and a new one long before it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import msgspec

from strata.core.errors import BadRequest, Conflict, Denied, NotFound, OutcomeUnknown, StrataError, Unavailable
from strata.core.host.private_file import write_private
from strata.core.input.decoding import UNREADABLE
from strata.fleet.access.authority import Authority
from strata.fleet.bounded import bounded
from strata.fleet.peers.peers import Peer

PREFIX = "/peer/v1/"
ADDRESSEE = "X-Strata-Controller"
"""The header that says which controller is asked. An address may lead to another one, which must not answer."""
CERTIFICATE_TTL = 86400.0
"""Seconds that a controller's certificate lasts; it is made anew at half of that."""
CERTIFICATE_FILE = "controller.pem"

_CONNECT = 5.0
_ANSWER_MOST = 64 * 2**20
_LINE_MOST = 4 * 2**20
_ERRORS: dict[int, type[StrataError]] = {400: BadRequest, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


class _Problem(msgspec.Struct):
    detail: str = ""
    where: str = ""
    hint: str = ""


class PeerClient:
    """Asks other controllers. ``close`` when nobody asks any more."""

    def __init__(
        self, authority: Authority, me: str, directory: Path, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``me``: this controller's name. ``directory``: where its certificate and key may lie."""
        self._authority = authority
        self._me = me
        self._file = directory / CERTIFICATE_FILE
        self._clock = clock
        self._http: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._renew_at = 0.0
        self._renewing = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def call(self, peer: Peer, route: str, body: bytes = b"", *, timeout: float = 30.0) -> bytes:
        """``POST /peer/v1/<route>``: what the other one answers.

        Raises ``Unavailable`` where it was not reached, ``OutcomeUnknown`` where it did not answer to the end, and
        what it answered with where that is an error.
        """
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT)
        async with self._ask(peer, route, body, limit) as answer:
            return await _whole(answer, _ANSWER_MOST)

    async def lines(self, peer: Peer, route: str, body: bytes, *, silence: float = 60.0) -> AsyncIterator[bytes]:
        """``POST /peer/v1/<route>``: the lines of the answer as they come, without those that are empty. ``silence``:
        seconds without a word after which the other one counts as gone. Closing the iterator tells it to stop."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=silence)
        async with self._ask(peer, route, body, limit) as answer:
            rest = b""
            try:
                async for piece in answer.content.iter_any():
                    *whole, rest = (rest + piece).split(b"\n")
                    if len(rest) > _LINE_MOST:
                        raise OutcomeUnknown("it sends an endless line", where=peer.controller)
                    for line in whole:
                        if line:
                            yield line
            finally:
                if answer.connection is not None and answer.connection.transport is not None:
                    # Half-way through. A farewell of TLS is not enough: nginx notices only that the connection ends.
                    answer.connection.transport.abort()

    @contextlib.asynccontextmanager
    async def _ask(
        self, peer: Peer, route: str, body: bytes, limit: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        tls = await self._context()
        if self._http is None:
            # Commands hold their connections for as long as they run: nothing else may have to wait for those.
            connector = aiohttp.TCPConnector(limit=0)
            self._http = aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=2**20)
        try:
            async with self._http.post(
                f"{peer.url}{PREFIX}{route}",
                data=body,
                headers={"Content-Type": "application/json", ADDRESSEE: peer.controller},
                ssl=tls,
                allow_redirects=False,
                timeout=limit,
            ) as answer:
                if answer.status >= 300:
                    raise _error(peer, answer.status, await _whole(answer, 2**16))
                yield answer
        except aiohttp.ClientConnectorError as error:
            why = "its certificate is not good" if isinstance(error, aiohttp.ClientSSLError) else "no connection"
            raise Unavailable(f"controller {peer.controller} is away: {why}", where=peer.url) from None
        except aiohttp.ConnectionTimeoutError:
            raise Unavailable(f"controller {peer.controller} is away: no connection", where=peer.url) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = "took too long" if isinstance(error, TimeoutError) else "broke off"
            raise OutcomeUnknown(f"controller {peer.controller} {why}", where=peer.url) from None

    async def _context(self) -> ssl.SSLContext:
        """TLS that believes the shared authority alone, and shows that this is a controller."""
        async with self._renewing:  # many ask at once, and there is one file
            if self._tls is None or self._clock() >= self._renew_at:
                try:
                    self._tls = await asyncio.to_thread(self._new_context)
                except OSError as error:
                    raise Unavailable(
                        f"this controller cannot write its certificate: {error.strerror}", where=str(self._file)
                    ) from None
                self._renew_at = self._clock() + CERTIFICATE_TTL / 2
            return self._tls

    def _new_context(self) -> ssl.SSLContext:
        issued = self._authority.issue_controller(self._me, CERTIFICATE_TTL)
        write_private(self._file, issued.key + issued.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=self._authority.pem.decode())
        context.load_cert_chain(self._file)
        return context


async def _whole(answer: aiohttp.ClientResponse, most: int) -> bytes:
    body = await bounded(answer, most)
    if body is None:
        raise OutcomeUnknown(f"the answer has more than {most} bytes", where=str(answer.url.origin()))
    return body


def _error(peer: Peer, status: int, body: bytes) -> StrataError:
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except UNREADABLE:
        problem = _Problem()
    detail = problem.detail[:1000] or f"it answered {status}"
    kind = _ERRORS.get(status, OutcomeUnknown if status == 504 else Unavailable)
    return kind(f"controller {peer.controller}: {detail}", where=problem.where[:200], hint=problem.hint[:500])
