"""A small Redfish client: one connection pool for all controllers, sessions that are reused and given back.

Knows HTTP, logins and what a controller did to us before (silent, busy, refused our password); ``redfish_power``
knows what to ask. It never follows a redirect to another host, never reads more than ``max_body``, never sends
a request twice unless the controller said that it did nothing with the first, and puts no secret into an error.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, NoReturn
from urllib.parse import urlsplit

import aiohttp
import msgspec

from strata.core.errors import Conflict, DeviceError, OutcomeUnknown, Unavailable

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"

Json = Mapping[str, object]


class Credentials:
    """A user and a password. Neither ``repr`` nor ``str`` shows the password, and it does not pickle."""

    __slots__ = ("_password", "user")

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    def __reduce__(self) -> str:
        raise TypeError("credentials are not written anywhere")

    def basic(self) -> str:
        """The value of a basic Authorization header."""
        return "Basic " + b64encode(f"{self.user}:{self._password}".encode()).decode()

    def login(self) -> bytes:
        """The body of a session login."""
        return msgspec.json.encode({"UserName": self.user, "Password": self._password})


class RedfishSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the client behaves. Times in seconds."""

    auth: Literal["session", "basic"] = "session"
    """Sessions spare a controller the password check per request; some old ones only do basic."""
    timeout: float = 10.0
    """For one request, all in all. Controllers that take longer to answer a reset are common; to read, rare."""
    quick: float = 1.0
    """The least time that a read gets when the fleet answers fast: see ``RedfishClient.patience``."""
    per_bmc: int = 1
    """Requests at a time to one controller; most fall over at a handful."""
    max_body: int = 1 << 20
    """Bytes in a reply."""
    dead_for: float = 5.0
    """How long a controller that did not answer is left alone at first; doubles up to ``dead_most``."""
    dead_most: float = 60.0
    full_for: float = 60.0
    """A controller whose sessions are all taken (by a process that was killed, say) is sent the password with each
    request for this long; then a session is tried again."""
    wrong_passwords: int = 2
    """Logins refused in a row, after which a controller is not tried again: it would lock the account."""


class Answer(NamedTuple):
    """A reply that made sense."""

    status: int
    body: Json
    etag: str
    location: str


class Bmc:
    """What is known of one controller. ``locked`` says why it is not tried any more."""

    __slots__ = (
        "base", "busy", "dead_since", "dead_until", "door", "full_until", "locked", "misses", "origin", "path",
        "quiet_until", "refused", "reset_target", "reset_types", "session", "slow", "system", "token",
    )  # fmt: skip

    def __init__(self, address: str, per_bmc: int) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise DeviceError("not an http or https address", node=address[:80], hint="give the node's bmc a URL")
        path, found, system = parts.path.partition(f"{ROOT}/Systems/")
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.path = path.rstrip("/") if found else parts.path.rstrip("/").removesuffix(ROOT)
        self.base = self.origin + self.path
        self.busy = asyncio.Semaphore(per_bmc)
        self.door = asyncio.Lock()
        self.system = f"{ROOT}/Systems/{system}".rstrip("/") if system else ""
        """The node's system resource; found on the first look, unless the address names it."""
        self.reset_target = ""
        self.reset_types: tuple[str, ...] = ()
        self.token = ""
        self.session = ""
        self.refused = 0
        self.locked = ""
        self.misses = 0
        self.dead_since = 0.0
        self.dead_until = 0.0
        self.quiet_until = 0.0
        self.full_until = 0.0
        self.slow = False

    @property
    def dead(self) -> bool:
        """Whether it did not answer when last asked."""
        return self.misses > 0


