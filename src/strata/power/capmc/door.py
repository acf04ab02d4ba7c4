"""CAPMC at ``/capmc`` (and ``/capmc/v0``, ``/capmc/v1``): one ASGI application over ``strata.power.capmc``.

The front (``strata.api.front``) has found out who asks. Every reply is JSON with ``e`` and ``err_msg``; an error inside
is told as one that may pass, and its reason goes to the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from strata.api.raw_body import whole_body
from strata.api.rights import WHO
from strata.api.services import SERVICES, Limits
from strata.core.errors import StrataError, Unauthenticated, Unavailable
from strata.core.input.decoding import UNREADABLE
from strata.fleet.access.principal import Principal, Right
from strata.fleet.services import Services
from strata.power.capmc.applets import APPLETS, changes
from strata.power.capmc.reply import Refusal, Reply, reply
from strata.power.capmc.request import Ask
from strata.power.capmc.service import CapmcService

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

PREFIX = "/capmc"
_VERSIONS = ("v0", "v1")
_READ, _CHANGE = Right("read", "power"), Right("change", "power")
_PROBES = ("liveness", "readiness")
MOST_BODY = 10 * 2**20
"""Bytes of a request: what the original's command takes. The caps of 100,000 nodes are 7 MB."""
LARGE_BODY = 64 * 2**10
"""Bytes from which on a body is not read in the event loop."""
_LONGEST = 400
_EMPTY = dict.fromkeys(
    ("get_power_cap_capabilities", "get_power_cap", "set_power_cap", "get_system_power", "get_system_power_details"),
    "no request",
)
"""What an empty body is told, where that is not the usual."""

_decode = msgspec.json.Decoder().decode


async def capmc_app(scope: Scope, receive: Receive, send: Send) -> None:
    allow = b""
    try:
        answer = await _answer(scope, receive)
    except _WrongMethod as error:
        answer, allow = error.reply, error.allow
    except Refusal as error:
        answer = error.reply
    except StrataError as error:
        answer = _told(error)
    except Exception:
        log.exception("CAPMC request failed")
        answer = reply(status=500, e=500, err_msg="Internal server error")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer.body)).encode())]
    if allow:
        headers.append((b"allow", allow))
    if answer.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _answer(scope: Scope, receive: Receive) -> Reply:
    method, parts = scope["method"], scope["path"][len(PREFIX) :].strip("/").split("/")
    shasta = parts[0] in _VERSIONS
    name = "/".join(parts[1:] if shasta else parts)
    who, services = scope.get(WHO), scope[SERVICES]
    assert isinstance(services, Services)
    if not isinstance(who, Principal):
        raise who if isinstance(who, Unauthenticated) else Unauthenticated("no credential was given")
    if name in _PROBES and method == "GET":
        return Reply(204, b"")
    applet = APPLETS.get(name)
    if applet is None:
        raise Refusal(404, "Not Found: there is no such call")
    scope["path_template"] = f"{PREFIX}/{name}"
    allowed = ("GET", "POST") if applet.get else ("POST",)
    if method not in allowed:
        raise _WrongMethod(method, allowed)
    if method == "GET":
        body = _query(scope)
    else:
        who.require(_READ)  # every call needs it; whether it needs more is known from the body
        most = min(MOST_BODY, services.get(Limits).body)
        body = await _body(receive, most, _EMPTY.get(name, "Bad Request: JSON: EOF"))
    ask = Ask(applet=name, body=body, shasta=shasta)
    who.require(_CHANGE if changes(name, ask) else _READ)
    capmc = services.find(CapmcService)
    if capmc is None:
        raise Unavailable("this service runs without the power layer")
    return await applet.answer(capmc.of(who), ask)


class _WrongMethod(Refusal):
    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(405, f"({method[:16]}) Not Allowed")
        self.allow = ", ".join(allowed).encode()


def _query(scope: Scope) -> dict[str, Any]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=16))


async def _body(receive: Receive, most: int, empty: str) -> dict[str, Any]:
    data = await whole_body(
        receive,
        most,
        too_long=Refusal(413, f"Bad Request: a request has at most {most} bytes"),
        broke_off=Refusal(400, "Bad Request: the request broke off"),
    )
    if not data:
        raise Refusal(400, empty)
    try:
        found = await asyncio.to_thread(_decode, data) if len(data) > LARGE_BODY else _decode(data)
    except UNREADABLE:
        raise Refusal(400, "BAD_JSON") from None
    if not isinstance(found, dict):
        raise Refusal(400, "BAD_JSON")
    return found


def _told(error: StrataError) -> Reply:
    """A schedulers' client tries again when it reads ``Internal server error``: said of what may pass, only."""
    text = str(error)[:_LONGEST]
    if isinstance(error, Unavailable):
        return reply(status=503, e=503, err_msg=f"Internal server error: {text}")
    return reply(status=error.status, e=error.status, err_msg=text)
