"""Commands run on nodes by their agents."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, post
from litestar.params import JSONBody, QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, OperationPath
from strata.provisioning.exec import records as a
from strata.provisioning.exec.service import ExecService

_TAG = "exec"

After = Annotated[int, QueryParameter(ge=0, le=10**7, description="Results that you have already.")]
Wait = Annotated[float, QueryParameter(ge=0, le=25, description="Seconds to wait for more.")]


@post("/v1/exec", tags=[_TAG], **needs("create", "exec", 404, 409, body=True))
async def begin_exec(ask: Asked, data: JSONBody[a.ExecRequest]) -> Response[a.ExecView]:
    """Run a command on every selected node. Read its results with `GET`."""
    view = await ask.of(ExecService).begin(ask.who, data)
    return Response(view, headers={"Location": f"/v1/exec/{view.id}"})


_ROUTES = Routes(ExecService, "exec", tag=_TAG)
_ROUTES.get("show_exec", "/v1/exec/{job:str}", ExecService.show, 404, job=OperationPath, after=After, wait=Wait)
_ROUTES.delete("cancel_exec", "/v1/exec/{job:str}", ExecService.cancel, 404, job=OperationPath)
