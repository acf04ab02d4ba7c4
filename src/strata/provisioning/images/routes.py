"""Images: what nodes run. Imported and built as operations, named by tags, signed at every move of one."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, PathParameter, QueryParameter
from litestar.response import Stream

from strata.api.http import AnyRequest
from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.errors import BadRequest
from strata.core.texts import ListOf
from strata.provisioning.images import records as iv
from strata.provisioning.images.compare import Difference
from strata.provisioning.images.service import ImageService

_TAG = "images"
PIECE = 16 << 20
"""Bytes of the largest piece of an upload."""

NamePath = Annotated[str, PathParameter(pattern=iv.IMAGE_NAME, max_length=63)]
TagPath = Annotated[str, PathParameter(pattern=iv.IMAGE_TAG, max_length=63)]
UploadPath = Annotated[str, PathParameter(pattern=iv.UPLOAD, max_length=32)]
Offset = Annotated[int, QueryParameter(ge=0, le=2**50, description="Where it begins, in bytes.")]


@get("/v1/images", tags=[_TAG], **needs("read", "image"))
async def list_images(ask: Asked) -> ListOf[iv.ImageRow]:
    """All tags, and what each stands for."""
    return ListOf(items=tuple(await ask.of(ImageService).list(ask.who)))


@post("/v1/images", tags=[_TAG], status_code=202, **needs("create", "image", 404, body=True))
async def import_image(ask: Asked, data: JSONBody[iv.ImportRequest]) -> iv.WorkView:
    """Import an image from an upload (an OCI layout, a docker archive or plain files, as a tar) or from a registry."""
    return await ask.of(ImageService).bring(ask.who, data)


@get("/v1/images/{name:str}/{tag:str}", tags=[_TAG], **needs("read", "image", 404))
async def show_image(ask: Asked, name: NamePath, tag: TagPath) -> iv.ImageView:
    """One image: how it runs, its layers, what the name's tags stood for before."""
    return await ask.of(ImageService).show(ask.who, name, tag)


@put("/v1/images/{name:str}/{tag:str}", tags=[_TAG], **needs("change", "image", 404, 409, body=True))
async def move_tag(ask: Asked, name: NamePath, tag: TagPath, data: JSONBody[iv.MoveRequest]) -> iv.ImageView:
    """Let a tag stand for an image that is there: promotion, and the way back. It is a new release of the name."""
    return await ask.of(ImageService).move(ask.who, name, tag, data)


@delete("/v1/images/{name:str}/{tag:str}", tags=[_TAG], **needs("delete", "image", 404, 409))
async def delete_image(ask: Asked, name: NamePath, tag: TagPath) -> None:
    """Let a tag stand for nothing. For a week it can be had back."""
    await ask.of(ImageService).delete(ask.who, name, tag)


@post("/v1/images/{name:str}/{tag:str}/undelete", tags=[_TAG], status_code=200, **needs("create", "image", 404, 409))
async def undelete_image(ask: Asked, name: NamePath, tag: TagPath) -> iv.ImageView:
    """Undo the last deletion of a tag."""
    return await ask.of(ImageService).undelete(ask.who, name, tag)


@post("/v1/images/{name:str}/{tag:str}/sign", tags=[_TAG], status_code=200, **needs("create", "image", 404))
async def sign_image(ask: Asked, name: NamePath, tag: TagPath) -> iv.ImageView:
    """Sign the release again, with the key of now."""
    return await ask.of(ImageService).sign(ask.who, name, tag)


@get("/v1/images/{name:str}/{tag:str}/verify", tags=[_TAG], **needs("read", "image", 404))
async def verify_image(ask: Asked, name: NamePath, tag: TagPath) -> iv.VerdictView:
    """Check the signature and every byte of the image on this controller. Changes nothing."""
    return await ask.of(ImageService).verify(ask.who, name, tag)


@get("/v1/images/{name:str}/{tag:str}/diff", tags=[_TAG], **needs("read", "image", 404))
async def diff_images(
    ask: Asked,
    name: NamePath,
    tag: TagPath,
    other: Annotated[
        str,
        QueryParameter(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9:@._-]{0,140}$(?!\n)",
            max_length=141,
            description="The later one: `name:tag`, `name@serial` or `sha256:...`.",
        ),
    ],
) -> Difference:
    """Files and packages that differ between this image and another."""
    return await ask.of(ImageService).diff(ask.who, f"{name}:{tag}", other)


@get(
    "/v1/images/{name:str}/{tag:str}/export",
    tags=[_TAG],
    media_type="application/x-tar",
    **needs(
        "read",
        "image-content",
        404,
        also={
            200: ResponseSpec(
                data_container=bytes,
                description="A tar of an OCI layout, with the signed release in `release.json`.",
                media_type="application/x-tar",
                generate_examples=False,
            )
        },
    ),
)
async def export_image(ask: Asked, name: NamePath, tag: TagPath) -> Stream:
    """The whole image in one file, which `import` and other tools take."""
    pieces = await ask.of(ImageService).export(ask.who, name, tag)
    return Stream(pieces, media_type="application/x-tar")


@post("/v1/image-uploads", tags=[_TAG], status_code=201, **needs("create", "image"))
async def begin_upload(ask: Asked) -> iv.UploadView:
    """Begin to send a file. It is gone a day after the last piece."""
    return await ask.of(ImageService).begin_upload(ask.who)


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


@post("/v1/image-builds", tags=[_TAG], status_code=202, **needs("create", "image", 404, body=True))
async def build_image(ask: Asked, data: JSONBody[iv.BuildRequest]) -> iv.WorkView:
    """Build an image from an uploaded recipe or Containerfile."""
    return await ask.of(ImageService).build(ask.who, data)


@get("/v1/image-logs/{log:str}", tags=[_TAG], **needs("read", "image-content", 404))
async def show_image_log(ask: Asked, log: UploadPath, offset: Offset = 0) -> iv.LogPart:
    """What was said while an image was made, from a place on. Ask again from `next` while its operation runs."""
    return await ask.of(ImageService).log(ask.who, log, offset)


@post("/v1/image-gc", tags=[_TAG], status_code=200, **needs("delete", "image", body=True))
async def collect_images(ask: Asked, data: JSONBody[iv.GcRequest]) -> iv.GcView:
    """Remove images that nothing stands for, and files of none; or say what would go."""
    return await ask.of(ImageService).gc(ask.who, data)
