"""What the API asks of the controller: one protocol, so that routes can be tested over an in-memory fake.

Every method takes ``who`` asks. The API has already checked that the *role* may do this kind of thing; the facade
applies the *scope*: a reader with a scope sees only nodes of its groups (others are ``NotFound`` by name and
absent from lists, counts and events), and a writer whose selection may reach outside them gets ``Denied`` and
changes nothing. ``who.name`` is the author of every write.

Errors are those of ``strata.core.errors``. ``expected`` is the revision that the caller has seen: another is a
``Conflict``; None: whatever it is; 0: it must not exist yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from strata.control import service_views as s
from strata.control.fleet_views.brakes import FreezeView, HoldPage
from strata.control.fleet_views.desires import (
    ApplyReport,
    ApplyRequest,
    DesireChange,
    DesireResult,
    DocumentSpec,
    DocumentView,
)
from strata.control.fleet_views.groups import GroupSpec, GroupView, MemberChange
from strata.control.fleet_views.history import HistoryPage, PastView
from strata.control.fleet_views.jobs import JobPage, JobView
from strata.control.fleet_views.nodes import FoldedView, NodePage, NodeQuery, NodeSpec, NodeView, State
from strata.control.fleet_views.plans import PlanReport, PlanRequest, PlanView
from strata.control.fleet_views.results import ManyResult, NodeResult
from strata.control.fleet_views.watch import WatchEvent
from strata.control.fleet_views.why import WhyView
from strata.control.principal import Principal


class NodeFacade(Protocol):
    """Nodes: their descriptions, states, plans and pasts."""

    async def nodes_page(self, who: Principal, query: NodeQuery) -> NodePage:
        """A page of the selected nodes; ``BadRequest`` for a bad selector, sort or ``after``."""
        ...

    async def nodes_folded(self, who: Principal, select: str, state: State | None) -> FoldedView:
        """The selected nodes as nodesets, whole and by state."""
        ...

    async def node_names(self, who: Principal, select: str) -> Sequence[str]:
        """The names of the selected nodes, in order: cheap for the whole fleet."""
        ...

    async def places(self, who: Principal, select: str, kind: str) -> Sequence[str]:
        """The cabinets (chassis, slots: a component type) that the selected nodes are in, in order. Cheap as well."""
        ...

    async def node(self, who: Principal, name: str) -> NodeView:
        """One node. The hottest call of all: from memory, no I/O."""
        ...

    async def create_nodes(self, who: Principal, specs: Sequence[NodeSpec]) -> Sequence[NodeResult]:
        """Create many; one result per spec, in order (status 201, 400 or 409)."""
        ...

    async def replace_node(self, who: Principal, name: str, spec: NodeSpec, expected: int | None) -> NodeView:
        """Put the description of one node in place, creating it if need be; uid, desires and facts stay."""
        ...

    async def delete_node(self, who: Principal, name: str, expected: int | None) -> None:
        """Forget the node and all that was said about it."""
        ...

    async def why(self, who: Principal, name: str) -> WhyView:
        """Why it is not at its goal."""
        ...

    async def plan_node(self, who: Principal, name: str, desires: Mapping[str, Sequence[str]]) -> PlanView:
        """The plan for its desires, with these set on top. Changes nothing."""
        ...

    async def history(
        self, who: Principal, name: str, since: float | None, until: float | None, limit: int, after: str
    ) -> HistoryPage:
        """Its fact changes, newest first."""
        ...

    async def past(self, who: Principal, name: str, time: float) -> PastView:
        """Its facts at ``time``; ``Compacted`` beyond retention."""
        ...


class DesireFacade(Protocol):
    """What is wanted: on nodes, by documents; and what it would lead to."""

    async def set_desires(self, who: Principal, change: DesireChange, asynchronous: bool) -> DesireResult | JobView:
        """Set and unset. A job if ``asynchronous`` or for more than 1000 nodes."""
        ...

    async def plan_many(self, who: Principal, request: PlanRequest) -> PlanReport:
        """Dry run, by class."""
        ...

    async def documents(self, who: Principal) -> Sequence[DocumentView]:
        """All documents, by name."""
        ...

    async def document(self, who: Principal, name: str) -> DocumentView:
        """One document."""
        ...

    async def put_document(self, who: Principal, spec: DocumentSpec, expected: int | None) -> DocumentView:
        """Create or replace."""
        ...

    async def delete_document(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove."""
        ...

    async def apply(self, who: Principal, request: ApplyRequest) -> ApplyReport:
        """Make the documents be these, all or nothing."""
        ...


