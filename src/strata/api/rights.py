"""Every route says which right it needs; without one the service does not start. Checked before the body is read.

``needs`` gives the keyword arguments that a Litestar handler takes for its right and its documented statuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec

from strata.api.http import CONDITIONAL
from strata.api.problem import MEDIA_TYPE, Problem
from strata.core.errors import BadRequest, Unauthenticated
from strata.fleet.access.principal import Principal, Right, Verb

WHO = "strata.who"
"""Where the front puts the principal (or why there is none) in the connection's scope."""

CONTROLLER = "strata.controller"
"""Where the front puts a function that tells which controller asks (or why it is none)."""

_STATUSES: Mapping[int, str] = {
    400: "Your input is wrong; nothing was changed.",
    401: "No credential, or not a good one.",
    403: "Your role or scope does not allow it.",
    404: "It does not exist.",
    409: "Somebody else was first, or a brake is on.",
    410: "What you asked for is too old and no longer kept.",
    412: "It is not at the revision that you named.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "Our fault.",
    502: "The hardware answered wrongly, or not at all.",
    503: "A part that is needed is away; nothing was changed. Try later.",
    504: "The hardware gave no answer: look before trying again.",
}
_ALWAYS = (400, 401, 403, 500, 503)
_WITH_BODY = (413, 415)
_JSON_TYPES = ("application/json", "application/merge-patch+json")


def _problems(statuses: Iterable[int]) -> dict[int, ResponseSpec]:
    return {
        status: ResponseSpec(
            data_container=Problem, description=_STATUSES[status], media_type=MEDIA_TYPE, generate_examples=False
        )
        for status in sorted(statuses)
    }


def needs(
    verb: Verb,
    kind: str,
    *statuses: int,
    body: bool = False,
    also: Mapping[int, ResponseSpec] | None = None,
) -> dict[str, Any]:
    """For a handler: the right that it needs, and every status that it may answer beside success.

    ``body``: it takes one. ``also``: other successes.
    """
    listed = {*_ALWAYS, *statuses, *(_WITH_BODY if body else ())}
    opt = {"right": Right(verb, kind), "body": body, CONDITIONAL: 412 in listed}
    return {"opt": opt, "responses": {**_problems(listed), **(also or {})}}


def public(*statuses: int, body: bool = False) -> dict[str, Any]:
    """For a handler that anybody may call. ``body``: it takes one."""
    listed = {400, 500, *statuses, *(_WITH_BODY if body else ())}
    return {"opt": {"right": None, "body": body}, "responses": _problems(listed)}


def answers(kind: type[Any] | None, description: str, media_type: str = "application/json") -> ResponseSpec:
    """A further success, for ``needs(also=...)``."""
    return ResponseSpec(data_container=kind, description=description, media_type=media_type, generate_examples=False)


async def check_right(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Litestar guard: who asks must be known and have the right; then the request must be one that we understand."""
    if "right" not in handler.opt:
        # Litestar's own OPTIONS handlers: not ours, so not offered.
        raise HTTPException(status_code=405, detail="method not allowed", headers={"allow": _allowed(connection)})
    right = handler.opt["right"]
    if right is not None:
        who = connection.scope.get(WHO)
        if not isinstance(who, Principal):
            raise who if isinstance(who, Unauthenticated) else Unauthenticated("no credential")
        who.require(right)
    if handler.opt["body"]:
        kind = connection.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind not in _JSON_TYPES:
            raise HTTPException(status_code=415, detail="the body must be application/json")
    known = handler.opt.get("query", frozenset())
    for name in connection.query_params:
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise BadRequest("no such query parameter", where=repr(name)[:80], hint=takes)


def _allowed(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    path = connection.scope.get("path_template", "")
    app = connection.app
    methods = {m for route in app.routes if route.path_format == path for m in route.methods} - {"OPTIONS"}
    return ", ".join(sorted(methods))


def handlers_of(app: Litestar) -> list[tuple[str, str, HTTPRouteHandler]]:
    """All of (method, path template, handler), without Litestar's own OPTIONS."""
    return [
        (method, route.path_format, handler)
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        if isinstance(handler, HTTPRouteHandler)
        for method in sorted(handler.http_methods)
        if method != "OPTIONS"
    ]


def require_rights(app: Litestar) -> None:
    """Raise unless every route declared what it needs, and teach each which query parameters it takes."""
    bare = [f"{method} {path}" for method, path, handler in handlers_of(app) if "right" not in handler.opt]
    if bare:
        raise RuntimeError(f"routes without a declared right: {', '.join(bare)}")
    for route in app.routes:
        for handler, arguments in getattr(route, "route_handler_map", {}).values():
            handler.opt["query"] = frozenset(one.field_alias for one in arguments.expected_query_params)
