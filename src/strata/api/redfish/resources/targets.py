"""Which nodes the URIs that a client names stand for, as a selector: systems, aggregates, controllers."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from strata.api.redfish.protocol.route import Call
from strata.api.redfish.resources.ids import AGGREGATES, MANAGERS, SYSTEMS
from strata.api.redfish.resources.managers import controller_at
from strata.core.errors import BadRequest
from strata.core.nodeset import fold

_MOST = 200_000


async def selector(call: Call, uris: Sequence[object], where: str) -> str:
    """A selector of all nodes behind ``uris``; whether they exist is seen when it is used."""
    if not uris:
        raise BadRequest("it names nothing", where=where, hint=f"name systems or aggregates, such as {SYSTEMS}/n0001")
    if len(uris) > _MOST:
        raise BadRequest(f"{len(uris)} targets; at most {_MOST}", where=where, hint="make an aggregate of them")
    names: list[str] = []
    groups: list[str] = []
    for given in uris:
        path = given.get("@odata.id") if isinstance(given, dict) else given
        base, _, ident = (path.rstrip("/") if isinstance(path, str) else "").rpartition("/")
        if base == SYSTEMS:
            names.append(unquote(ident))
        elif base == AGGREGATES:
            groups.append(f"@{unquote(ident)}")
        elif base == MANAGERS:
            nodes = (await controller_at(call, unquote(ident))).nodes
            if not nodes:
                raise BadRequest("this controller is no node's", where=where)
            names += nodes
        else:
            raise BadRequest(
                f"{str(path)[:120]!r} is neither a computer system nor an aggregate",
                where=where,
                hint=f"such as {SYSTEMS}/n0001",
            )
    _check(names, where)
    return ",".join(filter(None, (fold(names), *groups)))


def _check(names: Sequence[str], where: str) -> None:
    """A name is a name here, not an expression: ``n*`` would be another set."""
    for name in names:
        if not name or not all(char.isalnum() or char in "_.-" for char in name):
            raise BadRequest(f"{name[:80]!r} is no node's name", where=where)