class RedfishClient:
    """Talks to any number of controllers. Close it: that logs out."""

    def __init__(
        self,
        credentials: Credentials | Callable[[str], Credentials],
        *,
        settings: RedfishSettings | None = None,
        tls: ssl.SSLContext | bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or RedfishSettings()
        self.clock = clock
        self.requests = 0
        self._credentials = credentials
        self._tls = tls
        self._bmcs: dict[str, Bmc] = {}
        self._http: aiohttp.ClientSession | None = None
        self._smooth = 0.0  # running mean of how long reads take, and of how far they stray from it
        self._stray = 0.0

    async def __aenter__(self) -> RedfishClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Log out everywhere, as far as controllers answer within a second or two, and close the connections."""
        if self._http is None:
            return
        waiting = iter([bmc for bmc in self._bmcs.values() if bmc.token and not bmc.dead])
        await asyncio.gather(*(self._log_out_all(waiting) for _ in range(64)))
        await self._http.close()
        self._http = None

    def bmc(self, address: str) -> Bmc:
        """What is known of the controller at ``address``. Raises ``DeviceError`` for a bad address."""
        found = self._bmcs.get(address)
        if found is None:
            found = self._bmcs[address] = Bmc(address, self.settings.per_bmc)
        return found

    def unlock(self, address: str) -> None:
        """A person has set the password right: try the controller again."""
        bmc = self.bmc(address)
        bmc.locked = ""
        bmc.refused = 0

    def patience(self, bmc: Bmc) -> float:
        """Seconds that a read may take: many times what reads take now, so that the dead do not hold up the rest.

        A controller that is known to be slow gets the full time, as does one that is tried after a silence.
        """
        if bmc.slow or bmc.dead:
            return self.settings.timeout
        return min(self.settings.timeout, max(self.settings.quick, 4 * (self._smooth + 4 * self._stray)))

    async def get(self, address: str, path: str) -> Answer:
        """Read a resource. Raises ``DeviceError``, also when there is no answer."""
        return await self.request(address, "GET", path)

    async def request(
        self,
        address: str,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        begin_before: float = float("inf"),
    ) -> Answer:
        """One request, with a login before it where there is none. Not begun after ``begin_before`` (``Unavailable``).

        ``OutcomeUnknown`` when what was asked may have happened, ``Conflict`` when the controller has a newer fence
        or version, ``DeviceError`` for everything else that it does wrong.

        A controller that was silent is asked all the same: whoever wants to spare it looks at ``Bmc.dead_until``.
        """
        bmc = self.bmc(address)
        data = None if body is None else msgspec.json.encode(body)
        async with bmc.busy:
            fresh = False
            while True:
                self._check(bmc, begin_before)
                if not bmc.token and not self._basic(bmc):
                    fresh = await self._log_in(bmc, address)
                    self._check(bmc, begin_before)
                auth = {"X-Auth-Token": bmc.token} if bmc.token else {"Authorization": self._who(address).basic()}
                reply = await self._send(bmc, method, path, data, auth | dict(headers or {}))
                if reply.status != 401:
                    bmc.refused = 0
                    return self._sort(bmc, method, path, reply)
                if fresh or "Authorization" in auth:
                    self._refused(bmc)
                bmc.token = ""  # the session ran out; a 401 means that nothing was done, so ask again

    async def patch(self, address: str, path: str, change: object) -> None:
        """Change a resource, if it is still as it is read now; ``Conflict`` if somebody else was faster."""
        etag = (await self.get(address, path)).etag
        await self.request(address, "PATCH", path, change, headers={"If-Match": etag} if etag else {})

    # -- logins

    def _basic(self, bmc: Bmc) -> bool:
        """Whether to send the password with each request."""
        return self.settings.auth == "basic" or self.clock() < bmc.full_until

    def _who(self, address: str) -> Credentials:
        return self._credentials if isinstance(self._credentials, Credentials) else self._credentials(address)

    async def _log_in(self, bmc: Bmc, address: str) -> bool:
        """Get a session; False if somebody else just did, or if there is none to be had."""
        async with bmc.door:
            if bmc.token or self._basic(bmc):
                return False
            reply = await self._send(bmc, "POST", SESSIONS, self._who(address).login(), {}, harmless=True)
            if reply.status in (401, 403):
                self._refused(bmc)
            if reply.status >= 400 and b"SessionLimitExceeded" in reply.body:
                bmc.full_until = self.clock() + self.settings.full_for
                return False
            answer = self._sort(bmc, "POST", SESSIONS, reply, login=True)
            if answer.status not in (200, 201) or not reply.token:
                raise DeviceError("the login gave no token", node=bmc.base, request=f"POST {SESSIONS}")
            bmc.token = reply.token
            bmc.session = urlsplit(answer.location).path.removeprefix(bmc.path)
            return True

    async def _log_out_all(self, waiting: Iterator[Bmc]) -> None:
        for bmc in waiting:
            await self._log_out(bmc)

    async def _log_out(self, bmc: Bmc) -> None:
        token, bmc.token = bmc.token, ""
        if bmc.session.startswith(SESSIONS):
            try:
                await self._send(bmc, "DELETE", bmc.session, None, {"X-Auth-Token": token}, harmless=True)
            except (DeviceError, OutcomeUnknown):
                return  # it runs out by itself

    def _refused(self, bmc: Bmc) -> NoReturn:
        bmc.refused += 1
        bmc.token = ""
        if bmc.refused >= self.settings.wrong_passwords:
            bmc.locked = f"refused the password {bmc.refused} times"
        raise DeviceError("the password was refused", node=bmc.base, hint="set the controller's credentials right")

    def _check(self, bmc: Bmc, begin_before: float) -> None:
        now = self.clock()
        if now > begin_before:
            raise Unavailable("not begun: no time is left", where=bmc.base)
        if bmc.locked:
            raise DeviceError(f"not tried: it {bmc.locked}", node=bmc.base, hint="set its credentials right, unlock it")
        if now < bmc.quiet_until:
            raise DeviceError(f"not tried: busy for another {bmc.quiet_until - now:.0f} s", node=bmc.base)

    # -- the wire

    async def _send(
        self,
        bmc: Bmc,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        *,
        harmless: bool = False,
    ) -> _Reply:
        """One request on the wire. ``harmless``: like a read it has no effect that anybody must look for."""
        http = self._http or self._open()
        harmless = harmless or method == "GET"
        limit = self.patience(bmc) if harmless else self.settings.timeout
        begun = self.clock()
        self.requests += 1
        request = f"{method} {path}"
        sent = {**headers, "Content-Type": "application/json"} if data is not None else headers
        try:
            async with http.request(
                method,
                bmc.base + path,
                data=data,
                headers=sent,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=limit),
                ssl=self._tls,
            ) as response:
                body = await self._read(response, bmc, request, harmless)
                reply = _Reply(response.status, body, response.headers)
        except aiohttp.ClientSSLError as wrong:
            raise DeviceError(
                "its certificate is not trusted", node=bmc.base, request=request, hint="was the controller replaced?"
            ) from wrong
        except aiohttp.ClientConnectorError as wrong:
            # Never connected, so nothing can have happened.
            self._missed(bmc)
            raise DeviceError("nobody answers at its address", node=bmc.base, request=request) from wrong
        except TimeoutError as wrong:
            bmc.slow = True  # if it is alive after all, it gets more time
            self._missed(bmc)
            if harmless:
                raise DeviceError(f"no answer in {limit:.3g} s", node=bmc.base, request=request) from wrong
            raise OutcomeUnknown(f"no answer to {request} in {limit:.3g} s", where=bmc.base) from wrong
        except (aiohttp.ClientError, OSError) as wrong:
            if not harmless:
                raise OutcomeUnknown(f"the connection broke during {request}", where=bmc.base) from wrong
            raise DeviceError(
                f"the connection broke ({type(wrong).__name__})", node=bmc.base, request=request
            ) from wrong
        bmc.misses = 0
        if harmless:
            self._learn(bmc, self.clock() - begun)
        return reply

    async def _read(self, response: aiohttp.ClientResponse, bmc: Bmc, request: str, harmless: bool) -> bytes:
        most = self.settings.max_body
        if (response.content_length or 0) <= most and "Content-Length" in response.headers:
            return await response.read()
        parts, size = [], 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > most:
                response.close()
                if not harmless:
                    raise OutcomeUnknown(f"the reply to {request} is longer than {most} bytes", where=bmc.base)
                raise DeviceError(f"the reply is longer than {most} bytes", node=bmc.base, request=request)
            parts.append(part)
        return b"".join(parts)

    def _open(self) -> aiohttp.ClientSession:
        # How many requests are under way is the driver's to bound; a limit here would let the dead block the rest.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=120, ttl_dns_cache=600)
        self._http = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept": "application/json", "OData-Version": "4.0"},
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )
        return self._http

    def _learn(self, bmc: Bmc, took: float) -> None:
        self._stray += 0.02 * (abs(took - self._smooth) - self._stray)
        self._smooth += 0.02 * (took - self._smooth)
        if bmc.slow and took < self.settings.quick / 2:
            bmc.slow = False

    def _missed(self, bmc: Bmc) -> None:
        now = self.clock()
        bmc.dead_since = bmc.dead_since if bmc.misses else now
        bmc.dead_until = now + min(self.settings.dead_most, self.settings.dead_for * 2**bmc.misses)
        bmc.misses = min(bmc.misses + 1, 16)

    def _sort(self, bmc: Bmc, method: str, path: str, reply: _Reply, *, login: bool = False) -> Answer:
        """Tell sense from nonsense. What a controller says to a login is not repeated."""
        status, request = reply.status, f"{method} {path}"
        said = "" if login else reply.body[:300].decode("utf-8", "replace")
        if 300 <= status < 400:
            raise DeviceError("it redirects elsewhere, which is not followed", node=bmc.base, request=request)
        if status == 412:
            raise Conflict("it refused: a newer fence or version is there", where=bmc.base)
        if status == 503:
            wait = reply.headers.get("Retry-After", "")
            seconds = min(float(wait), 300.0) if wait.isdecimal() else 5.0
            bmc.quiet_until = self.clock() + seconds
            raise DeviceError(f"busy: it asks for {seconds:.0f} s", node=bmc.base, request=request, reply=said)
        if status >= 400:
            text = f"it answered {status}{_message(reply.body)}"
            raise DeviceError(text, node=bmc.base, request=request, reply=said)
        body: object = {}
        if reply.body.strip():
            try:
                body = msgspec.json.decode(reply.body)
            except msgspec.DecodeError as wrong:
                if method != "GET" and not login:
                    raise OutcomeUnknown(f"the reply to {request} is not JSON", where=bmc.base) from wrong
                raise DeviceError("the reply is not JSON", node=bmc.base, request=request, reply=said) from wrong
        if not isinstance(body, dict):
            raise DeviceError("the reply is not a JSON object", node=bmc.base, request=request, reply=said)
        return Answer(status, body, reply.headers.get("ETag", ""), reply.headers.get("Location", ""))


class _Reply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def token(self) -> str:
        return self.headers.get("X-Auth-Token", "")


class _Error(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error


def _message(body: bytes) -> str:
    """What a Redfish error says, if it is one."""
    try:
        text = msgspec.json.decode(body, type=_ErrorBody).error.message
    except msgspec.DecodeError:
        return ""
    return f": {text[:200]}" if text else ""
