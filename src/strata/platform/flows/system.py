"""The start and stop of a whole system: its stages, in the order of what they need, as flows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.core.nodeset import fold
from strata.core.printable import shortened
from strata.core.units import many
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Operation
from strata.platform.config.keeper import Keeper
from strata.platform.config.service import ConfigService
from strata.platform.flows.records import (
    FlowPlan,
    FlowStep,
    Stage,
    StageState,
    SystemEntry,
    SystemRun,
    SystemSpec,
    SystemStatus,
)
from strata.platform.flows.runner import FlowRunner
from strata.platform.flows.service import FlowService, need_confirmed

NAME = "stages"
START, STOP = "system-start", "system-stop"
_SHOWN = 200


class SystemFlows:
    """The stages of this system."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._flows = fleet.of(FlowService)
        self.records = fleet.records(SystemSpec, kind="system", listed_by="strata system status")
        self.stop = self.records.stop

    async def start(self) -> None:
        """Load them, and follow their changes."""
        await self.records.start()
        if (config := self._fleet.services.find(ConfigService)) is not None:
            config.keepers["system"] = Keeper(
                self.records, self.made, lambda name, record: SystemEntry(stages=record.stages)
            )

    async def show(self, who: Principal) -> SystemSpec:
        """The stages of the system, as they were put."""
        found = self.records.find(NAME)
        if found is None:
            raise NotFound("nobody has said what the system is made of", where="system", hint="strata system put FILE")
        return found

    async def put(self, who: Principal, spec: SystemSpec) -> SystemSpec:
        """Say which stages the system is made of, and what each needs."""
        self._fleet.need_whole_fleet(who, "the system")
        detail = {"stages": [stage.name for stage in spec.stages]}
        return await self.records.put(who.name, NAME, self.made(spec, who.name), detail=detail)

    def made(self, spec: SystemSpec, author: str) -> SystemSpec:
        """The record of what is said; ``BadRequest`` where this fleet cannot have it."""
        stages = ordered(spec.stages)
        self._flows.check([*_starts(stages), *_stops(stages)])
        return SystemSpec(stages=spec.stages)

    async def status(self, who: Principal) -> SystemStatus:
        """How each stage is, in the order in which they are started."""
        runner, found = self._flows.runner, []
        for stage in ordered((await self.show(who)).stages):
            nodes = self._fleet.seen(who, stage.nodes)
            up = runner.reached(nodes, stage.ready or stage.start)
            missing = fold(self._fleet.view.names(nodes[~up]))
            found.append(
                StageState(
                    name=stage.name,
                    after=stage.after,
                    nodes=len(nodes),
                    up=int(up.sum()),
                    down=int(runner.reached(nodes, stage.stop).sum()),
                    missing=shortened(missing, _SHOWN),
                )
            )
        return SystemStatus(stages=tuple(found), operation=await self._under_way())

    async def plan_start(self, who: Principal, request: SystemRun) -> FlowPlan:
        """What a start would do. Changes nothing."""
        return await self._plan(who, request, start=True)

    async def plan_stop(self, who: Principal, request: SystemRun) -> FlowPlan:
        """What a stop would do, and the words that confirm it. Changes nothing."""
        return await self._plan(who, request, start=False)

    async def start_stages(self, who: Principal, request: SystemRun) -> Operation:
        """Start the system, stage by stage. What is up already takes no time."""
        return await self._run(who, request, start=True)

    async def stop_stages(self, who: Principal, request: SystemRun) -> Operation:
        """Stop the system, the last stage first. `confirm` must say `stop N nodes`."""
        return await self._run(who, request, start=False)

    async def _plan(self, who: Principal, request: SystemRun, *, start: bool) -> FlowPlan:
        steps = await self._steps(who, request, start=start)
        plan = self._flows.planned(who, START if start else STOP, steps)
        if start:
            return plan
        count = sum(step.nodes for step in plan.steps)
        return FlowPlan(flow=plan.flow, steps=plan.steps, confirm=f"stop {many(count, 'node')}")

    async def _run(self, who: Principal, request: SystemRun, *, start: bool) -> Operation:
        """Each stage is seen to be so before the next."""
        self._fleet.need_whole_fleet(who, "the system")
        if running := await self._under_way():
            raise Conflict(
                f"operation {running} is starting or stopping the system already",
                hint=f"wait for it, or: strata operation cancel {running}",
            )
        plan = await self._plan(who, request, start=start)
        if plan.confirm:
            need_confirmed(plan.confirm, request.confirm, "this stops the system")
        return await self._flows.begin(who, plan.flow, await self._steps(who, request, start=start))

    async def _steps(self, who: Principal, request: SystemRun, *, start: bool) -> list[FlowStep]:
        stages = ordered((await self.show(who)).stages)
        known = {stage.name for stage in stages}
        if wrong := sorted(set(request.stages) - known):
            raise BadRequest(
                f"there is no stage {wrong[0]}", where="stages", hint=f"there are {', '.join(sorted(known))}"
            )
        if request.stages:
            chosen = _needed(stages, request.stages) if start else _needing(stages, request.stages)
            stages = [stage for stage in stages if stage.name in chosen]
        return _starts(stages) if start else _stops(stages)

    async def _under_way(self) -> str:
        for row in await self._fleet.operations.recent(limit=1000):
            if row.kind == FlowRunner.KIND and not row.over and row.arguments.get("flow") in (START, STOP):
                return row.id
        return ""


def ordered(stages: Sequence[Stage]) -> list[Stage]:
    """Each after those that it needs; ``BadRequest`` where that cannot be."""
    known = {stage.name: stage for stage in stages}
    if len(known) != len(stages):
        raise BadRequest("two stages have the same name", where="stages")
    for stage in stages:
        for name in stage.after:
            if name not in known:
                raise BadRequest(f"there is no stage {name}", where=f"stage {stage.name}: after")
    left, found = list(stages), list[Stage]()
    while left:
        done = {stage.name for stage in found}
        ready = [stage for stage in left if done.issuperset(stage.after)]
        if not ready:
            circle = ", ".join(stage.name for stage in left)
            raise BadRequest(f"these wait for each other in a circle: {circle}", where="stages")
        found += ready
        left = [stage for stage in left if stage not in ready]
    return found


def _needed(stages: Sequence[Stage], names: Collection[str]) -> set[str]:
    """These and all that they need."""
    found = set(names)
    for stage in reversed(stages):
        if stage.name in found:
            found |= set(stage.after)
    return found


def _needing(stages: Sequence[Stage], names: Collection[str]) -> set[str]:
    """These and all that need them."""
    found = set(names)
    for stage in stages:
        if found.intersection(stage.after):
            found.add(stage.name)
    return found


def _starts(stages: Sequence[Stage]) -> list[FlowStep]:
    return [
        FlowStep(
            name=f"start-{stage.name}"[:63],
            nodes=stage.nodes,
            set=stage.start,
            until=stage.ready or stage.start,
            timeout=stage.timeout,
            retries=stage.retries,
            allow=stage.allow,
        )
        for stage in stages
    ]


def _stops(stages: Sequence[Stage]) -> list[FlowStep]:
    return [
        FlowStep(
            name=f"stop-{stage.name}"[:63],
            nodes=stage.nodes,
            set=stage.stop,
            until=stage.stop,
            timeout=stage.timeout,
            retries=stage.retries,
        )
        for stage in reversed(stages)
    ]
