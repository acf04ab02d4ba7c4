"""The outermost ASGI layer: who asks, request ids, metrics, security headers; and the hottest routes by themselves.

There is one front per door. On the *admin* door (a socket that only the owner can open) whoever shows no credential is
the local administrator. On the *front* door only nginx speaks, and what it says about a client certificate is
believed. ``GET /v1/nodes/{name}`` and ``GET /v1/health`` are answered here: dispatch would be most of their cost.
Rooms may have applications of their own (``Room.apps``): Redfish, CAPMC, agents, other controllers.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Literal, TypeVar

import msgspec

from strata.api.http import is_fresh, node_tag
from strata.api.problem import MEDIA_TYPE, problem_of
from strata.api.raw_body import Bodies, Held, in_time
from strata.api.rights import CONTROLLER, WHO
from strata.api.services import SERVICES, FrontSecret, Limits
from strata.api.streams import is_stream
from strata.core.errors import BadRequest, Denied, StrataError, Unauthenticated
from strata.core.logs import request_id
from strata.core.node import check_node_name
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.oidc.tokens import UnknownKey
from strata.fleet.access.principal import LOCAL_ADMIN, Principal, Right
from strata.fleet.metrics import Metrics
from strata.fleet.nodes.service import NodeService
from strata.fleet.services import Services
from strata.rooms import apps

log = logging.getLogger(__name__)

Door = Literal["admin", "front"]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
RawApp = Callable[[Any, Any, Any], Awaitable[int]]
A = TypeVar("A", App, RawApp)

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_NO_STORE = (b"cache-control", b"no-store")
_REVALIDATE = (b"cache-control", b"private, no-cache")
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())
_VARY = (b"vary", b"authorization")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_NODE_PREFIX = "/v1/nodes/"
_NODE_ROUTE = "/v1/nodes/{name}"
_READ_NODE = Right("read", "node")
HEALTHY = b'{"status":"alive"}'

_HOT = re.compile(rb"/v1/nodes/([A-Za-z0-9][A-Za-z0-9._-]{0,62})\Z").match
_HOT_HEADERS = b"".join(b"%b: %b\r\n" % header for header in (*SECURITY_HEADERS, _REVALIDATE, _VARY))
_HOT_JSON = b"%b: %b\r\n" % _JSON

_encode = msgspec.json.Encoder().encode
_SECRET = b"x-strata-front-secret"
_CREDENTIALS = frozenset(
    (b"authorization", b"x-strata-client-verify", b"x-strata-client-serial", b"x-strata-client-dn")
)
_READ = _CREDENTIALS | {_SECRET, b"x-request-id", b"if-none-match"}


class Front:
    """An ASGI application in front of the Litestar one."""

    def __init__(self, app: App, services: Services, door: Door) -> None:
        self._app = app
        self._apps: dict[str, App] = apps("apps")
        self._raw_apps: dict[str, RawApp] = apps("raw_apps")
        self._services = services
        self._door = door
        self._secret = services.get(FrontSecret).value.encode() if door == "front" else b""
        self._authenticator = services.get(Authenticator)
        self._nodes = services.get(NodeService)
        self._metrics = services.get(Metrics)
        self._limits = services.get(Limits)
        self._bodies = services.get(Bodies)
        self._node_metrics = self._metrics.route("GET", _NODE_ROUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event stream."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003, "reason": "no WebSockets here"})

    def at_once(self, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """The whole reply to ``GET /v1/nodes/{name}``, as it goes on the wire: making a task of it would be most of its
        cost. None: ask in the usual way; so is answered whatever does not go well."""
        asked = _HOT(url)
        if asked is None:
            return None
        began = time.perf_counter()
        given, twice, ident = _heard(headers)
        if twice or not hmac.compare_digest(given.get(_SECRET, b"") if self._secret else b"", self._secret):
            return None
        who = self._who(given)
        if isinstance(who, Unauthenticated):
            return None
        try:
            who.require(_READ_NODE)
            found = self._nodes.node_json(who, asked[1].decode("ascii"))
        except StrataError:
            return None
        tag = node_tag(found)
        fresh = is_fresh(given.get(b"if-none-match", b"").decode("latin-1"), tag)
        self._node_metrics.done(304 if fresh else 200, time.perf_counter() - began)
        _record("GET", _NODE_ROUTE, 304 if fresh else 200, began, who)
        if fresh:
            return b"HTTP/1.1 304 Not Modified\r\nx-request-id: %b\r\n%betag: %b\r\n\r\n" % (
                ident,
                _HOT_HEADERS,
                tag.encode(),
            )
        return b"HTTP/1.1 200 OK\r\nx-request-id: %b\r\n%betag: %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
            ident,
            _HOT_HEADERS,
            tag.encode(),
            _HOT_JSON,
            len(found.body),
            found.body,
        )

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        given, twice, ident = _heard(scope["headers"])
        mark = request_id.set(ident.decode())
        self._metrics.in_flight.inc()
        held = Held(self._bodies)
        try:
            path: str = scope["path"]
            method: str = scope["method"]
            if not hmac.compare_digest(given.get(_SECRET, b"") if self._secret else b"", self._secret):
                await self._not_nginx(method, ident, began, send)
                return
            who = Unauthenticated("a credential was given twice") if twice else self._who(given)
            if isinstance(who, UnknownKey):
                who = await self._who_now(given)
            reads = method in ("GET", "HEAD")
            if not reads:
                receive = held.of(in_time(receive, self._limits.body_time, self._limits.body_rate))
            if reads and path.startswith(_NODE_PREFIX) and path.find("/", 10) < 0 and len(path) > 10:
                await self._node(scope, path[10:], who, given, ident, began, send)
            elif reads and path == "/v1/health":
                await self._health(scope, ident, began, send)
            else:
                scope[WHO] = who
                scope[SERVICES] = self._services
                if (raw := _at(self._raw_apps, path)) is not None:
                    scope[CONTROLLER] = lambda: self._controller(given, twice)
                    status = await raw(scope, receive, send)
                    route: str = scope["path_template"]
                    self._metrics.route("POST", route).done(status, time.perf_counter() - began)
                    if status >= 400:
                        _record(method, route, status, began, who)
                else:
                    await self._rest(scope, receive, send, ident, began)
        finally:
            held.let_go()
            self._metrics.in_flight.dec()
            request_id.reset(mark)

    def _who(self, given: dict[bytes, bytes]) -> Principal | Unauthenticated:
        """Who asks, or why we do not know. A bearer token that is there must be good, whatever else is."""
        try:
            header = given.get(b"authorization")
            if header is not None:
                scheme, _, token = header.decode("latin-1").partition(" ")
                if scheme.lower() != "bearer":
                    return Unauthenticated("only bearer tokens are accepted", where="Authorization")
                return self._authenticator.token(token.strip())
            if self._door == "admin":
                return LOCAL_ADMIN
            return self._authenticator.certificate(*_shown(given))
        except Unauthenticated as error:
            return error

    async def _who_now(self, given: dict[bytes, bytes]) -> Principal | Unauthenticated:
        """Who asks, once the keys of the provider whose token was shown have been fetched again."""
        if self._authenticator.oidc is not None:
            await self._authenticator.oidc.refresh()
        return self._who(given)

    def _controller(self, given: dict[bytes, bytes], twice: bool) -> str | Unauthenticated:
        """Which controller asks. Only what nginx says of a certificate counts; nobody on this machine is one."""
        if twice or self._door != "front" or b"authorization" in given:
            return Unauthenticated("this path is for other controllers, which show their certificate")
        try:
            return self._authenticator.controller(*_shown(given))
        except Unauthenticated as error:
            return error

    async def _not_nginx(self, method: str, ident: bytes, began: float, send: Send) -> None:
        """Whoever came to nginx's socket without its secret: nothing that it says is heard."""
        log.warning("a request by nginx's socket without its secret was refused")
        problem = problem_of(Denied("only the front door speaks here", hint="ask there: https://HOST:8443"))
        headers = [(b"x-request-id", ident), *SECURITY_HEADERS, _PROBLEM, _NO_STORE]
        self._metrics.route("ANY", "(none)").done(problem.status, time.perf_counter() - began)
        await _answer(send, problem.status, headers, _encode(problem), method)

    # the hottest routes

    async def _node(
        self,
        scope: Scope,
        name: str,
        who: Principal | Unauthenticated,
        given: dict[bytes, bytes],
        ident: bytes,
        began: float,
        send: Send,
    ) -> None:
        headers = [(b"x-request-id", ident), *SECURITY_HEADERS]
        try:
            if isinstance(who, Unauthenticated):
                raise who
            who.require(_READ_NODE)
            if scope["query_string"]:
                raise BadRequest("no such query parameter", where="query", hint="it takes none")
            check_node_name(name)
            found = self._nodes.node_json(who, name)
            tag = node_tag(found)
            headers += (_REVALIDATE, _VARY, (b"etag", tag.encode()))
            if is_fresh(given.get(b"if-none-match", b"").decode("latin-1"), tag):
                status, body = 304, b""
            else:
                status, body = 200, found.body
                headers.append(_JSON)
        except Exception as error:
            problem = problem_of(error)
            status, body = problem.status, _encode(problem)
            headers += (_PROBLEM, _NO_STORE)
            if status == 401:
                headers.append((b"www-authenticate", b"Bearer"))
        await _answer(send, status, headers, body, scope["method"])
        self._node_metrics.done(status, time.perf_counter() - began)
        _record(scope["method"], _NODE_ROUTE, status, began, who)

    async def _health(self, scope: Scope, ident: bytes, began: float, send: Send) -> None:
        headers = [(b"x-request-id", ident), *SECURITY_HEADERS, _JSON, _NO_STORE]
        await _answer(send, 200, headers, HEALTHY, scope["method"])
        self._metrics.route("GET", "/v1/health").done(200, time.perf_counter() - began)

    # everything else

    async def _rest(self, scope: Scope, receive: Receive, send: Send, ident: bytes, began: float) -> None:
        watches = is_stream(scope["path"])
        head = scope["method"] == "HEAD" and not watches
        if head:
            # A copy: the server looks at its own to know that no body will come.
            scope = {**scope, "method": "GET"}
        app = _at(self._apps, scope["path"]) or self._app
        status, stalled = 0, False

        async def sent(message: Message) -> None:
            nonlocal status, stalled
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", ident), *SECURITY_HEADERS]
                names = {name for name, _ in headers}
                headers.append(_VARY)
                if b"cache-control" not in names:
                    headers.append(_REVALIDATE if b"etag" in names else _NO_STORE)
                message["headers"] = headers
                self._count(scope, status, began)
            elif head and message["type"] == "http.response.body":
                message["body"] = b""
            if not watches:
                await send(message)
                return
            try:
                await asyncio.wait_for(send(message), self._limits.stalled)
            except TimeoutError:
                stalled = True
                raise

        try:
            await app(scope, receive, sent)
        except Exception as error:
            if stalled:
                # Returning without an end makes the server close the connection.
                log.info("a watcher took nothing for too long and was dropped")
                return
            if status:
                # The answer was under way: the client sees it end too early, the log sees why.
                log.error("answer broken off", exc_info=error)
                raise
            problem = problem_of(error)
            headers = [(b"x-request-id", ident), *SECURITY_HEADERS, _PROBLEM, _NO_STORE]
            self._count(scope, problem.status, began)
            await _answer(send, problem.status, headers, _encode(problem), "HEAD" if head else "GET")

    def _count(self, scope: Scope, status: int, began: float) -> None:
        """Count a request by its template; what matched none is counted together, so that labels stay few."""
        route = scope.get("path_template") or "(none)"
        self._metrics.route(scope["method"] if route != "(none)" else "ANY", route).done(
            status, time.perf_counter() - began
        )
        _record(scope["method"], route, status, began, scope.get(WHO))


