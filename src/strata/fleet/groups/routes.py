"""Groups of nodes."""

from __future__ import annotations

from litestar import Response, get, post
from litestar.params import JSONBody

from strata.api.http import AnyRequest, unless_fresh
from strata.api.named import Named
from strata.api.rights import answers, needs
from strata.api.services import Asked, NamePath
from strata.core.errors import BadRequest
from strata.fleet.groups.records import GroupView, MemberChange
from strata.fleet.groups.service import GroupService

_TAG = "groups"
_GROUPS = Named("/v1/groups", GroupService, "group", tag=_TAG, current=GroupService.group)
_GROUPS.list(GroupService.groups, "All groups.")
_GROUPS.put(GroupService.put_group, "Create or replace a group. `If-Match` and `If-None-Match: *` are honoured.")
_GROUPS.delete(GroupService.delete_group, "Remove a group; its nodes stay. `If-Match` is honoured.")


@get(
    "/v1/groups/{name:str}",
    tags=[_TAG],
    **needs("read", "group", 404, also={304: answers(None, "Your copy is current (`If-None-Match`).")}),
)
async def show_group(request: AnyRequest, ask: Asked, name: NamePath) -> Response[GroupView | None]:
    """One group, its members folded."""
    return unless_fresh(request, await ask.of(GroupService).group(ask.who, name))


@post("/v1/groups/{name:str}/members", tags=[_TAG], status_code=200, **needs("change", "group", 404, 409, body=True))
async def change_members(ask: Asked, name: NamePath, data: JSONBody[MemberChange]) -> GroupView:
    """Add and remove members."""
    if not data.add and not data.remove:
        raise BadRequest("nothing to do", where="add, remove", hint="give at least one nodeset")
    return await ask.of(GroupService).change_members(ask.who, name, data)
