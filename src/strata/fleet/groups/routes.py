"""Groups of nodes."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.errors import BadRequest
from strata.fleet.groups.records import GroupView, MemberChange
from strata.fleet.groups.service import GroupService

_TAG = "groups"
_GROUPS = Named("/v1/groups", GroupService, "group", tag=_TAG, current=GroupService.group)


@post("/v1/groups/{name:str}/members", tags=[_TAG], status_code=200, **needs("change", "group", 404, 409, body=True))
async def change_members(ask: Asked, name: NamePath, data: JSONBody[MemberChange]) -> GroupView:
    """Add and remove members."""
    if not data.add and not data.remove:
        raise BadRequest("nothing to do", where="add, remove", hint="give at least one nodeset")
    return await ask.of(GroupService).change_members(ask.who, name, data)


HANDLERS = [
    _GROUPS.list(GroupService.groups),
    _GROUPS.show(GroupService.group),
    _GROUPS.put(GroupService.put_group),
    _GROUPS.delete(GroupService.delete_group),
    change_members,
]