class BrakeFacade(Protocol):
    """Holds, freezes, retries."""

    async def holds(self, who: Principal, limit: int, after: str) -> HoldPage:
        """Holds by node name."""
        ...

    async def hold(self, who: Principal, select: str, reason: str) -> ManyResult:
        """Hold every selected node that is not held yet."""
        ...

    async def release(self, who: Principal, select: str) -> ManyResult:
        """Release every selected node that is held."""
        ...

    async def retry(self, who: Principal, select: str) -> ManyResult:
        """Forget the failures and faults of every selected node that has any, so that it is tried again now."""
        ...

    async def freezes(self, who: Principal) -> Sequence[FreezeView]:
        """Every freeze that touches the caller's scope."""
        ...

    async def freeze(self, who: Principal, scope: str, reason: str) -> FreezeView:
        """Put the brake on; again is fine (the reason is replaced)."""
        ...

    async def thaw(self, who: Principal, scope: str) -> None:
        """Take it off; ``NotFound`` if it was not on."""
        ...


class GroupFacade(Protocol):
    """Groups."""

    async def groups(self, who: Principal) -> Sequence[GroupView]:
        """All groups (those of the scope), by name."""
        ...

    async def group(self, who: Principal, name: str) -> GroupView:
        """One group."""
        ...

    async def put_group(self, who: Principal, name: str, spec: GroupSpec, expected: int | None) -> GroupView:
        """Create or replace."""
        ...

    async def delete_group(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove the group; its nodes stay."""
        ...

    async def change_members(self, who: Principal, name: str, change: MemberChange) -> GroupView:
        """Add and remove members."""
        ...


class JobFacade(Protocol):
    """Tracked work."""

    async def jobs(self, who: Principal, limit: int, after: str) -> JobPage:
        """Jobs, newest first (with a scope: one's own)."""
        ...

    async def job(self, who: Principal, job: str) -> JobView:
        """One job."""
        ...

    async def cancel_job(self, who: Principal, job: str) -> JobView:
        """Ask it to stop between chunks; ``Conflict`` if it has ended."""
        ...


class ServiceFacade(Protocol):
    """The service itself: events, audit, store, model, status."""

    async def watch(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[WatchEvent]]:
        """Check the selector (``BadRequest``, ``NotFound``), then return an async generator of changes of the selected
        nodes from revision ``since`` + 1 on (None: from now), in order, in batches that never split a revision. It
        raises ``Compacted`` when ``since``, or a slow reader, is behind what is kept. Ended by ``aclose()``."""
        ...

    async def audit(self, who: Principal, since: int, limit: int, after: str) -> s.AuditPage:
        """Audit records from sequence number ``since`` on, oldest first."""
        ...

    async def audit_latest(self, who: Principal, limit: int) -> Sequence[s.AuditView]:
        """The newest audit records, newest first."""
        ...

    async def audit_verify(self, who: Principal) -> s.AuditVerdict:
        """Check the whole chain."""
        ...

    async def backup(self, who: Principal) -> s.BackupView:
        """Write a backup into the state directory."""
        ...

    async def check_store(self, who: Principal) -> s.StoreCheck:
        """Look at every stored byte."""
        ...

    async def model(self) -> s.ModelView:
        """The declared world."""
        ...

    async def model_graph(self) -> str:
        """The same as DOT text."""
        ...

    async def status(self, who: Principal) -> s.StatusView:
        """Counts by state, engine queue, shards."""
        ...

    def not_ready(self) -> str:
        """Why requests would fail now (loading, store away), or empty: ready. Never raises."""
        ...


class Facade(NodeFacade, DesireFacade, BrakeFacade, GroupFacade, JobFacade, ServiceFacade, Protocol):
    """All of the above."""
