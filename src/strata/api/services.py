"""How routes ask for the services of rooms, and the parameters that many of them take."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter, SkipValidation

from strata.api.rights import WHO
from strata.core.errors import Unavailable
from strata.core.texts import FREEZE_SCOPE, NAME, NODE_NAME, PLAIN
from strata.fleet.access.principal import Principal
from strata.fleet.metrics import Metrics
from strata.fleet.services import Services

T = TypeVar("T")

SERVICES = "strata.services"
"""Where the front puts the services in the connection's scope."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may ask for."""

    body: int = 64 * 2**20
    """Bytes of a request's body: 100,000 node descriptions fit."""
    body_time: float = 60.0
    """Seconds that a body may take to arrive, whatever its size."""
    body_rate: float = 128 * 1024
    """Bytes of it that earn one second more: 64 MiB may take ten minutes, by a line of 1 Mbit/s."""
    bodies: int = 256 * 2**20
    """Bytes of the bodies of all requests that are under way: they are in memory."""
    watchers: int = 1000
    """Clients that watch events at one time; each holds a connection and a store watch."""
    keep_alive: float = 15.0
    """Seconds of silence after which a watcher gets a comment, so that proxies keep the connection."""
    stalled: float = 60.0
    """Seconds that a watcher may take to accept data before it is dropped."""


class Watchers(msgspec.Struct, kw_only=True):
    """The clients that watch events now."""

    limits: Limits
    metrics: Metrics
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the service is about to stop: watchers are sent away."""
    count: int = 0

    def check_room(self) -> None:
        """Raise ``Unavailable`` if too many watch already."""
        if self.count >= self.limits.watchers:
            raise Unavailable("too many clients watch events already", hint="try later, or poll")

    def come(self, change: int) -> None:
        """One more watches, or (-1) one less."""
        self.count += change
        self.metrics.watchers.set(self.count)


class FrontSecret(msgspec.Struct, frozen=True):
    """What nginx, and nobody else, says with each request; another one at each start."""

    value: str = msgspec.field(default_factory=lambda: secrets.token_hex(32))

    def __repr__(self) -> str:
        return "FrontSecret()"


class Ask(msgspec.Struct, frozen=True):
    """One request's context: who asks, and whom."""

    who: Principal
    services: Services

    def of(self, kind: type[T]) -> T:
        """The service of a room; ``Unavailable`` where that room is not open here."""
        return self.services.get(kind)


# One dependency and not three: Litestar would start a task for each.
Asked = NamedDependency[SkipValidation[Ask]]

Limit = Annotated[int, QueryParameter(ge=1, le=10_000, description="At most this many items in the answer.")]
Cursor = Annotated[str | None, QueryParameter(max_length=4096, description="The `next` of the page before.")]
Select = Annotated[
    str,
    QueryParameter(
        pattern=PLAIN, min_length=1, max_length=1_000_000, description="Which nodes: `n[1-4],@gpu state:faulted`."
    ),
]
# Path parameters carry their own bounds: Litestar does not look at msgspec's on them.
NodePath = Annotated[str, PathParameter(pattern=NODE_NAME, max_length=63)]
NamePath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]
"""The name of anything that people name: a group, a document, a flow."""
FreezePath = Annotated[str, PathParameter(pattern=FREEZE_SCOPE, max_length=70)]
OperationPath = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_.-]{1,64}$(?!\n)", max_length=64)]
TokenPath = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{16}$(?!\n)", max_length=16)]
SerialPath = Annotated[str, PathParameter(pattern=r"^[0-9A-Fa-f]{1,40}$(?!\n)", max_length=40)]
Time = Annotated[float | None, QueryParameter(ge=0, le=1e11, description="Unix seconds.")]


NOBODY = Principal(name="nobody", role="node")
"""Who asks on a public route without a credential. No right is ever asked of it."""


async def provide_ask(request: Request[Any, Any, Any]) -> Ask:
    """The context that the front left; the guard has already looked at who it is."""
    who, services = request.scope.get(WHO), request.scope.get(SERVICES)
    assert isinstance(services, Services)
    return Ask(who if isinstance(who, Principal) else NOBODY, services)
