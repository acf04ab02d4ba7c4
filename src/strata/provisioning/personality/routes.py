"""Image sets: what nodes run."""

from __future__ import annotations

from litestar import Response, delete, get, put
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag
from strata.api.rights import needs
from strata.api.services import Asked, GroupPath
from strata.provisioning.personality import records as a
from strata.provisioning.personality.service import ImageSetService

_TAG = "image sets"


@get("/v1/image-sets", tags=[_TAG], **needs("read", "image-set"))
async def list_image_sets(ask: Asked) -> a.ImageSetList:
    """All image sets."""
    return await ask.of(ImageSetService).all(ask.who)


@get("/v1/image-sets/{name:str}", tags=[_TAG], **needs("read", "image-set", 404))
async def show_image_set(ask: Asked, name: GroupPath) -> Response[a.ImageSetView]:
    """One image set, and what its tags stand for now."""
    view = await ask.of(ImageSetService).show(ask.who, name)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@put("/v1/image-sets/{name:str}", tags=[_TAG], **needs("change", "image-set", 404, 409, 412, body=True))
async def put_image_set(
    request: AnyRequest, ask: Asked, name: GroupPath, data: JSONBody[a.ImageSetSpec]
) -> Response[a.ImageSetView]:
    """Create or replace an image set. Nodes that are wanted to have it change over. `If-Match` is honoured."""

    async def current() -> int:
        return (await ask.of(ImageSetService).show(ask.who, name)).revision

    view = await ask.of(ImageSetService).put(ask.who, name, data, await expected_revision(request, current))
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@delete("/v1/image-sets/{name:str}", tags=[_TAG], **needs("delete", "image-set", 404, 409, 412))
async def delete_image_set(request: AnyRequest, ask: Asked, name: GroupPath) -> None:
    """Remove an image set that no node is wanted to have. `If-Match` is honoured."""

    async def current() -> int:
        return (await ask.of(ImageSetService).show(ask.who, name)).revision

    await ask.of(ImageSetService).delete(ask.who, name, await expected_revision(request, current))


HANDLERS = [list_image_sets, show_image_set, put_image_set, delete_image_set]
