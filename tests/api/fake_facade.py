"""A facade that behaves, in memory: what the API's tests run over. Small fleets only."""

from __future__ import annotations

import asyncio
import fnmatch
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Compacted, Conflict, Denied, NotFound, Unavailable
from strata.core.model import Model
from strata.core.node import Freeze, check_node_name
from strata.core.nodeset import expand
from strata.core.state import State
from strata.core.texts import Wanted, wanted_values
from strata.core.xname import parse as parse_xname
from strata.fleet.access.principal import Principal
from strata.fleet.audit.service import AuditPage
from strata.fleet.brakes.records import HoldPage, HoldView
from strata.fleet.desires.records import (
    Applied,
    ApplyReport,
    ApplyRequest,
    DesireChange,
    DesireResult,
    DesireView,
    DocumentSpec,
    DocumentView,
)
from strata.fleet.groups.records import GroupSpec, GroupView, MemberChange
from strata.fleet.history.records import HistoryPage, PastView, TransitionView
from strata.fleet.nodes.locations import ancestor_finder
from strata.fleet.nodes.records import (
    EncodedNode,
    EncodedPage,
    FactView,
    FoldedView,
    NodePage,
    NodeQuery,
    NodeSpec,
    NodeView,
    WhyView,
)
from strata.fleet.nodes.results import ManyResult, NodeResult
from strata.fleet.operations.records import Operation, OperationPage
from strata.fleet.plans.records import PlanReport, PlanRequest, PlanView
from strata.fleet.system import records as s
from strata.fleet.watch.service import EventKind, WatchEvent
from strata.hardware.model import LAYER
from strata.store.audit import AuditEntry, AuditReport

MODEL = Model.of(LAYER)
OLDEST = 5
"""The first revision that a watch may still resume after."""


