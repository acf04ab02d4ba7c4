"""Groups of nodes."""

from __future__ import annotations

from litestar import Response, delete, get, post, put
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag, unless_fresh
from strata.api.rights import answers, needs
from strata.api.services import Asked, NamePath
from strata.core.errors import BadRequest
from strata.core.texts import ListOf
from strata.fleet.groups.records import GroupSpec, GroupView, MemberChange
from strata.fleet.groups.service import GroupService

_TAG = "groups"


@get("/v1/groups", tags=[_TAG], **needs("read", "group"))
async def list_groups(ask: Asked) -> ListOf[GroupView]:
    """All groups."""
    return ListOf(items=tuple(await ask.of(GroupService).groups(ask.who)))


@get(
    "/v1/groups/{name:str}",
    tags=[_TAG],
    **needs("read", "group", 404, also={304: answers(None, "You have it already.")}),
)
async def show_group(request: AnyRequest, ask: Asked, name: NamePath) -> Response[GroupView | None]:
    """One group, its members folded."""
    return unless_fresh(request, await ask.of(GroupService).group(ask.who, name))


@put("/v1/groups/{name:str}", tags=[_TAG], **needs("change", "group", 404, 409, 412, body=True))
async def put_group(request: AnyRequest, ask: Asked, name: NamePath, data: JSONBody[GroupSpec]) -> Response[GroupView]:
    """Create or replace a group. `If-Match` and `If-None-Match: *` are honoured."""
    expected = await expected_revision(request, lambda: ask.of(GroupService).group(ask.who, name))
    view = await ask.of(GroupService).put_group(ask.who, name, data, expected)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@delete("/v1/groups/{name:str}", tags=[_TAG], **needs("delete", "group", 404, 409, 412))
async def delete_group(request: AnyRequest, ask: Asked, name: NamePath) -> None:
    """Remove a group; its nodes stay. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(GroupService).group(ask.who, name))
    await ask.of(GroupService).delete_group(ask.who, name, expected)


@post("/v1/groups/{name:str}/members", tags=[_TAG], status_code=200, **needs("change", "group", 404, 409, body=True))
async def change_members(ask: Asked, name: NamePath, data: JSONBody[MemberChange]) -> GroupView:
    """Add and remove members."""
    if not data.add and not data.remove:
        raise BadRequest("nothing to do", where="add, remove", hint="give at least one nodeset")
    return await ask.of(GroupService).change_members(ask.who, name, data)


HANDLERS = [list_groups, show_group, put_group, delete_group, change_members]
