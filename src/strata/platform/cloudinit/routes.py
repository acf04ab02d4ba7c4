"""What cloud-init is told."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, NamePath, NodePath
from strata.core.texts import ListOf
from strata.platform.cloudinit.records import CloudInitSpec, CloudInitView, Rendered
from strata.platform.cloudinit.service import CloudInitService

_TAG = "cloud-init"


@get("/v1/cloud-init", tags=[_TAG], **needs("read", "boot"))
async def list_cloud_init(ask: Asked) -> ListOf[CloudInitView]:
    """All documents."""
    return ListOf(items=tuple(await ask.of(CloudInitService).all(ask.who)))


@get("/v1/cloud-init/{name:str}", tags=[_TAG], **needs("read", "boot", 404))
async def show_cloud_init(ask: Asked, name: NamePath) -> CloudInitView:
    """One of them."""
    return await ask.of(CloudInitService).one(ask.who, name)


@put("/v1/cloud-init/{name:str}", tags=[_TAG], **needs("change", "boot", 409, body=True))
async def put_cloud_init(ask: Asked, name: NamePath, data: JSONBody[CloudInitSpec]) -> CloudInitView:
    """Create or replace a document. What looks like a secret is refused: whoever has a node's address can read it."""
    return await ask.of(CloudInitService).put(ask.who, name, data)


@delete("/v1/cloud-init/{name:str}", tags=[_TAG], **needs("delete", "boot", 404, 409))
async def delete_cloud_init(ask: Asked, name: NamePath) -> None:
    """Remove a document."""
    await ask.of(CloudInitService).delete(ask.who, name)


@get("/v1/nodes/{name:str}/cloud-init", tags=[_TAG], **needs("read", "boot", 404))
async def render_cloud_init(ask: Asked, name: NodePath) -> Rendered:
    """The four files that a node gets."""
    return await ask.of(CloudInitService).render(ask.who, name)


HANDLERS = [list_cloud_init, show_cloud_init, put_cloud_init, delete_cloud_init, render_cloud_init]
