"""What cloud-init is told."""

from __future__ import annotations

from strata.api.named import Named
from strata.api.services import NodePath
from strata.platform.cloudinit.service import CloudInitService

_DOCUMENTS = Named("/v1/cloud-init", CloudInitService, "cloud_init", tag="cloud-init", kind="boot", plural="cloud_init")
_DOCUMENTS.list(CloudInitService.all)
_DOCUMENTS.show(CloudInitService.one)
_DOCUMENTS.put(CloudInitService.put, statuses=(409,))
_DOCUMENTS.delete(CloudInitService.delete)
_DOCUMENTS.routes.get(
    "render_cloud_init", "/v1/nodes/{name:str}/cloud-init", CloudInitService.render, 404, name=NodePath
)
