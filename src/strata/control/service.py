"""The controller as the API sees it: every request, checked against the caller's scope, on the running fleet.

Implements ``strata.control.facade.Facade``. Writes return once the local view shows them, so that who wrote reads
what was written.
"""

from __future__ import annotations

from strata.control.controller import Controller
from strata.control.edits import Edits
from strata.control.fleet_view import FleetView
from strata.control.jobs import Jobs, JobSettings
from strata.control.open_alerts import nothing_known
from strata.control.service_brakes import BrakeService
from strata.control.service_desires import DesireService
from strata.control.service_groups import GroupService
from strata.control.service_jobs import JobService
from strata.control.service_nodes import NodeService
from strata.control.service_plans import PlanService
from strata.control.service_system import SystemService
from strata.control.settings import Settings
from strata.store.audit import Ledger
from strata.store.writable import Writable


class Service(NodeService, PlanService, DesireService, BrakeService, GroupService, JobService, SystemService):
    """All of it, over one controller."""

    def __init__(self, controller: Controller, settings: Settings) -> None:
        self.controller = controller
        self.registry = controller.registry
        self.ledger = Ledger(controller.store, clock=controller.clock.wall)
        self.edits = Edits(self.registry, self.ledger)
        self.view = FleetView(controller)
        self.settings = settings
        self.writable = Writable(controller.store)
        self.troubles = nothing_known  # until the hardware layer is there
        self.jobs_ = Jobs(
            controller.store,
            self.ledger,
            owner=controller.name,
            settings=JobSettings(keep=settings.retention.jobs),
        )
        self.register_jobs()
