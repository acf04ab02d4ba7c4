"""Sources of images: what they are made of, and how far that is."""

from __future__ import annotations

from litestar import get, post

from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.platform.sources.records import SourceView
from strata.platform.sources.service import SourceService

_TAG = "images"


@get("/v1/image-sources", tags=[_TAG], **needs("read", "image"))
async def list_image_sources(ask: Asked) -> ListOf[SourceView]:
    """What the repository says images are made of, and how far each is."""
    return ListOf(items=tuple(await ask.of(SourceService).all(ask.who)))


@post("/v1/image-sources/{name:str}/again", tags=[_TAG], status_code=200, **needs("create", "image", 404, 409))
async def make_image_again(ask: Asked, name: NamePath) -> SourceView:
    """Try now to make an image that could not be made."""
    return await ask.of(SourceService).again(ask.who, name)
