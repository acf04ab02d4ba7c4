"""Work environments."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, delete, get, post, put
from litestar.params import JSONBody, QueryParameter

from strata.api.http import AnyRequest, expected_revision, revision_tag
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.jobs.environments import records as a
from strata.jobs.environments.service import EnvironmentService

_TAG = "environments"
VersionQuery = Annotated[int, QueryParameter(ge=0, le=999_999)]


@get("/v1/environments", tags=[_TAG], **needs("read", "environment"))
async def list_environments(ask: Asked) -> ListOf[a.EnvironmentView]:
    """All work environments."""
    return await ask.of(EnvironmentService).all(ask.who)


@get("/v1/environments/{name:str}", tags=[_TAG], **needs("read", "environment", 404))
async def show_environment(ask: Asked, name: NamePath, version: VersionQuery = 0) -> Response[a.EnvironmentView]:
    """One of them: the version that counts, unless another is asked for, and what jobs get in it."""
    view = await ask.of(EnvironmentService).show(ask.who, name, version)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@put("/v1/environments/{name:str}", tags=[_TAG], **needs("create", "environment", 404, 409, 412, body=True))
async def put_environment(
    request: AnyRequest, ask: Asked, name: NamePath, data: JSONBody[a.EnvironmentSpec]
) -> Response[a.EnvironmentView]:
    """Make a new version. It counts once it is promoted. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(EnvironmentService).show(ask.who, name))
    view = await ask.of(EnvironmentService).put(ask.who, name, data, expected)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@post(
    "/v1/environments/{name:str}/promote",
    tags=[_TAG],
    status_code=200,
    **needs("change", "environment", 404, 409, body=True),
)
async def promote_environment(ask: Asked, name: NamePath, data: JSONBody[a.Promotion]) -> a.EnvironmentView:
    """Let a version count that was tested. Refused where its test did not pass."""
    return await ask.of(EnvironmentService).promote(ask.who, name, data)


@delete("/v1/environments/{name:str}", tags=[_TAG], **needs("delete", "environment", 404, 409, 412))
async def delete_environment(request: AnyRequest, ask: Asked, name: NamePath) -> None:
    """Remove one. What was derived from it stays. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(EnvironmentService).show(ask.who, name))
    await ask.of(EnvironmentService).delete(ask.who, name, expected)


HANDLERS = [list_environments, show_environment, put_environment, promote_environment, delete_environment]
