"""Redfish's protocol (DSP0266) as one ASGI application: who asks, what for, under which conditions; then the handler.

In the order that the specification wants: authentication, then the method and headers, then the right, then the body,
then preconditions. The front (``strata.api.front``) is before it and gives bearer tokens and certificates a name.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import Iterable, MutableMapping
from typing import Any

import msgspec

from strata.api.http import is_fresh
from strata.api.redfish.protocol import query as queries
from strata.api.redfish.protocol.errors import Rejected, rejected, reply_to
from strata.api.redfish.protocol.login import authenticate, check_password_change
from strata.api.redfish.protocol.messages import message
from strata.api.redfish.protocol.route import ROOT, Call, Handler, Json, Links, Reply, Route, Stream
from strata.api.redfish.protocol.table import Table
from strata.api.redfish.protocol.wire import (
    Headers,
    Receive,
    Send,
    check_accept,
    check_version,
    read_body,
    read_headers,
    send_reply,
    send_stream,
)
from strata.api.rights import WHO
from strata.api.services import NOBODY, SERVICES, Limits
from strata.core.errors import NotFound, StrataError, Unauthenticated
from strata.fleet.services import Services

Scope = MutableMapping[str, Any]

_METHODS = ("GET", "POST", "PATCH", "DELETE")
_UNDERSTOOD = frozenset({*_METHODS, "HEAD", "PUT", "OPTIONS"})
_PUBLIC_BODY = 64 * 1024
"""Bytes of a body from somebody whom we do not know yet."""
_SCHEMAS = "https://redfish.dmtf.org/schemas/v1/"

_encode = msgspec.json.Encoder().encode


class RedfishApp:
    """Serves ``routes`` at ``/redfish``."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._table = Table(routes)
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        """One writer of a resource at a time, so that its precondition still holds when it writes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope["headers"])
        path: str = scope.get("raw_path", b"").decode("latin-1") or scope["path"]
        try:
            reply = await self._answer(scope, receive, headers, path)
        except Exception as error:
            reply = reply_to(error, path, conditional=b"if-match" in headers)
        if isinstance(reply, Stream):
            await send_stream(receive, send, reply)
        else:
            await send_reply(send, reply)

    async def _answer(self, scope: Scope, receive: Receive, headers: Headers, path: str) -> Reply | Stream:
        method: str = scope["method"]
        services: Services = scope[SERVICES]
        if method not in _UNDERSTOOD:
            raise rejected(501, "OperationNotAllowed", hint="this service does not know the method")
        if method == "POST" and path.rstrip("/").endswith("/Members"):
            path = path.rstrip("/").removesuffix("/Members")
        found = self._table.find(path)
        who = await authenticate(services, scope.get(WHO), headers)
        scope[WHO] = who
        if isinstance(who, Unauthenticated):
            if found is None or method not in found[0].public:
                raise _challenge(who, path)
            who = NOBODY
        if found is None:
            raise NotFound("there is nothing at this path", hint=f"start at {ROOT}")
        route, params = found
        scope["path_template"] = route.template
        check_version(headers)
        if method == "OPTIONS":
            return Reply(status=204, headers={"Allow": _allowed(route)})
        handler = _handler(route, method)
        if handler is None:
            raise Rejected(405, [message("OperationNotAllowed")], {"Allow": _allowed(route)})
        if method not in route.public:
            check_password_change(services, who, path, method)
        right = route.rights.get(method)
        if right is not None:
            who.require(right)
        most = _PUBLIC_BODY if who is NOBODY else services.get(Limits).body
        call = Call(
            who=who,
            services=services,
            path=path.removesuffix("/"),
            params=params,
            body=await read_body(receive, headers, most) if method in ("POST", "PATCH") else None,
            base=f"https://{headers.get(b'host', '')}",
            resume=headers.get(b"last-event-id", ""),
        )
        if method == "GET":
            check_accept(headers, route.media)
            return await self._get(route, handler, call, scope["query_string"].decode("latin-1"), headers)
        return await self._change(route, handler, call, method, headers)

    async def _get(self, route: Route, handler: Handler, call: Call, text: str, headers: Headers) -> Reply | Stream:
        query = queries.parse(text)
        found = await handler(call)
        if isinstance(found, Stream):
            return found
        reply = found if isinstance(found, Reply) else Reply(body=found)
        reply = msgspec.structs.replace(reply, headers={**reply.headers, "Allow": _allowed(route)})
        if reply.body is None or reply.status != 200:
            return reply
        tag = "" if query.depends_on_others else _tag(reply.body)
        return _shown(await queries.apply(query, reply.body, self._fetcher(call)), tag, reply, headers)

    def _fetcher(self, call: Call) -> queries.Fetch:
        """Reads other resources on behalf of the same caller, with the same rights."""

        async def fetch(path: str) -> Json | None:
            found = self._table.find(path)
            if found is None or found[0].get is None:
                return None
            route, params = found
            right = route.rights.get("GET")
            if right is not None and not call.who.may(right):
                return None
            try:
                whole = await route.get(  # type: ignore[misc]
                    msgspec.structs.replace(call, path=path, params=params, one_of_many=True)
                )
            except StrataError:  # it stays a link: one dead BMC does not spoil the others' answer
                return None
            resource = whole if isinstance(whole, dict) else whole.body if isinstance(whole, Reply) else None
            return resource and await queries.apply(queries.NOTHING, resource, fetch)

        return fetch

    async def _change(self, route: Route, handler: Handler, call: Call, method: str, headers: Headers) -> Reply:
        if method == "POST":
            return _changed(await handler(call), route)
        turn = self._turns.setdefault(call.path, asyncio.Lock())
        async with turn:
            if b"if-match" in headers and route.get is not None:
                await _precondition(route.get, call, headers[b"if-match"])
            return _changed(await handler(call), route)


async def _precondition(get: Handler, call: Call, wanted: str) -> None:
    found = await get(msgspec.structs.replace(call, body=None))
    resource = found if isinstance(found, dict) else found.body if isinstance(found, Reply) else None
    if resource is None or not is_fresh(wanted, _tag(resource)):
        raise rejected(412, "PreconditionFailed")


def _changed(found: Json | Reply | Stream, route: Route) -> Reply:
    assert not isinstance(found, Stream)
    reply = found if isinstance(found, Reply) else Reply(body=found)
    if reply.body is None:
        return Reply(status=204 if reply.status == 200 else reply.status, headers=reply.headers)
    if reply.status not in (200, 201) or "@odata.id" not in reply.body:
        return reply
    return _shown(reply.body, _tag(reply.body), reply, {})


def _shown(resource: Json, tag: str, reply: Reply, headers: Headers) -> Reply:
    """A resource with its entity tag and the link to its schema; or that the client has it already."""
    tag = tag or _tag(resource)
    more = {**reply.headers, "ETag": tag}
    if link := _schema_link(resource):
        more["Link"] = link
    if is_fresh(headers.get(b"if-none-match", ""), tag):
        return Reply(status=304, headers=more)
    if "@odata.id" in resource:
        resource = {**resource, "@odata.etag": tag}
    return Reply(status=reply.status, body=resource, headers=more)


def _tag(resource: Json) -> str:
    """The entity tag of a resource: of what it says. Weak, since a page or a selection of it has the same."""
    members = resource.get("Members")
    digest = hashlib.blake2b(digest_size=12)
    if isinstance(members, Links):
        digest.update("\n".join(members.paths).encode())
        resource = {**resource, "Members": None}
    digest.update(_encode(resource))
    return f'W/"{digest.hexdigest()}"'


def _schema_link(resource: Json) -> str:
    name = str(resource.get("@odata.type", "")).lstrip("#").rpartition(".")[0]
    return f"<{_SCHEMAS}{name}.json>; rel=describedby" if name else ""


def _handler(route: Route, method: str) -> Handler | None:
    return {"GET": route.get, "POST": route.post, "PATCH": route.patch, "DELETE": route.delete}.get(method)


def _allowed(route: Route) -> str:
    methods = [method for method in _METHODS if _handler(route, method) is not None]
    return ", ".join([*methods, "HEAD"] if "GET" in methods else methods)


def _challenge(error: Unauthenticated, path: str) -> Rejected:
    told = reply_to(error, path)
    assert told.body is not None
    headers = {"WWW-Authenticate": 'Basic realm="Strata", Bearer realm="Strata"'}
    return Rejected(401, told.body["error"]["@Message.ExtendedInfo"], headers)
