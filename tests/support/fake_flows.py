"""Flows and a system as the API's tests meet them: kept in memory, and over as soon as they are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.fleet.access.principal import Principal
from strata.fleet.operations.records import Operation
from strata.platform.flows.records import (
    FlowPlan,
    FlowRun,
    FlowSpec,
    FlowStatus,
    FlowView,
    RevokeRequest,
    SystemRun,
    SystemSpec,
    SystemStatus,
    check,
)
from strata.platform.flows.service import FlowService
from strata.platform.flows.system import SystemFlows, ordered


def _operation(who: Principal, total: int) -> Operation:
    return Operation(id="0123456789abcdef0", kind="flow", state="pending", total=total, author=who.name, created=1.0)


class FakeFlows:
    """Stands in for ``FlowService``."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self._flows: dict[str, FlowView] = {}

    async def all(self, who: Principal) -> Sequence[FlowView]:
        return [self._flows[name] for name in sorted(self._flows)]

    async def one(self, who: Principal, name: str) -> FlowView:
        if name not in self._flows:
            raise NotFound(f"no such flow: {name}", where="flow")
        return self._flows[name]

    async def put(self, who: Principal, name: str, spec: FlowSpec, expected: int | None = None) -> FlowView:
        check(spec.steps)
        revision = self._flows[name].revision if name in self._flows else 0
        if expected not in (None, revision):
            raise Conflict("it is at another revision", revision=revision, where=name)
        self._flows[name] = FlowView(
            name=name, description=spec.description, steps=spec.steps, author=who.name, revision=revision + 1
        )
        return self._flows[name]

    async def delete(self, who: Principal, name: str, expected: int | None = None) -> None:
        found = await self.one(who, name)
        if expected not in (None, found.revision):
            raise Conflict("it is at another revision", revision=found.revision, where=name)
        del self._flows[name]

    async def plan(self, who: Principal, name: str, request: FlowRun) -> FlowPlan:
        await self.one(who, name)
        return FlowPlan(flow=name, steps=())

    async def run(self, who: Principal, name: str, request: FlowRun) -> Operation:
        await self.one(who, name)
        if request.start:
            raise BadRequest(f"{name} has no step {request.start!r}", where="start")
        if request.now:
            raise Refused("this waits for nothing and nobody", by="confirmation", where="confirm")
        return _operation(who, 1)

    async def status(self, who: Principal, ident: str) -> FlowStatus:
        raise NotFound(f"no such run: {ident}", where="operation")

    async def revoke(self, who: Principal, request: RevokeRequest) -> Operation:
        names = await self._facade.node_names(who, request.select)
        if not names:
            raise BadRequest("no node is selected", where="select")
        if request.confirm != f"revoke {len(names)} nodes":
            raise Refused("these nodes are cut off", by="confirmation", where="confirm")
        return _operation(who, len(names))


class FakeSystem:
    """Stands in for ``SystemFlows``."""

    def __init__(self) -> None:
        self._spec: SystemSpec | None = None

    async def show(self, who: Principal) -> SystemSpec:
        if self._spec is None:
            raise Conflict("nobody has said what the system is made of", where="system")
        return self._spec

    async def put(self, who: Principal, spec: SystemSpec) -> SystemSpec:
        ordered(spec.stages)
        self._spec = spec
        return spec

    async def status(self, who: Principal) -> SystemStatus:
        await self.show(who)
        return SystemStatus(stages=(), operation="")

    async def plan(self, who: Principal, request: SystemRun, *, start: bool) -> FlowPlan:
        await self.show(who)
        return FlowPlan(flow="system-start", steps=())

    async def run(self, who: Principal, request: SystemRun, *, start: bool) -> Operation:
        await self.show(who)
        return _operation(who, 1)


def fake_flows(facade: Any) -> dict[type[Any], Any]:
    """Services by type."""
    return {FlowService: FakeFlows(facade), SystemFlows: FakeSystem()}
