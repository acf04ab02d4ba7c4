"""What all BMCs are asked over: sends a request, gives a reply or says what became of it.

Knows nothing of logins. It follows no redirects, reads no more than ``max_body``, and remembers who is silent or slow.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import aiohttp

from strata.core.errors import DeviceError, OutcomeUnknown
from strata.core.input.foreign import read_text
from strata.hardware.bmc.redfish.connections import Connections, NotConnected, NotTrusted, Reply, TooLong
from strata.hardware.bmc.redfish.endpoint import Endpoint, RedfishSettings


class Pins(Protocol):
    """Remembers which certificate a host showed, as a SHA-256 in hexadecimal. ``put`` takes effect at once."""

    def get(self, host: str) -> str | None:
        """The fingerprint that ``host`` (with port) is known by."""

    def put(self, host: str, sha256: str) -> None:
        """``host`` showed this one, and is known by it from now on."""


class Pinned(aiohttp.Fingerprint):
    """Checks a new connection to ``host`` before anything is sent over it."""

    def __init__(self, pins: Pins, host: str) -> None:
        super().__init__(bytes(32))  # stands for none: what is expected is looked up at each check
        self._pins = pins
        self._host = host

    def check(self, transport: asyncio.Transport) -> None:
        """Remember the first certificate; raise ``aiohttp.ServerFingerprintMismatch`` for another one."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        shown = hashlib.sha256(certificate).hexdigest()
        known = self._pins.get(self._host)
        if known is None:
            self._pins.put(self._host, shown)
        elif known != shown:
            host, _, port = self._host.rpartition(":")
            raise aiohttp.ServerFingerprintMismatch(bytes.fromhex(known), bytes.fromhex(shown), host, int(port))


def changed(host: str, wrong: aiohttp.ServerFingerprintMismatch, *, node: str, request: str) -> DeviceError:
    """The error that says which certificate was known, which was shown, and how to accept it."""
    return DeviceError(
        f"its certificate has changed: sha256 {wrong.expected.hex()} was known, {wrong.got.hex()} is shown",
        node=node,
        request=request,
        hint=f"if it was renewed or the BMC replaced: strata hardware credentials accept-certificate {host}",
    )


Tls = ssl.SSLContext | bool | Pins

_HEADERS = {"Accept": "application/json", "OData-Version": "4.0"}
_IDEMPOTENT = ("GET", "DELETE", "PUT")
"""What does the same when it is sent twice."""


class Raw(NamedTuple):
    """A body that is not JSON."""

    data: bytes
    kind: str