def _heard(headers: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], bool, bytes]:
    """The headers that are read here, whether a credential was given twice, and the request's id."""
    given: dict[bytes, bytes] = {}
    twice = False
    for name, value in headers:
        if name in _READ:
            twice = twice or (name in given and name in _CREDENTIALS)
            given[name] = value
    found = given.get(b"x-request-id", b"")
    return given, twice, found if _REQUEST_ID.match(found) else secrets.token_hex(8).encode()


def _shown(given: dict[bytes, bytes]) -> tuple[str, str, str]:
    """What nginx says of the client's certificate: whether it is good, its serial, its subject."""
    verify, serial, subject = (
        given.get(name, b"").decode("latin-1")
        for name in (b"x-strata-client-verify", b"x-strata-client-serial", b"x-strata-client-dn")
    )
    return verify, serial, subject


def _at(found: dict[str, A], path: str) -> A | None:
    """The application of a room that answers ``path``."""
    for prefix, app in found.items():
        if path.startswith(prefix) and path[len(prefix) :][:1] in ("", "/"):
            return app
    return None


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes, method: str) -> None:
    if status != 304:
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def _record(method: str, route: str, status: int, began: float, who: object) -> None:
    """The access log: reads that went well only at debug level."""
    went_well = logging.DEBUG if method == "GET" and status < 400 else logging.INFO
    level = logging.WARNING if status >= 500 else went_well
    if log.isEnabledFor(level):
        log.log(
            level,
            "%s %s",
            method,
            route,
            extra={
                "status": status,
                "ms": round((time.perf_counter() - began) * 1000, 2),
                "who": who.name if isinstance(who, Principal) else "",
            },
        )
