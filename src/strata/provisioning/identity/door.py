"""Where nodes get their certificates: ``POST /agent/v1/redeem`` with a token, ``/agent/v1/renew`` with a certificate.

``agents.door`` answers with what these give. They hold no logic: ``identity`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from strata.api.raw_body import Receive, whole_body
from strata.api.rights import WHO
from strata.core.errors import BadRequest, Denied, Unauthenticated
from strata.core.input.decoding import UNREADABLE
from strata.fleet.access.principal import Principal
from strata.provisioning.identity.identity import Identity

Scope = MutableMapping[str, Any]

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


async def redeem(scope: Scope, receive: Receive, identity: Identity) -> bytes:
    """A certificate for a token; nobody is known yet."""
    asked = _decoded(_redeem, await whole_body(receive, BODY_MOST))
    return _encode(await identity.redeem(asked.token, asked.csr.encode(), peer_of(scope)))


async def renew(scope: Scope, receive: Receive, identity: Identity) -> bytes:
    """A new certificate for one that is current."""
    who = scope.get(WHO)
    if not isinstance(who, Principal):
        raise who if isinstance(who, Unauthenticated) else Unauthenticated("no certificate was shown")
    if who.role != "node" or who.via != "certificate":
        raise Denied("only a node may renew its certificate, and must show its present one", where=who.name)
    asked = _decoded(_renew, await whole_body(receive, BODY_MOST))
    return _encode(await identity.renew(who.name, who.credential, asked.csr.encode(), peer_of(scope)))


def peer_of(scope: Scope) -> str:
    """The address that asks, as nginx says; empty where nginx is not between."""
    return next((value.decode("latin-1")[:45] for name, value in scope["headers"] if name == PEER), "")


def _decoded(decode: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return decode(body)
    except UNREADABLE:
        # What was sent is not repeated: it may hold a token.
        raise BadRequest(
            "the body is not JSON of the expected form", where="body", hint="an object with token and csr"
        ) from None