class Wire:
    """Sends. ``tls``: a context with the site's authority, True for the system's, or pins for trust on first use."""

    def __init__(self, settings: RedfishSettings, tls: Tls, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.clock = clock
        self.requests = 0
        self._tls = tls
        self._connections = Connections(most=settings.connections, per_origin=settings.per_origin)
        self._http: aiohttp.ClientSession | None = None
        self._sockets: aiohttp.ClientSession | None = None
        self._smooth = 0.0  # running mean of how long reads take, and of how far they stray from it
        self._stray = 0.0

    async def close(self) -> None:
        """Close the connections."""
        sockets, self._sockets, http, self._http = self._sockets, None, self._http, None
        for session in (sockets, http):
            if session is not None:
                await session.close()
        await self._connections.close()

    def patience(self, bmc: Endpoint) -> float:
        """Seconds that a read may take: many times what reads take now, so that the dead do not hold up the rest.

        A BMC that is known to be slow gets the full time, as does one that is tried after a silence.
        """
        if bmc.slow or bmc.dead:
            return self.settings.timeout
        return min(self.settings.timeout, max(self.settings.quick, 4 * (self._smooth + 4 * self._stray)))

    async def send(
        self,
        bmc: Endpoint,
        method: str,
        path: str,
        body: Raw | None,
        headers: Mapping[str, str],
        *,
        harmless: bool = False,
        timeout: float = 0.0,
    ) -> Reply:
        """One request. ``harmless``: like a read it has no effect that anybody must look for.

        ``timeout`` 0: as long as such a request may take by the settings.
        """
        harmless = harmless or method == "GET"
        limit = timeout or (self.patience(bmc) if harmless else self.settings.timeout)
        self.requests += 1
        request = f"{method} {path}"
        head = {**_HEADERS, **headers}
        if body:
            head["Content-Type"] = body.kind
        try:
            reply = await self._connections.send(
                bmc.origin,
                method,
                bmc.path + path,
                head,
                body.data if body else b"",
                trust=self._trust(bmc),
                limit=limit,
                most=self.settings.max_body,
                again=method in _IDEMPOTENT,
            )
        except (aiohttp.ClientError, OSError) as wrong:
            raise self._failed(bmc, request, wrong, limit, harmless) from wrong
        bmc.misses = 0
        if harmless and not timeout:
            self._learn(bmc, reply.seconds)
        return reply

    @asynccontextmanager
    async def stream(
        self, bmc: Endpoint, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A GET whose body goes on for as long as both sides like; the caller looks at its status."""
        http = self._http or self._open()
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self.settings.timeout)
        self.requests += 1
        try:
            async with http.get(
                bmc.base + path, headers=headers, allow_redirects=False, timeout=limits, ssl=self._trust(bmc)
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError) as wrong:
            raise self._failed(bmc, f"GET {path}", wrong, self.settings.timeout, True) from wrong

    @asynccontextmanager
    async def socket(
        self, bmc: Endpoint, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket at ``path`` of the BMC's host. ``aiohttp.WSServerHandshakeError`` when there is none."""
        sockets = self._sockets or self._open_sockets()
        self.requests += 1
        try:
            async with sockets.ws_connect(
                bmc.base + path,
                headers=headers,
                ssl=self._trust(bmc),
                heartbeat=30.0,
                max_msg_size=self.settings.max_body,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError:
            raise
        except (aiohttp.ClientError, OSError) as wrong:
            raise self._failed(bmc, f"GET {path}", wrong, self.settings.timeout, True) from wrong

    def _failed(self, bmc: Endpoint, request: str, wrong: Exception, limit: float, harmless: bool) -> Exception:
        """What an error on the wire means."""
        if isinstance(wrong, aiohttp.ServerFingerprintMismatch):
            return changed(bmc.host, wrong, node=bmc.base, request=request)
        if isinstance(wrong, TooLong):
            most = self.settings.max_body
            bmc.flaw = f"the reply to {request} is longer than {most} bytes"
            if not harmless:
                return OutcomeUnknown(f"the reply to {request} is longer than {most} bytes", where=bmc.base)
            long = f"the reply is longer than {most} bytes"
            return DeviceError(long, node=bmc.base, request=request, reply=read_text(wrong.begin[:300]) or "(long)")
        if isinstance(wrong, aiohttp.ClientSSLError | NotTrusted):
            hint = "was the BMC replaced?"
            return DeviceError("its certificate is not trusted", node=bmc.base, request=request, hint=hint)
        if isinstance(wrong, aiohttp.ClientConnectorError | aiohttp.InvalidURL | NotConnected):
            # Never connected, so nothing can have happened.
            self._missed(bmc)
            return DeviceError("nobody answers at its address", node=bmc.base, request=request)
        if isinstance(wrong, TimeoutError):
            bmc.slow = True  # if it is alive after all, it gets more time
            self._missed(bmc)
            if harmless:
                return DeviceError(f"no answer in {limit:.3g} s", node=bmc.base, request=request)
            return OutcomeUnknown(f"no answer to {request} in {limit:.3g} s", where=bmc.base)
        if not harmless:
            return OutcomeUnknown(f"the connection broke during {request}", where=bmc.base)
        return DeviceError(f"the connection broke ({wrong})", node=bmc.base, request=request)

    def _open(self) -> aiohttp.ClientSession:
        # For what goes on and on. How many there are is for those who open them to bound.
        connector = aiohttp.TCPConnector(limit=0, force_close=True, ttl_dns_cache=600)
        self._http = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers=_HEADERS,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )
        return self._http

    def _open_sockets(self) -> aiohttp.ClientSession:
        # ws_connect cannot be told to follow no redirects. Of its own: other requests need not pass by the middleware.
        http = self._http or self._open()
        self._sockets = aiohttp.ClientSession(
            connector=http.connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_stays_here,),
        )
        return self._sockets

    def _trust(self, bmc: Endpoint) -> ssl.SSLContext | bool | aiohttp.Fingerprint:
        if isinstance(self._tls, ssl.SSLContext | bool):
            return self._tls
        if not isinstance(bmc.tls, Pinned):
            bmc.tls = Pinned(self._tls, bmc.host)
        return bmc.tls

    def _learn(self, bmc: Endpoint, took: float) -> None:
        self._stray += 0.02 * (abs(took - self._smooth) - self._stray)
        self._smooth += 0.02 * (took - self._smooth)
        if bmc.slow and took < self.settings.quick / 2:
            bmc.slow = False

    def _missed(self, bmc: Endpoint) -> None:
        now = self.clock()
        bmc.dead_since = bmc.dead_since if bmc.misses else now
        bmc.dead_until = now + min(self.settings.dead_most, self.settings.dead_for * 2**bmc.misses)
        bmc.misses = min(bmc.misses + 1, 16)


async def _stays_here(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Refuse a redirect before anything goes elsewhere: the session's token would go along."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise aiohttp.WSServerHandshakeError(
            response.request_info, response.history, status=response.status, message="a redirect is not followed"
        )
    return response
