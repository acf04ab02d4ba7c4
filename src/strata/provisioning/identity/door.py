"""Where nodes get their certificates: ``POST /agent/v1/redeem`` with a token, ``/agent/v1/renew`` with a certificate.

Raw ASGI handlers that ``agents.door`` calls. They hold no logic: ``identity`` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from strata.api.problem import MEDIA_TYPE, problem_of
from strata.api.raw_body import Receive, whole_body
from strata.api.rights import WHO
from strata.core.errors import BadRequest, Denied, Unauthenticated
from strata.core.input.decoding import UNREADABLE
from strata.fleet.access.principal import Principal
from strata.provisioning.identity.identity import Certificate, Identity

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_MOST = 16 * 1024
"""Bytes of a request: a signing request has about 1,000."""
PEER = b"x-strata-client-address"
"""Where nginx says who asks; the same header from a client is overwritten."""

_T = TypeVar("_T")

Pem = Annotated[str, Meta(max_length=8192)]


class RedeemRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token, and the request for a certificate that it buys."""

    token: Annotated[str, Meta(max_length=200)]
    csr: Pem

    def __repr__(self) -> str:
        return "RedeemRequest()"


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request for a new certificate."""

    csr: Pem


_redeem = msgspec.json.Decoder(RedeemRequest).decode
_renew = msgspec.json.Decoder(RenewRequest).decode
_encode = msgspec.json.Encoder().encode


async def redeem(scope: Scope, receive: Receive, send: Send, identity: Identity) -> None:
    """A certificate for a token; nobody is known yet."""

    async def certificate() -> Certificate:
        asked = _decoded(_redeem, await whole_body(receive, BODY_MOST))
        return await identity.redeem(asked.token, asked.csr.encode(), peer_of(scope))

    await _answer(scope, send, certificate)


async def renew(scope: Scope, receive: Receive, send: Send, identity: Identity) -> None:
    """A new certificate for one that is current."""

    async def certificate() -> Certificate:
        who = scope.get(WHO)
        if not isinstance(who, Principal):
            raise who if isinstance(who, Unauthenticated) else Unauthenticated("no certificate was shown")
        if who.role != "node" or who.via != "certificate":
            raise Denied("only a node renews its certificate, and shows the one that it has", where=who.name)
        asked = _decoded(_renew, await whole_body(receive, BODY_MOST))
        return await identity.renew(who.name, who.credential, asked.csr.encode(), peer_of(scope))

    await _answer(scope, send, certificate)


def peer_of(scope: Scope) -> str:
    """The address that asks, as nginx says; empty where nginx is not between."""
    return next((value.decode("latin-1")[:45] for name, value in scope["headers"] if name == PEER), "")


async def _answer(scope: Scope, send: Send, make: Callable[[], Awaitable[Certificate]]) -> None:
    kind, headers = "application/json", []
    try:
        if scope["method"] != "POST":
            raise BadRequest("this path takes POST only", where=scope["method"][:16])
        status, body = 200, _encode(await make())
    except Exception as error:
        problem = problem_of(error)
        status, body, kind = problem.status, _encode(problem), MEDIA_TYPE
    headers += [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _decoded(decode: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return decode(body)
    except UNREADABLE:
        # What was sent is not repeated: it may hold a token.
        raise BadRequest("not the JSON that belongs here", where="body", hint="an object with token and csr") from None
