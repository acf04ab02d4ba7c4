"""Personalities: what nodes run."""

from __future__ import annotations

from litestar import Response, delete, get, put
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.provisioning.personalities import records as a
from strata.provisioning.personalities.service import PersonalityService

_TAG = "personalities"


@get("/v1/personalities", tags=[_TAG], **needs("read", "personality"))
async def list_personalities(ask: Asked) -> ListOf[a.PersonalityView]:
    """All personalities."""
    return await ask.of(PersonalityService).all(ask.who)


@get("/v1/personalities/{name:str}", tags=[_TAG], **needs("read", "personality", 404))
async def show_personality(ask: Asked, name: NamePath) -> Response[a.PersonalityView]:
    """One personality, and what its tags stand for now."""
    view = await ask.of(PersonalityService).show(ask.who, name)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@put("/v1/personalities/{name:str}", tags=[_TAG], **needs("change", "personality", 404, 409, 412, body=True))
async def put_personality(
    request: AnyRequest, ask: Asked, name: NamePath, data: JSONBody[a.PersonalitySpec]
) -> Response[a.PersonalityView]:
    """Create or replace a personality. Nodes that it is set on change over. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(PersonalityService).show(ask.who, name))
    view = await ask.of(PersonalityService).put(ask.who, name, data, expected)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@delete("/v1/personalities/{name:str}", tags=[_TAG], **needs("delete", "personality", 404, 409, 412))
async def delete_personality(request: AnyRequest, ask: Asked, name: NamePath) -> None:
    """Remove a personality that no node is set to run. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(PersonalityService).show(ask.who, name))
    await ask.of(PersonalityService).delete(ask.who, name, expected)


HANDLERS = [list_personalities, show_personality, put_personality, delete_personality]
