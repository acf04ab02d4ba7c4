"""The service itself: health, status, model, store, log level, metrics, its own documentation."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Response, get, put
from litestar.params import JSONBody

from strata.api.http import AnyRequest
from strata.api.rights import needs, public
from strata.api.routing import Routes
from strata.api.services import Asked
from strata.core import logs
from strata.core.errors import Unavailable
from strata.core.texts import In, Out
from strata.fleet.metrics import CONTENT_TYPE, Metrics
from strata.fleet.system import records as s
from strata.fleet.system.service import SystemService

_TAG = "service"


class Alive(Out, frozen=True, kw_only=True):
    """The process answers."""

    status: str = "alive"


class Ready(Out, frozen=True, kw_only=True):
    """Requests will be served."""

    status: str = "ready"


class LogLevel(In, frozen=True, kw_only=True):
    """What is logged."""

    level: logs.Level


@get("/v1/health", tags=[_TAG], security=[{}], **public())
async def health() -> Alive:
    """Whether the process answers. The front answers this one."""
    return Alive()


@get("/v1/ready", tags=[_TAG], security=[{}], **public(503))
async def ready(ask: Asked) -> Ready:
    """Whether requests will be served; 503 and why, if not."""
    if reason := ask.of(SystemService).not_ready():
        raise Unavailable(reason, where="readiness", hint="try again in a few seconds")
    return Ready()


@get("/v1/model", tags=[_TAG], **needs("read", "model"))
async def model(ask: Asked) -> s.ModelView:
    """What can be true of a node, and how it can be changed."""
    return await ask.of(SystemService).model()


@get(
    "/v1/model/graph",
    tags=[_TAG],
    media_type="text/vnd.graphviz",
    **needs("read", "model"),
)
async def model_graph(ask: Asked) -> str:
    """The model as a graph, in DOT."""
    return await ask.of(SystemService).model_graph()


@get("/v1/config/log-level", tags=[_TAG], **needs("read", "log-level"))
async def show_log_level() -> LogLevel:
    """What is logged now."""
    return LogLevel(level=logs.get_level())


@put("/v1/config/log-level", tags=[_TAG], **needs("change", "log-level", body=True))
async def set_log_level(data: JSONBody[LogLevel]) -> LogLevel:
    """Change what is logged, until the service restarts."""
    logs.set_level(data.level)
    return LogLevel(level=logs.get_level())


@get("/metrics", tags=[_TAG], media_type="text/plain", **needs("read", "metrics"))
async def metrics(ask: Asked) -> Response[bytes]:
    """Prometheus' text form. They are of the whole fleet: a credential with a scope does not get them."""
    return Response(ask.of(Metrics).exposition(), headers={"Content-Type": CONTENT_TYPE})


@get("/v1/openapi.json", tags=[_TAG], **needs("read", "model"))
async def openapi(request: AnyRequest) -> Response[dict[str, Any]]:
    """This documentation."""
    return Response(await asyncio.to_thread(request.app.state.openapi))


_STATUS = Routes(SystemService, "status", tag=_TAG)
_STORE = Routes(SystemService, "store", tag=_TAG)
_STATUS.get("status", "/v1/status", SystemService.status)
_STORE.post("backup", "/v1/store/backup", SystemService.backup, "create", 409, success=201)
_STORE.get("check_store", "/v1/store/check", SystemService.check_store)
