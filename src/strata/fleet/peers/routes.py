"""Where controllers speak to each other: ``POST /peer/v1/*``, one ASGI application beside those of people and agents.

Only the certificate of a controller opens it, and that certificate opens nothing else: it has no role. Who may make one
is ``strata.fleet.access.authority``'s; what is answered is in the routes that layers add to ``PeerDoor``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from strata.api.problem import MEDIA_TYPE, problem_of
from strata.api.raw_body import Receive, while_there, whole_body
from strata.api.rights import CONTROLLER
from strata.api.services import SERVICES
from strata.core.errors import BadRequest, NotFound, Unauthenticated, Unavailable
from strata.fleet.peers.client import ADDRESSEE, PREFIX
from strata.fleet.peers.door import PeerDoor

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

BODY_MOST = 64 * 2**20

_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")
# nginx passes on what comes as it comes, and does not put pieces of files aside on a disk that may be full.
_AT_ONCE = (b"x-accel-buffering", b"no")
_ADDRESSEE = ADDRESSEE.lower().encode()
_encode = msgspec.json.Encoder().encode


async def peers_app(scope: Scope, receive: Receive, send: Send) -> int:
    """Answer one request of another controller; the status that it was answered with."""
    door: PeerDoor | None = scope[SERVICES].find(PeerDoor)
    known = door is not None and scope["path"][len(PREFIX) :] in door.routes
    scope["path_template"] = scope["path"] if known else "(none)"
    try:
        who = scope[CONTROLLER]()
        if isinstance(who, Unauthenticated):
            raise who
        if scope["method"] != "POST":
            raise BadRequest("this path takes only POST", where=scope["method"][:16])
        name = scope["path"][len(PREFIX) :]
        if door is not None:
            _check_addressee(scope, door.me)
        handler = door.routes.get(name) if door is not None else None
        if handler is None:
            raise NotFound("this controller has no such path", where=name[:80])
        answer = await handler(who, await whole_body(receive, BODY_MOST))
        if not isinstance(answer, bytes):
            return await _stream(answer, receive, send)
        status, headers = 200, [_JSON]
    except Exception as error:
        problem = problem_of(error)
        status, answer, headers = problem.status, _encode(problem), [(b"content-type", MEDIA_TYPE.encode())]
    headers += [(b"content-length", b"%d" % len(answer)), _NO_STORE, _AT_ONCE]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
    return status


def _check_addressee(scope: Scope, me: str) -> None:
    """What is asked of one controller must not be answered by another: that one's agents are not this one's."""
    given = next((value for name, value in scope["headers"] if name == _ADDRESSEE), b"").decode("latin-1")
    if given != me:
        raise Unavailable(
            f"controller {given[:63]!r} was asked for, and this is {me}",
            hint="give each controller an address of its own that the others reach: listen.url, or --listen",
        )


async def _stream(pieces: AsyncIterator[bytes], receive: Receive, send: Send) -> int:
    """Send what comes, until it ends or nobody listens any more."""
    begun = False

    async def sent(message: MutableMapping[str, Any]) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await while_there(receive, _send_all(pieces, sent))
    except Exception as error:
        if not begun:
            raise
        # Returning without an end makes the server close the connection: the other one sees that something is missing.
        log.error("answer to a controller broken off", exc_info=error)
    return 200


async def _send_all(pieces: AsyncIterator[bytes], send: Send) -> None:
    async with contextlib.aclosing(pieces):  # type: ignore[type-var]
        first = await anext(pieces, b"")  # what is wrong with the question shows here, while it can be told
        headers = [(b"content-type", b"application/x-ndjson"), _NO_STORE, _AT_ONCE]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
