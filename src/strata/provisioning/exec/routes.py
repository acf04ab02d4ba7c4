"""Commands run on nodes by their agents."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, delete, get, post
from litestar.params import JSONBody, QueryParameter

from strata.api.rights import needs
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


@get("/v1/exec/{job:str}", tags=[_TAG], **needs("read", "exec", 404))
async def show_exec(ask: Asked, job: OperationPath, after: After = 0, wait: Wait = 0.0) -> a.ExecView:
    """What has come of it so far, from the result `after` on."""
    return await ask.of(ExecService).show(ask.who, job, after, wait)


@delete("/v1/exec/{job:str}", tags=[_TAG], **needs("delete", "exec", 404))
async def cancel_exec(ask: Asked, job: OperationPath) -> None:
    """End it wherever it still runs. Its results stay."""
    await ask.of(ExecService).cancel(ask.who, job)
