"""Nodes: list, create, show, replace, change, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import MediaType, Response, delete, get, patch, post, put
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import UNSET

from strata.api.http import AnyRequest, expected_revision, fleet_tag, is_conditional, is_fresh, node_tag, seal, unseal
from strata.api.rights import answers, needs
from strata.api.services import Asked, Cursor, Limit, NodePath, Select
from strata.core.errors import BadRequest, Conflict
from strata.core.state import State
from strata.core.texts import In, Out
from strata.fleet.nodes.records import EncodedPage, FoldedView, NodePage, NodePatch, NodeQuery, NodeSpec, NodeView
from strata.fleet.nodes.results import NodeResult
from strata.fleet.nodes.service import NodeService
from strata.fleet.nodes.view import SORTS

_TAG = "nodes"
_encode = msgspec.json.Encoder().encode
_RETRIES = 3
FIELDS = tuple(NodeView.__struct_fields__)

Sort = Annotated[
    str, QueryParameter(pattern=rf"^-?({'|'.join(SORTS)})$(?!\n)", description="A field; a leading `-` reverses.")
]
InState = Annotated[State | None, QueryParameter(name="state", description="Only nodes in this state.")]
Fields = Annotated[
    str | None,
    QueryParameter(pattern=r"^[a-z_]+(,[a-z_]+)*$(?!\n)", max_length=300, description="Only these: `name,state`."),
]


class NewNodes(In, frozen=True, kw_only=True):
    """Nodes to create."""

    nodes: Annotated[tuple[NodeSpec, ...], msgspec.Meta(min_length=1, max_length=100_000)]


class Created(Out, frozen=True, kw_only=True):
    """What became of each, in the order given."""

    results: tuple[NodeResult, ...]
    created: int


class SomeFields(Out, frozen=True, kw_only=True):
    """A page of nodes with only the fields that were asked for."""

    items: tuple[Mapping[str, Any], ...]
    next: str | None
    total: int
    revision: int


@get(
    "/v1/nodes",
    tags=[_TAG],
    **needs("read", "node", 404, also={304: answers(None, "Your copy is current (`If-None-Match`).")}),
)
async def list_nodes(
    request: AnyRequest,
    ask: Asked,
    select: Select = "*",
    in_state: InState = None,
    sort: Sort = "name",
    limit: Limit = 1000,
    cursor: Cursor = None,
    fields: Fields = None,
    folded: FromQuery[bool] = False,
) -> Response[NodePage | FoldedView | SomeFields | None]:  # a page is encoded already where all fields are wanted
    """The selected nodes, a page at a time; `folded=true`: as nodesets, all at once."""
    known = request.headers.get("if-none-match", "")
    if folded:
        whole = await ask.of(NodeService).nodes_folded(ask.who, select, in_state)
        return _tagged(whole, whole.revision, known)
    names = tuple(fields.split(",")) if fields else ()
    for name in names:
        if name not in FIELDS:
            raise BadRequest("no such field", where=repr(name)[:80], hint=f"fields are {', '.join(FIELDS)}")
    query = NodeQuery(select=select, state=in_state, sort=sort, limit=limit, after=unseal(cursor), fields=names)
    if names:
        page = await ask.of(NodeService).nodes_page(ask.who, query)
        items = tuple({name: getattr(item, name) for name in names} for item in page.items)
        some = SomeFields(items=items, next=seal(page.next), total=page.total, revision=page.revision)
        return _tagged(some, page.revision, known)
    whole_page = await ask.of(NodeService).nodes_json(ask.who, query)
    content = msgspec.structs.replace(whole_page, next=seal(whole_page.next))
    return _tagged(content, whole_page.revision, known)


def _tagged(
    content: EncodedPage | FoldedView | SomeFields, revision: int, known: str
) -> Response[NodePage | FoldedView | SomeFields | None]:
    tag = fleet_tag(revision)
    if is_fresh(known, tag):
        return Response(None, status_code=304, headers={"ETag": tag})
    return Response(_encode(content), media_type=MediaType.JSON, headers={"ETag": tag})  # type: ignore[arg-type]


@post(
    "/v1/nodes",
    tags=[_TAG],
    **needs("create", "node", 409, body=True, also={207: answers(Created, "Some were created, some not: see each.")}),
)
async def create_nodes(ask: Asked, data: JSONBody[NewNodes]) -> Response[Created]:
    """Create many nodes. 201: all were; 207: see each."""
    results = tuple(await ask.of(NodeService).create_nodes(ask.who, data.nodes))
    created = sum(result.ok for result in results)
    return Response(Created(results=results, created=created), status_code=201 if created == len(results) else 207)


@get(
    "/v1/nodes/{name:str}",
    tags=[_TAG],
    **needs("read", "node", 404, also={304: answers(None, "Your copy is current (`If-None-Match`).")}),
)
async def show_node(ask: Asked, name: NodePath) -> NodeView:
    """One node, with its state. The front answers this one; this is its documentation, and says the same."""
    return await ask.of(NodeService).node(ask.who, name)


@put("/v1/nodes/{name:str}", tags=[_TAG], **needs("change", "node", 404, 409, 412, body=True))
async def replace_node(request: AnyRequest, ask: Asked, name: NodePath, data: JSONBody[NodeSpec]) -> Response[NodeView]:
    """Put a node's description in place, creating it if need be. `If-Match` and `If-None-Match: *` are honoured."""
    if data.name != name:
        raise BadRequest("the name in the body is not the one in the path", where="name", hint="nodes are not renamed")
    expected = await expected_revision(request, lambda: ask.of(NodeService).node(ask.who, name))
    view = await ask.of(NodeService).replace_node(ask.who, name, data, expected)
    return Response(view, headers={"ETag": node_tag(view)})


@patch("/v1/nodes/{name:str}", tags=[_TAG], **needs("change", "node", 404, 409, 412, body=True))
async def change_node(request: AnyRequest, ask: Asked, name: NodePath, data: JSONBody[NodePatch]) -> Response[NodeView]:
    """Change some fields of a node's description (JSON merge patch). `If-Match` is honoured."""
    for attempt in range(_RETRIES):
        before = await ask.of(NodeService).node(ask.who, name)

        async def current(revision: int = before.revision) -> int:
            return revision

        expected = await expected_revision(request, current)
        try:
            seen = before.revision if expected is None else expected
            view = await ask.of(NodeService).replace_node(ask.who, name, _patched(before, data), seen)
        except Conflict:
            # Somebody else was faster, and the caller did not say that this matters.
            if is_conditional(request) or attempt == _RETRIES - 1:
                raise
        else:
            return Response(view, headers={"ETag": node_tag(view)})
    raise AssertionError("unreachable")


def _patched(node: NodeView, change: NodePatch) -> NodeSpec:
    given = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
    fields = {name: getattr(node, name) for name in NodeSpec.__struct_fields__} | given
    labels = dict(node.labels) | dict(given.get("labels", {}))
    return NodeSpec(**fields | {"labels": {key: value for key, value in labels.items() if value is not None}})


@delete("/v1/nodes/{name:str}", tags=[_TAG], **needs("delete", "node", 404, 409, 412))
async def delete_node(request: AnyRequest, ask: Asked, name: NodePath) -> None:
    """Forget a node and all that was said about it. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(NodeService).node(ask.who, name))
    await ask.of(NodeService).delete_node(ask.who, name, expected)