class FakeFacade:
    """Nodes, groups, documents, brakes and jobs as plain dictionaries; one revision for all."""

    def __init__(self, nodes: int = 0) -> None:
        self.revision = 100
        self.nodes: dict[str, NodeView] = {}
        self.groups_: dict[str, tuple[set[str], str, int]] = {}
        self.documents_: dict[str, DocumentView] = {}
        self.holds_: dict[str, HoldView] = {}
        self.freezes_: dict[str, Freeze] = {}
        self.jobs_: dict[str, Operation] = {}
        self.events: list[WatchEvent] = []
        self.changed = asyncio.Condition()
        self.watchers = 0
        self.reason = ""
        self.broken: Exception | None = None
        for number in range(nodes):
            self._put_node(NodeSpec(name=f"n{number:03d}"))

    # helpers

    def _next(self) -> int:
        self.revision += 1
        return self.revision

    def _put_node(self, spec: NodeSpec, uid: int | None = None) -> NodeView:
        revision = self._next()
        view = NodeView(
            **{f: getattr(spec, f) for f in spec.__struct_fields__},
            uid=len(self.nodes) if uid is None else uid,
            groups=(),
            state="unknown",
            facts={"power": FactView(value="unknown", seen=None, source="bmc", age=None)},
            desires={},
            hold=None,
            frozen="",
            doing=None,
            fault="",
            revision=revision,
            stamp=revision,
        )
        self.nodes[spec.name] = view
        return view

    def _sees(self, who: Principal, name: str) -> bool:
        return not who.scope or any(name in self.groups_.get(g, (set(),))[0] for g in who.scope)

    def _find(self, who: Principal, name: str) -> NodeView:
        if self.broken is not None:
            raise self.broken
        if name not in self.nodes or not self._sees(who, name):
            raise NotFound("no such node", where=name)
        return self.nodes[name]

    def _select(self, who: Principal, select: str, *, write: bool = False) -> list[str]:
        found: list[str] = []
        if "[" in select:
            select = ",".join(expand(select, {name: sorted(group[0]) for name, group in self.groups_.items()}))
        for part in select.split(","):
            if part.startswith("@"):
                if part[1:] not in self.groups_:
                    raise NotFound("no such group", where=part[:80])
                found += sorted(self.groups_[part[1:]][0])
            elif "*" in part:
                found += fnmatch.filter(sorted(self.nodes), part)
            else:
                check_node_name(part)
                if part not in self.nodes:
                    raise NotFound("no such node", where=part)
                found.append(part)
        seen = [name for name in found if self._sees(who, name)]
        if write and len(seen) != len(found):
            raise Denied("the selection reaches outside your groups", where=select[:80])
        return seen

    def _check(self, wanted: Mapping[str, Wanted]) -> None:
        for name, values in wanted.items():
            for value in wanted_values(values):
                MODEL.check_value(name, value)

    @staticmethod
    def _expect(now: int | None, expected: int | None) -> None:
        if expected is not None and (now or 0) != expected:
            raise Conflict("it has changed since", revision=now or 0)

    async def say(self, event: EventKind, **data: Any) -> None:
        """Make an event happen."""
        async with self.changed:
            self.events.append(WatchEvent(revision=self._next(), event=event, data=data))
            self.changed.notify_all()

    # nodes

    async def nodes_page(self, who: Principal, query: NodeQuery) -> NodePage:
        found = [self.nodes[name] for name in self._select(who, query.select)]
        found = [node for node in found if query.state in (None, node.state)]
        key = query.sort.lstrip("-")
        found.sort(key=lambda n: (str(getattr(n, key)), n.name), reverse=query.sort.startswith("-"))
        if query.after and not query.after.isdigit():
            raise BadRequest("not a cursor that we gave", where="cursor")
        begin = int(query.after or 0)
        end = begin + query.limit
        following = str(end) if end < len(found) else None
        return NodePage(items=tuple(found[begin:end]), next=following, total=len(found), revision=self.revision)

    async def nodes_json(self, who: Principal, query: NodeQuery) -> EncodedPage:
        page = await self.nodes_page(who, query)
        items = tuple(msgspec.Raw(msgspec.json.encode(item)) for item in page.items)
        return EncodedPage(items=items, next=page.next, total=page.total, revision=page.revision)

    async def nodes_folded(self, who: Principal, select: str, state: State | None) -> FoldedView:
        names = ",".join(self._select(who, select))
        return FoldedView(nodeset=names, total=len(self.nodes), by_state={"unknown": names}, revision=self.revision)

    async def node_names(self, who: Principal, select: str) -> Sequence[str]:
        kind, _, place = select.partition(":")
        if kind == "fact":
            variable, _, value = place.partition("=")
            if variable not in MODEL.variables:
                raise BadRequest("no such variable", where=variable[:80])
            return sorted(
                name
                for name, view in self.nodes.items()
                if self._sees(who, name) and variable in view.facts and view.facts[variable].value == value
            )
        if kind != "location":
            return sorted(self._select(who, select))
        find = ancestor_finder(parse_xname(place).type)
        return sorted(
            name for name, view in self.nodes.items() if self._sees(who, name) and find(view.location) == place
        )

    async def locations(self, who: Principal, select: str, kind: str) -> Sequence[str]:
        find = ancestor_finder(kind)
        names = await self.node_names(who, select)
        return sorted({place for name in names if (place := find(self.nodes[name].location))})

    async def node(self, who: Principal, name: str) -> NodeView:
        return self._find(who, name)

    def node_json(self, who: Principal, name: str) -> EncodedNode:
        view = self._find(who, name)
        return EncodedNode(msgspec.json.encode(view), view.revision, view.stamp)

    async def create_nodes(self, who: Principal, specs: Sequence[NodeSpec]) -> Sequence[NodeResult]:
        results = []
        for spec in specs:
            if spec.name in self.nodes:
                results.append(NodeResult(node=spec.name, ok=False, status=409, error="exists already"))
            else:
                self._put_node(spec)
                results.append(NodeResult(node=spec.name, ok=True, status=201))
        return results

    async def replace_node(self, who: Principal, name: str, spec: NodeSpec, expected: int | None) -> NodeView:
        old = self.nodes.get(name)
        self._expect(old.revision if old else None, expected)
        check_node_name(name)
        return self._put_node(spec, old.uid if old else None)

    async def delete_node(self, who: Principal, name: str, expected: int | None) -> None:
        node = self._find(who, name)
        self._expect(node.revision, expected)
        del self.nodes[name]
        self._next()

    async def why(self, who: Principal, name: str) -> WhyView:
        return WhyView(node=name, state=self._find(who, name).state, summary="nobody has looked at it yet")

    async def plan_node(self, who: Principal, name: str, desires: Mapping[str, Sequence[str]]) -> PlanView:
        self._find(who, name)
        self._check({key: tuple(values) for key, values in desires.items()})
        return PlanView(node=name, status="observe", observe=("power",))

    async def history(
        self, who: Principal, name: str, since: float | None, until: float | None, limit: int, after: str
    ) -> HistoryPage:
        self._find(who, name)
        change = TransitionView(time=1.0, variable="power", old="unknown", new="off", source="bmc", cause="observe")
        return HistoryPage(items=(change,), next=None if after else "1")

    async def past(self, who: Principal, name: str, time: float) -> PastView:
        self._find(who, name)
        if time < 1000:
            raise Compacted("nothing is kept from then", oldest=1000)
        return PastView(node=name, time=time, facts={"power": "unknown"})

    # desires

    async def set_desires(self, who: Principal, change: DesireChange, asynchronous: bool) -> DesireResult | Operation:
        names = self._select(who, change.select, write=True)
        self._check(change.set)
        if change.if_match is not None and change.if_match < self.revision:
            raise Conflict("desires have changed since", revision=self.revision)
        if asynchronous or len(names) > 1000:
            job = Operation(
                id=f"j{len(self.jobs_)}",
                kind="desires",
                state="running",
                total=len(names),
                done=0,
                failed=0,
                errors=(),
                author=who.name,
                created=time.time(),
                finished=None,
            )
            self.jobs_[job.id] = job
            return job
        revision = self._next()
        for name in names:
            wanted = {
                key: DesireView(values=wanted_values(values), author=who.name, revision=revision, origin="node")
                for key, values in change.set.items()
            }
            kept = {k: d for k, d in self.nodes[name].desires.items() if k not in change.unset}
            self.nodes[name] = msgspec.structs.replace(self.nodes[name], desires=kept | wanted, stamp=revision)
        results = tuple(NodeResult(node=name, ok=True) for name in names)
        return DesireResult(results=results, changed=len(names), revision=revision)

    async def plan_many(self, who: Principal, request: PlanRequest) -> PlanReport:
        names = self._select(who, request.select)
        self._check(request.set)
        return PlanReport(nodes=len(names), classes=(), totals={})

    async def documents(self, who: Principal) -> Sequence[DocumentView]:
        return [self.documents_[name] for name in sorted(self.documents_)]

    async def document(self, who: Principal, name: str) -> DocumentView:
        if name not in self.documents_:
            raise NotFound("no such document", where=name)
        return self.documents_[name]

    async def put_document(self, who: Principal, spec: DocumentSpec, expected: int | None) -> DocumentView:
        old = self.documents_.get(spec.name)
        self._expect(old.revision if old else None, expected)
        self._check(spec.set)
        view = DocumentView(
            name=spec.name,
            select=spec.select,
            set={key: wanted_values(values) for key, values in spec.set.items()},
            priority=spec.priority,
            author=who.name,
            revision=self._next(),
            matches=len(self._select(who, spec.select)),
        )
        self.documents_[spec.name] = view
        return view

    async def delete_document(self, who: Principal, name: str, expected: int | None) -> None:
        self._expect((await self.document(who, name)).revision, expected)
        del self.documents_[name]

    async def apply(self, who: Principal, request: ApplyRequest) -> ApplyReport:
        changes = []
        for spec in request.documents:
            self._check(spec.set)
            action = "changed" if spec.name in self.documents_ else "created"
            if not request.dry_run:
                await self.put_document(who, spec, None)
            changes.append(Applied(name=spec.name, action=action, nodes=0))
        return ApplyReport(changes=tuple(changes), dry_run=request.dry_run, revision=self.revision)

    # brakes

    async def holds(self, who: Principal, limit: int, after: str) -> HoldPage:
        found = [hold for name, hold in sorted(self.holds_.items()) if name > after and self._sees(who, name)]
        following = found[limit - 1].node if len(found) > limit else None
        return HoldPage(items=tuple(found[:limit]), next=following, total=len(self.holds_))

    async def hold(self, who: Principal, select: str, reason: str) -> ManyResult:
        names = self._select(who, select, write=True)
        for name in names:
            self.holds_[name] = HoldView(node=name, reason=reason, author=who.name, since=time.time())
        return ManyResult(changed=len(names), nodeset=",".join(names), revision=self._next())

    async def release(self, who: Principal, select: str) -> ManyResult:
        names = [name for name in self._select(who, select, write=True) if self.holds_.pop(name, None)]
        return ManyResult(changed=len(names), nodeset=",".join(names), revision=self._next())

    async def retry(self, who: Principal, select: str) -> ManyResult:
        names = [name for name in self._select(who, select, write=True) if self.nodes[name].state == "faulted"]
        return ManyResult(changed=len(names), nodeset=",".join(names), revision=self._next())

    async def freezes(self, who: Principal) -> Sequence[Freeze]:
        return list(self.freezes_.values())

    async def freeze(self, who: Principal, scope: str, reason: str) -> Freeze:
        if who.scope and scope not in {f"group:{g}" for g in who.scope}:
            raise Denied("outside your groups", where=scope)
        self.freezes_[scope] = Freeze(scope=scope, reason=reason, author=who.name, since=time.time())
        return self.freezes_[scope]

    async def thaw(self, who: Principal, scope: str) -> None:
        if self.freezes_.pop(scope, None) is None:
            raise NotFound("not frozen", where=scope)

    # groups

    async def groups(self, who: Principal) -> Sequence[GroupView]:
        return [await self.group(who, name) for name in sorted(self.groups_) if not who.scope or name in who.scope]

    async def group(self, who: Principal, name: str) -> GroupView:
        if name not in self.groups_ or (who.scope and name not in who.scope):
            raise NotFound("no such group", where=name)
        members, description, revision = self.groups_[name]
        return GroupView(
            name=name,
            description=description,
            members=",".join(sorted(members)),
            count=len(members),
            revision=revision,
        )

    async def put_group(self, who: Principal, name: str, spec: GroupSpec, expected: int | None) -> GroupView:
        members, _, revision = self.groups_.get(name, (set(), "", None))
        self._expect(revision, expected)
        if isinstance(spec.members, str):
            members = set(self._select(who, spec.members)) if spec.members else set()
        self.groups_[name] = (members, spec.description, self._next())
        return await self.group(who, name)

    async def delete_group(self, who: Principal, name: str, expected: int | None) -> None:
        self._expect((await self.group(who, name)).revision, expected)
        del self.groups_[name]

    async def change_members(self, who: Principal, name: str, change: MemberChange) -> GroupView:
        view = await self.group(who, name)
        add = set(self._select(who, change.add)) if change.add else set()
        remove = set(self._select(who, change.remove)) if change.remove else set()
        self.groups_[name] = ((self.groups_[name][0] | add) - remove, view.description, self._next())
        return await self.group(who, name)

    # operations

    async def operations(self, who: Principal, limit: int, after: str) -> OperationPage:
        found = [job for ident, job in sorted(self.jobs_.items()) if ident > after]
        return OperationPage(items=tuple(found[:limit]), next=found[limit - 1].id if len(found) > limit else None)

    async def operation(self, who: Principal, job: str) -> Operation:
        if job not in self.jobs_:
            raise NotFound("no such operation", where=job)
        return self.jobs_[job]

    async def cancel_operation(self, who: Principal, job: str) -> Operation:
        view = await self.operation(who, job)
        if view.finished is not None:
            raise Conflict("it has ended already", where=job)
        self.jobs_[job] = msgspec.structs.replace(view, state="cancelled", finished=time.time())
        return self.jobs_[job]

    # the service

    async def watch(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[WatchEvent]]:
        self._select(who, select)
        return self._changes(self.revision if since is None else since)

    async def _changes(self, since: int) -> AsyncIterator[Sequence[WatchEvent]]:
        self.watchers += 1
        try:
            while True:
                if since < OLDEST:
                    raise Compacted("that far back nothing is kept", oldest=OLDEST)
                async with self.changed:
                    await self.changed.wait_for(lambda after=since: any(e.revision > after for e in self.events))
                    news = [event for event in self.events if event.revision > since]
                since = news[-1].revision
                yield news
        finally:
            self.watchers -= 1

    async def audit(self, who: Principal, since: int, limit: int, after: str) -> AuditPage:
        item = AuditEntry(seq=1, time=1.0, author="a", action="b", target="c", detail={}, prev="", hash="00")
        return AuditPage(items=(item,)[:limit], next=None if after else "1")

    async def audit_latest(self, who: Principal, limit: int) -> Sequence[AuditEntry]:
        return (await self.audit(who, 0, limit, "")).items[::-1]

    async def audit_verify(self, who: Principal) -> AuditReport:
        return AuditReport(ok=True, count=1)

    async def backup(self, who: Principal) -> s.BackupView:
        return s.BackupView(path="backup-1", revision=self.revision, bytes=1)

    async def check_store(self, who: Principal) -> s.StoreCheck:
        if self.broken is not None:
            raise Unavailable("the store is away")
        return s.StoreCheck(ok=True, problems=(), revision=self.revision)

    async def model(self) -> s.ModelView:
        return s.ModelView(
            **{name: msgspec.to_builtins(dict(getattr(MODEL, name))) for name in s.ModelView.__struct_fields__}
        )

    async def model_graph(self) -> str:
        return "digraph model {}"

    async def status(self, who: Principal) -> s.StatusView:
        return s.StatusView(
            version="0",
            canaries=(),
            troubles=(),
            controller="c1",
            started=0.0,
            nodes=len(self.nodes),
            by_state={"unknown": len(self.nodes)},
            queue={},
            shards=(),
            freezes=len(self.freezes_),
            holds=len(self.holds_),
            revision=self.revision,
        )

    def not_ready(self) -> str:
        return self.reason
