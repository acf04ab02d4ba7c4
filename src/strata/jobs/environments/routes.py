"""Work environments."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from strata.api.http import revision_tag
from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.jobs.environments import records as a
from strata.jobs.environments.service import EnvironmentService

_TAG = "environments"
_ENVIRONMENTS = Named("/v1/environments", EnvironmentService, "environment", tag=_TAG, current=EnvironmentService.show)
VersionQuery = Annotated[int, QueryParameter(ge=0, le=999_999)]


@get("/v1/environments/{name:str}", tags=[_TAG], **needs("read", "environment", 404))
async def show_environment(ask: Asked, name: NamePath, version: VersionQuery = 0) -> Response[a.EnvironmentView]:
    """One of them: the version that counts, unless another is asked for, and what jobs get in it."""
    view = await ask.of(EnvironmentService).show(ask.who, name, version)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


_ENVIRONMENTS.list(EnvironmentService.all)
_ENVIRONMENTS.put(EnvironmentService.put, verb="create")
_ENVIRONMENTS.delete(EnvironmentService.delete)
_ENVIRONMENTS.routes.post(
    "promote_environment", "/v1/environments/{name:str}/promote", EnvironmentService.promote, "change", 404, 409
)
