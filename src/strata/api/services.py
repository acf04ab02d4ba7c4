"""What the routes need, handed over once at start, and how handlers ask for it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter, SkipValidation

from strata.api.agents import AgentDoor
from strata.api.peers import PeerDoor
from strata.api.redfish.push import EventPush
from strata.api.rights import WHO
from strata.control.auth import Authenticator
from strata.control.ca import Authority
from strata.control.facade import Facade
from strata.control.logins import Logins
from strata.control.machine import Machine
from strata.control.metrics import Metrics
from strata.control.principal import Principal
from strata.control.service_agents import AgentService
from strata.control.service_boot import BootControl
from strata.control.service_capmc import CapmcService
from strata.control.service_exec import ExecService
from strata.control.service_image_sets import ImageSetService
from strata.control.service_images import ImageService
from strata.control.service_policies import PolicyService
from strata.control.service_power import PowerService
from strata.control.service_power_jobs import PowerJobs
from strata.control.service_power_queue import PowerQueue
from strata.control.texts import FREEZE_SCOPE, NAME, NODE_NAME, PLAIN
from strata.core.errors import Unavailable

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
    watchers: int = 1000
    """Clients that watch events at one time; each holds a connection and a store watch."""
    keep_alive: float = 15.0
    """Seconds of silence after which a watcher gets a comment, so that proxies keep the connection."""
    stalled: float = 60.0
    """Seconds that a watcher may take to accept data before it is dropped."""


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, what jobs used of it, and what may be drawn."""

    measured: PowerService
    jobs: PowerJobs
    policies: PolicyService
    queue: PowerQueue


class Agents(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on nodes: where their agents speak, what they say, what they run."""

    door: AgentDoor
    agents: AgentService
    exec: ExecService
    sets: ImageSetService


class Services(msgspec.Struct, kw_only=True):
    """Everything behind the API."""

    facade: Facade
    authenticator: Authenticator
    metrics: Metrics
    machine: Machine | None = None
    """The hardware layer; None: this service runs without it."""
    capmc: CapmcService | None = None
    """The power API that schedulers speak; None: this service runs without it."""
    power: Power | None = None
    """The power layer; None: this service measures nothing."""
    boot: BootControl | None = None
    """How nodes boot; None: this service boots none."""
    agents: Agents | None = None
    """Nodes' agents; None: this service has none."""
    images: ImageService | None = None
    """The repository of images; None: this service has none."""
    peers: PeerDoor | None = None
    """What other controllers are answered; None: nothing."""
    logins: Logins | None = None
    """Accounts with passwords, and sessions; None: only tokens and certificates are known."""
    event_push: EventPush | None = None
    """Where Redfish events are sent; None: nowhere."""
    authority: Authority | None = None
    """None: this service issues no certificates (it runs without TLS)."""
    limits: Limits = Limits()
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the service is about to stop: watchers are sent away."""
    watching: int = 0
    """Clients that watch events now."""
    front_secret: str = msgspec.field(default_factory=lambda: secrets.token_hex(32))
    """What nginx, and nobody else, says with each request; another one at each start."""

    def __repr__(self) -> str:
        return "Services()"


class Ask(msgspec.Struct, frozen=True):
    """One request's context: who asks, and whom."""

    who: Principal
    services: Services

    @property
    def facade(self) -> Facade:
        """The controller's face."""
        return self.services.facade

    @property
    def machine(self) -> Machine:
        """The hardware layer's face."""
        if self.services.machine is None:
            raise Unavailable("this service runs without the hardware layer", hint="ask one that has it")
        return self.services.machine

    @property
    def boot(self) -> BootControl:
        """The boot service's face."""
        if self.services.boot is None:
            raise Unavailable("this service boots no nodes", hint="ask one that was started with --networks")
        return self.services.boot

    @property
    def agents(self) -> Agents:
        """The agents' face."""
        if self.services.agents is None:
            raise Unavailable("this service has no agents", hint="ask one that runs the provisioning layer")
        return self.services.agents

    @property
    def images(self) -> ImageService:
        """The image repository's face."""
        if self.services.images is None:
            raise Unavailable("this service keeps no images", hint="ask one that runs the provisioning layer")
        return self.services.images

    @property
    def power(self) -> Power:
        """The power layer's face."""
        if self.services.power is None:
            raise Unavailable("this service does not measure power", hint="ask one that does")
        return self.services.power


# One dependency and not three: Litestar would start a task for each.
Asked = NamedDependency[SkipValidation[Ask]]

Limit = Annotated[int, QueryParameter(ge=1, le=10_000, description="Most items in the answer.")]
Cursor = Annotated[str | None, QueryParameter(max_length=4096, description="The `next` of the page before.")]
Select = Annotated[
    str,
    QueryParameter(
        pattern=PLAIN, min_length=1, max_length=1_000_000, description="Which nodes: `n[1-4],@gpu state:faulted`."
    ),
]
# Path parameters carry their own bounds: Litestar does not look at msgspec's on them.
NodePath = Annotated[str, PathParameter(pattern=NODE_NAME, max_length=63)]
GroupPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]
DocumentPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]
FreezePath = Annotated[str, PathParameter(pattern=FREEZE_SCOPE, max_length=70)]
JobPath = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_.-]{1,64}$(?!\n)", max_length=64)]
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
