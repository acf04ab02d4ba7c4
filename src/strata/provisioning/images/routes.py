"""Images: what nodes run. Imported and built as operations, named by tags, signed at every move of one."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, put
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from strata.api.http import AnyRequest
from strata.api.rights import answers, needs
from strata.api.routing import Routes
from strata.api.services import Asked
from strata.core.errors import BadRequest
from strata.provisioning.images import records as iv
from strata.provisioning.images.service import ImageService

_TAG = "images"
PIECE = 16 << 20
"""Bytes of the largest piece of an upload."""

NamePath = Annotated[str, PathParameter(pattern=iv.IMAGE_NAME, max_length=63)]
TagPath = Annotated[str, PathParameter(pattern=iv.IMAGE_TAG, max_length=63)]
UploadPath = Annotated[str, PathParameter(pattern=iv.UPLOAD, max_length=32)]
Offset = Annotated[int, QueryParameter(ge=0, le=2**50, description="Where it begins, in bytes.")]


_TAR = answers(bytes, "A tar of an OCI layout, with the signed release in `release.json`.", "application/x-tar")


@get(
    "/v1/images/{name:str}/{tag:str}/export",
    tags=[_TAG],
    media_type="application/x-tar",
    **needs("read", "image-content", 404, also={200: _TAR}),
)
async def export_image(ask: Asked, name: NamePath, tag: TagPath) -> Stream:
    """The whole image in one file, which `import` and other tools take."""
    pieces = await ask.of(ImageService).export(ask.who, name, tag)
    return Stream(pieces, media_type="application/x-tar")


@put("/v1/image-uploads/{upload:str}", tags=[_TAG], **needs("create", "image", 404, 409, 413))
async def write_upload(request: AnyRequest, ask: Asked, upload: UploadPath, offset: Offset) -> iv.UploadView:
    """Send one piece of it, at most 16 MiB: the body, as it is (`application/octet-stream`)."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > PIECE:
            raise BadRequest(f"a piece has at most {PIECE} bytes", where="body", hint="send smaller pieces")
    return await ask.of(ImageService).write_upload(ask.who, upload, offset, bytes(data))


@delete("/v1/image-uploads/{upload:str}", tags=[_TAG], **needs("create", "image", 404))
async def drop_upload(ask: Asked, upload: UploadPath) -> None:
    """Forget an upload."""
    await ask.of(ImageService).drop_upload(ask.who, upload)


_IMAGE = Routes(ImageService, "image", tag=_TAG)
_IMAGE_CONTENT = Routes(ImageService, "image-content", tag=_TAG)

_IMAGE.get("list_images", "/v1/images", ImageService.list)
_IMAGE.post("import_image", "/v1/images", ImageService.bring, "create", 404, success=202)
_IMAGE.get("show_image", "/v1/images/{name:str}/{tag:str}", ImageService.show, 404, name=NamePath, tag=TagPath)
_IMAGE.put(
    "move_tag", "/v1/images/{name:str}/{tag:str}", ImageService.move, "change", 404, 409, name=NamePath, tag=TagPath
)
_IMAGE.delete(
    "delete_image", "/v1/images/{name:str}/{tag:str}", ImageService.delete, 404, 409, name=NamePath, tag=TagPath
)
_IMAGE.post(
    "undelete_image",
    "/v1/images/{name:str}/{tag:str}/undelete",
    ImageService.undelete,
    "create",
    404,
    409,
    name=NamePath,
    tag=TagPath,
)
_IMAGE.post(
    "sign_image",
    "/v1/images/{name:str}/{tag:str}/sign",
    ImageService.sign,
    "create",
    404,
    name=NamePath,
    tag=TagPath,
)
_IMAGE.get(
    "verify_image", "/v1/images/{name:str}/{tag:str}/verify", ImageService.verify, 404, name=NamePath, tag=TagPath
)
_IMAGE.get(
    "diff_images",
    "/v1/images/{name:str}/{tag:str}/diff",
    ImageService.diff,
    404,
    name=NamePath,
    tag=TagPath,
    other=Annotated[
        str,
        QueryParameter(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9:@._-]{0,140}$(?!\n)",
            max_length=141,
            description="The later one: `name:tag`, `name@serial` or `sha256:...`.",
        ),
    ],
)
_IMAGE.post("begin_upload", "/v1/image-uploads", ImageService.begin_upload, "create", success=201)
_IMAGE.post("build_image", "/v1/image-builds", ImageService.build, "create", 404, success=202)
_IMAGE_CONTENT.get("show_image_log", "/v1/image-logs/{log:str}", ImageService.log, 404, log=UploadPath, offset=Offset)
_IMAGE.post("collect_images", "/v1/image-gc", ImageService.gc, "delete")
