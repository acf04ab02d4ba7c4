"""Where agents speak: ``/agent/v1/*``, one ASGI application over ``strata.provisioning.agents``.

The front has found out who asks. Apart from ``redeem`` (a token is the credential) and ``hello`` (a machine that
nobody knows), a node's own certificate is needed, and it must be the one of its present boot. ``exchange`` is the
hottest route of the service: every node comes every few seconds, and is held.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import msgspec

from strata.api.problem import MEDIA_TYPE, problem_of
from strata.api.raw_body import Receive, whole_body
from strata.api.rights import WHO
from strata.api.services import SERVICES
from strata.core.errors import BadRequest, Denied, NotFound, Unauthenticated, Unavailable
from strata.core.input.decoding import decoded
from strata.core.input.foreign import mended
from strata.fleet.access.principal import Principal
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.unknown import WAIT, UnknownMachines
from strata.provisioning.agents.wire import Exchange, Hello, LogLines
from strata.provisioning.identity.door import peer_of, redeem, renew
from strata.provisioning.identity.identity import Identity

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

PREFIX = "/agent/v1/"

EXCHANGE_MOST = 4 * 2**20
INVENTORY_MOST = 256 * 1024
LOG_MOST = 2**20
HELLO_MOST = 64 * 1024

CONTROLLERS = b"x-strata-controllers"
"""The header that tells agents where controllers are."""

_HALVES = (rb"\ud", rb"\uD")
"""How every half of a surrogate pair begins, and those that are whole as well: rare enough to look closer."""
_exchange = msgspec.json.Decoder(Exchange).decode
_hello = msgspec.json.Decoder(Hello).decode
_lines = msgspec.json.Decoder(LogLines).decode
_tree = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_NO_STORE = (b"cache-control", b"no-store")
_OK = b"{}"
_CERTIFIED = {"redeem": redeem, "renew": renew}


class AgentDoor(msgspec.Struct, frozen=True, kw_only=True):
    """What is behind the door."""

    hub: Hub
    identity: Identity
    unknown: UnknownMachines
    inventoried: Callable[[str, bytes], Awaitable[None]]
    """Takes what a node says of its hardware: JSON, bounded."""
    logged: Callable[[str, Sequence[tuple[float, str, str]]], None]
    """Takes lines that a node's kernel and containers wrote."""
    more: dict[str, Callable[[str, bytes], Awaitable[bytes]]] = {}
    """What other layers answer nodes: route → an answer (JSON) to a node and its request."""
    controllers: Callable[[], tuple[str, ...]] = lambda: ()
    """Where agents find this controller and the others: one that came after a node had booted is news to it."""


async def agents_app(scope: Scope, receive: Receive, send: Send) -> int:
    """Answer one request; the status that it was answered with."""
    route = scope["path"][len(PREFIX) :]
    door: AgentDoor | None = scope[SERVICES].find(AgentDoor)
    known = route in ROUTES or (door is not None and route in door.more)
    scope["path_template"] = f"{PREFIX}{route}" if known else "(none)"
    status = 200
    try:
        if scope["method"] != "POST":
            raise BadRequest("this path takes only POST", where=scope["method"][:16])
        if door is None:
            raise Unavailable("this service has no agents", hint="ask one that runs the provisioning layer")
        if route in _CERTIFIED:
            body = await _CERTIFIED[route](scope, receive, door.identity)
        elif route == "hello":
            said = decoded(_hello, _readable(await whole_body(receive, HELLO_MOST)))
            body = _encode({"adopted": door.unknown.hello(said, peer_of(scope)), "wait": WAIT})
        else:
            node = await _node(scope, scope[WHO], door.identity)
            body = await _answer(route, node, receive, door)
        kind = b"application/json"
    except Exception as error:
        problem = problem_of(error)
        status, body, kind = problem.status, _encode(problem), MEDIA_TYPE.encode()
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), _NO_STORE]
    if route == "exchange" and door is not None and (urls := door.controllers()):
        # Also where it is sent elsewhere: it may not know yet where that is.
        headers.append((CONTROLLERS, " ".join(urls).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return status


async def _answer(route: str, node: str, receive: Receive, door: AgentDoor) -> bytes:
    if route == "exchange":
        request = decoded(_exchange, _readable(await whole_body(receive, EXCHANGE_MOST)))
        return _encode(await door.hub.exchange(node, request))
    if route == "inventory":
        body = _readable(await whole_body(receive, INVENTORY_MOST))
        decoded(_tree, body)
        await door.inventoried(node, body)
        return _OK
    if route == "log":
        door.logged(node, decoded(_lines, _readable(await whole_body(receive, LOG_MOST))).lines)
        return _OK
    if route in door.more:
        return await door.more[route](node, await whole_body(receive, HELLO_MOST))
    raise NotFound("agents have no such path", where=route[:40])


async def _node(scope: Scope, who: Principal | Unauthenticated, identity: Identity) -> str:
    """The node that asks: its certificate must be the one of its present boot."""
    if not isinstance(who, Principal):
        raise who
    if who.role != "node" or who.via != "certificate":
        raise Denied("this path is for nodes, which show their certificate", where=who.name)
    if not await identity.recognises(who.name, who.credential):
        raise identity.superseded(who.name, who.credential, peer_of(scope))
    return who.name


def _readable(body: bytes) -> bytes:
    """``body``, mended where it is not UTF-8 or holds halves of characters: what a node says in names of files and the
    like is none of the agent's making, and its report counts all the same."""
    try:
        if not body.isascii():
            body.decode()
        if not any(half in body for half in _HALVES):
            return body
    except UnicodeDecodeError:
        pass
    try:
        return mended(body)
    except ValueError:
        return body


ROUTES = frozenset(("exchange", "hello", "inventory", "log", *_CERTIFIED))
"""What agents ask for; the rest is counted together."""
