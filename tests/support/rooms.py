"""A fleet with its rooms open, and services for the API, as tests put them together."""

from __future__ import annotations

from typing import Any

from strata.api.raw_body import Bodies
from strata.api.services import FrontSecret, Limits, Watchers
from strata.daemon.settings import Settings
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.audit.service import AuditService
from strata.fleet.brakes.service import BrakeService
from strata.fleet.controller.controller import Controller
from strata.fleet.desires.service import DesireService
from strata.fleet.fleet import Fleet
from strata.fleet.groups.service import GroupService
from strata.fleet.metrics import Metrics
from strata.fleet.nodes.service import NodeService
from strata.fleet.operations.service import OperationService
from strata.fleet.plans.service import PlanService
from strata.fleet.services import Services
from strata.fleet.system.service import SystemService
from strata.fleet.watch.service import WatchService
from strata.hardware.feeds.driver import FeedDriver
from strata.rooms import put_services

FLEET = (
    NodeService,
    PlanService,
    DesireService,
    BrakeService,
    GroupService,
    OperationService,
    WatchService,
    SystemService,
    AuditService,
)


def fed(controller: Controller) -> Controller:
    """With the driver that answers for the order of power."""
    controller.driver_calls.add(FeedDriver(controller.registry, controller.engine, controller.clock.now))
    return controller


class OpenFleet(Fleet):
    """A fleet whose own rooms are open, with all that can be asked of them at hand: ``fleet.hold`` is the brakes'."""

    def __init__(self, controller: Controller, settings: Settings) -> None:
        super().__init__(fed(controller), settings)
        put_services(self, "fleet")

    def __getattr__(self, name: str) -> Any:
        for kind in FLEET if not name.startswith("_") else ():
            if hasattr(kind, name):
                return getattr(self.of(kind), name)  # type: ignore[type-abstract]
        raise AttributeError(name)


def api_services(
    *,
    authenticator: Authenticator,
    fleet: Any = None,
    metrics: Metrics | None = None,
    limits: Limits | None = None,
    authority: Authority | None = None,
    front_secret: str = "",
    rooms: dict[type[Any], Any] | None = None,
) -> Services:
    """What an API is served over. ``fleet``: an ``OpenFleet``, whose services these are then, or one object that
    answers for all rooms of a fleet. ``rooms``: more services by type."""
    services = fleet.services if isinstance(fleet, Fleet) else Services()
    if not isinstance(fleet, Fleet):
        for kind in FLEET:
            services.put(fleet or object(), kind)
    services.put(authenticator)
    shown = services.put(metrics or services.find(Metrics) or Metrics())
    services.put(Watchers(limits=services.put(limits or Limits()), metrics=shown))
    services.put(Bodies(services.get(Limits).bodies))
    services.put(FrontSecret(front_secret) if front_secret else FrontSecret())
    if authority is not None:
        services.put(authority)
    for kind, room in (rooms or {}).items():
        services.put(room, kind)
    return services
