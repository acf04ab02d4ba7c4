"""Opens the fleet's own rooms: what can be asked of nodes, groups, desires, brakes, tracked work, the service."""

from __future__ import annotations

from strata.fleet.access.accounts import Accounts
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.logins import Logins
from strata.fleet.access.sealing import Seal
from strata.fleet.access.sessions import Sessions
from strata.fleet.audit.service import AuditService
from strata.fleet.brakes.service import BrakeService
from strata.fleet.desires.service import DesireService
from strata.fleet.fleet import Fleet
from strata.fleet.groups.service import GroupService
from strata.fleet.metrics import Metrics
from strata.fleet.nodes.service import NodeService
from strata.fleet.operations.service import OperationService
from strata.fleet.plans.service import PlanService
from strata.fleet.system.service import SystemService
from strata.fleet.watch.service import WatchService


def open_rooms(fleet: Fleet) -> None:
    """What needs nothing but the fleet."""
    for room in (
        NodeService, PlanService, DesireService, BrakeService, GroupService, OperationService, WatchService,
        SystemService, AuditService,
    ):  # fmt: skip
        fleet.put(room(fleet))
    fleet.put(fleet.controller.metrics, Metrics)


async def open_access(fleet: Fleet, authority: Authority) -> None:
    """Who may ask: tokens, certificates, accounts, sessions; and the key that seals secrets in the store."""
    fleet.put(authority)
    fleet.put(Seal.load(fleet.settings.secrets_key, make=not fleet.settings.store.secrets_key))
    authenticator = await fleet.keep(Authenticator(fleet.store, fleet.ledger))
    accounts, sessions = Accounts(fleet.store, fleet.ledger), Sessions(fleet.store, fleet.ledger)
    fleet.put(authenticator)
    fleet.put(await fleet.keep(Logins(accounts, sessions, authenticator)))
