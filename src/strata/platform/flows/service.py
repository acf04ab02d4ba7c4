"""Requests about flows: declaring, planning, running them, and how far runs are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strata.core.errors import BadRequest, Denied, NotFound, Refused
from strata.core.nodeset import fold
from strata.core.printable import shortened
from strata.core.texts import wanted_values
from strata.core.units import is_confirmed, many
from strata.fleet.access.principal import Principal, Right
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Operation, OperationRow
from strata.fleet.plans.service import PlanService
from strata.fleet.registry.editor import folded
from strata.fleet.selectors.language import parse
from strata.platform.config.keeper import Keeper
from strata.platform.config.service import ConfigService
from strata.platform.flows.records import (
    Flow,
    FlowEntry,
    FlowPlan,
    FlowRun,
    FlowSpec,
    FlowStatus,
    FlowStep,
    FlowView,
    RevokeRequest,
    StepPlan,
    StepState,
    check,
)
from strata.platform.flows.runner import FlowArguments, FlowRunner, Position, boot_control
from strata.platform.settings import PlatformSettings

_SHOWN = 200


class FlowService:
    """Flows, and their runs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.records = fleet.records(Flow, kind="flow", listed_by="strata flow list")
        self.runner = FlowRunner(fleet)
        self.stop = self.records.stop

    async def start(self) -> None:
        """Load them, and follow their changes."""
        await self.records.start()
        if (config := self._fleet.services.find(ConfigService)) is not None:
            config.keepers["flow"] = Keeper(
                self.records, self.made, lambda name, record: FlowEntry.of(record.spec, name=name)
            )

    # -- flows

    async def all(self, who: Principal) -> Sequence[FlowView]:
        """All flows."""
        return [self._view(name) for name, _ in self.records.sorted]

    async def one(self, who: Principal, name: str) -> FlowView:
        """One of them."""
        return self._view(name)

    async def put(self, who: Principal, name: str, spec: FlowSpec, expected: int | None = None) -> FlowView:
        """Declare a flow, or change it. Runs that are under way go on as they began."""
        self._fleet.need_whole_fleet(who, "a flow")
        self.check(spec.steps)
        detail = {"steps": [f"{step.name}: {step.does}"[:200] for step in spec.steps]}
        await self.records.put(who.name, name, Flow(spec=spec, author=who.name), expected=expected, detail=detail)
        return self._view(name)

    async def delete(self, who: Principal, name: str, expected: int | None = None) -> None:
        """Forget a flow. Runs that are under way go on."""
        self._fleet.need_whole_fleet(who, "a flow")
        await self.records.delete(who.name, name, expected=expected)

    # -- what the configuration says

    def made(self, spec: FlowEntry, author: str) -> Flow:
        """The record of what is said; ``BadRequest`` where this fleet cannot have it."""
        self.check(spec.steps)
        return Flow(spec=FlowSpec.of(spec), author=author)

    # -- runs

    async def plan(self, who: Principal, name: str, request: FlowRun) -> FlowPlan:
        """What a run would do, as things are now. Changes nothing."""
        return self.planned(who, name, self._steps(name, request), now=request.now)

    async def run(self, who: Principal, name: str, request: FlowRun) -> Operation:
        """Run a flow, as an operation. With ``now`` nothing is waited for, and ``confirm`` must say what ``plan``
        says."""
        steps = self._steps(name, request)
        if request.now:
            plan = self.planned(who, name, steps, now=True)
            need_confirmed(plan.confirm, request.confirm, "this waits for nothing and nobody")
            if not request.reason.strip():
                raise BadRequest("a run without waiting needs a reason", where="reason")
        return await self.begin(who, name, steps, now=request.now, reason=request.reason)

    async def status(self, who: Principal, ident: str) -> FlowStatus:
        """How far a run is, step by step."""
        row = await self._fleet.operations.show(ident)
        if row.kind != FlowRunner.KIND or (who.scope and row.author != who.name):
            raise NotFound(f"no such run: {ident[:40]}", where="operation", hint="strata operation list shows them")
        return _status(row)

    async def revoke(self, who: Principal, request: RevokeRequest) -> Operation:
        """Revoke the selected nodes' certificates, as an operation: they are cut off until they boot anew. ``confirm``
        must say ``revoke N nodes`` with the right number."""
        step = FlowStep(name="revoke", nodes=request.select, revoke=True)
        nodes = self._fleet.owned(who, request.select)
        if not len(nodes):
            raise BadRequest("no node is selected", where="select")
        boot_control(self._fleet)  # said now, and not by an operation that somebody has to look at
        words = f"revoke {many(len(nodes), 'node')}"
        need_confirmed(words, request.confirm, "these nodes are cut off until they reboot")
        return await self.begin(who, "revoke", (step,), reason=request.reason)

    # -- what system start and stop use, too

    def check(self, steps: Sequence[FlowStep]) -> None:
        """Raise ``BadRequest`` unless this fleet can have these steps."""
        check(steps)
        model = self._fleet.controller.model
        for step in steps:
            where = f"step {step.name}"
            try:
                parse(f"{step.nodes} {step.when}")
                if step.set or step.unset:
                    self._fleet.edits.checked_change(step.set, step.unset)
                for variable, value in step.waits_for.items():
                    for word in wanted_values(value):
                        model.check_value(variable, word)
            except BadRequest as error:
                raise BadRequest(error.detail, where=f"{where}: {error.where}", hint=error.hint) from None
            if step.run and step.run not in self._fleet.section(PlatformSettings).commands:
                hint = "name it under platform.commands in the configuration file"
                raise BadRequest(f"the site has no command {step.run!r}", where=where, hint=hint)

    def planned(self, who: Principal, name: str, steps: Sequence[FlowStep], *, now: bool = False) -> FlowPlan:
        """What these steps would do, each from what is so now."""
        found = []
        for step in steps:
            nodes = self._fleet.seen(who, f"{step.nodes} {step.when}".strip())
            totals, disrupts, longest = {}, 0, 0.0
            if step.set:
                wanted = self._fleet.edits.checked_wish(step.set)
                report = self._fleet.of(PlanService).report(nodes, self._fleet.registry.desires.preview(nodes, wanted))
                totals = dict(report.totals)
                disrupts = sum(one.count for one in report.classes if any(part.destructive for part in one.steps))
                longest = max((one.cost for one in report.classes), default=0.0)
            nodeset = fold(self._fleet.view.names(nodes))
            found.append(
                StepPlan(
                    name=step.name,
                    does=step.does,
                    nodes=len(nodes),
                    nodeset=shortened(nodeset, _SHOWN),
                    totals=totals,
                    disrupts=disrupts,
                    seconds=longest,
                )
            )
        most = max((step.nodes for step in found), default=0)
        return FlowPlan(flow=name, steps=tuple(found), confirm=f"run {name} now on {many(most, 'node')}" if now else "")

    async def begin(
        self, who: Principal, name: str, steps: Sequence[FlowStep], *, now: bool = False, reason: str = ""
    ) -> Operation:
        """Accept a run, in the name of who may do what its steps do."""
        self.check(steps)
        total = 0
        for step in steps:
            nodes = self._fleet.owned(who, f"{step.nodes} {step.when}".strip())
            total += len(nodes)
            if step.set or step.unset:
                who.require(Right("change", "desire"))
            if step.exec:
                who.require(Right("create", "exec"))
            if step.revoke:
                who.require(Right("create", "emergency"))
            if step.run and who.scope:
                raise Denied(
                    "a command of the site acts on the whole machine, and your scope is a part of it",
                    where=f"step {step.name}",
                )
        names = folded(step.nodes for step in steps)
        detail = {"now": now, "reason": reason, "steps": [step.name for step in steps]}
        await self._fleet.ledger.commit(who.name, "flow.run", name, [], None, {**detail, "nodes": names[:500]})
        arguments = FlowArguments(flow=name, steps=tuple(steps), author=who.name, now=now)
        row = await self._fleet.operations.start(FlowRunner.KIND, who.name, total, msgspec.to_builtins(arguments))
        return row.shown()

    def _steps(self, name: str, request: FlowRun) -> tuple[FlowStep, ...]:
        steps = self.records.get(name).spec.steps
        if not request.start:
            return steps
        known = [step.name for step in steps]
        if request.start not in known:
            raise BadRequest(f"{name} has no step {request.start!r}", where="start", hint=f"it has {', '.join(known)}")
        return steps[known.index(request.start) :]

    def _view(self, name: str) -> FlowView:
        flow = self.records.get(name)
        return FlowView.of(flow.spec, flow, name=name, revision=self.records.revision(name))


def need_confirmed(words: str, said: str, what: str) -> None:
    """Raise ``Refused`` unless somebody ``said`` these words."""
    if not is_confirmed(said, words):
        raise Refused(what, by="confirmation", where="confirm", hint=f"if you mean it, confirm with: {words}")


def _status(row: OperationRow) -> FlowStatus:
    told = msgspec.convert(row.arguments, FlowArguments)
    at = msgspec.convert(row.position, Position) if row.position else Position()
    states = {state.name: state for state in at.log}
    found = []
    for number, step in enumerate(told.steps):
        state = states.get(step.name) or StepState(name=step.name, does=step.does)
        if state.state == "pending" and number == at.step and at.began and not row.over:
            state = msgspec.structs.replace(state, state="running", began=at.began)
        found.append(state)
    return FlowStatus(flow=told.flow, operation=row.shown(), steps=tuple(found))
