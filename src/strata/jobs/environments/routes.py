"""Work environments."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from strata.api.http import revision_tag
from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.jobs.environments import records as a
from strata.jobs.environments.service import EnvironmentService

_TAG = "environments"
_ENVIRONMENTS = Named("/v1/environments", EnvironmentService, "environment", tag=_TAG, current=EnvironmentService.show)
_ENVIRONMENTS.list(EnvironmentService.all, "All work environments.")
_ENVIRONMENTS.put(
    EnvironmentService.put,
    "Make a new version. It counts once it is promoted. `If-Match` is honoured.",
    verb="create",
)
_ENVIRONMENTS.delete(EnvironmentService.delete, "Remove one. What was derived from it stays. `If-Match` is honoured.")


VersionQuery = Annotated[int, QueryParameter(ge=0, le=999_999)]


@get("/v1/environments/{name:str}", tags=[_TAG], **needs("read", "environment", 404))
async def show_environment(ask: Asked, name: NamePath, version: VersionQuery = 0) -> Response[a.EnvironmentView]:
    """One of them: the version that counts, unless another is asked for, and what jobs get in it."""
    view = await ask.of(EnvironmentService).show(ask.who, name, version)
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
