"""Sources of images: what they are made of, and how far that is."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.platform.sources.service import SourceService

_ROUTES = Routes(SourceService, "image", tag="images")
_ROUTES.get("list_image_sources", "/v1/image-sources", SourceService.all)
_ROUTES.post("make_image_again", "/v1/image-sources/{name:str}/again", SourceService.again, "create", 404, 409)
