"""What cloud-init is told."""

from __future__ import annotations

from litestar import get

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NodePath
from strata.platform.cloudinit.records import Rendered
from strata.platform.cloudinit.service import CloudInitService

_TAG = "cloud-init"
_DOCUMENTS = Named("/v1/cloud-init", CloudInitService, "cloud_init", tag=_TAG, kind="boot", plural="cloud_init")
_DOCUMENTS.list(CloudInitService.all, "All documents.")
_DOCUMENTS.show(CloudInitService.one, "One of them.")
_DOCUMENTS.put(
    CloudInitService.put,
    "Create or replace a document. What looks like a secret is refused: whoever has a node's address can read it.",
    statuses=(409,),
)
_DOCUMENTS.delete(CloudInitService.delete, "Remove a document.")


@get("/v1/nodes/{name:str}/cloud-init", tags=[_TAG], **needs("read", "boot", 404))
async def render_cloud_init(ask: Asked, name: NodePath) -> Rendered:
    """The four files that a node gets."""
    return await ask.of(CloudInitService).render(ask.who, name)
