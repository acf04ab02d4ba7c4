"""Health as the API's tests meet it: checks that are kept in memory, and nodes that are all well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.access.principal import Principal
from strata.platform.health.records import (
    CheckDetail,
    Checked,
    CheckSpec,
    CheckView,
    HealthPolicy,
    NodeHealth,
    check,
)
from strata.platform.health.service import HealthService


class FakeHealth:
    """Stands in for ``HealthService``."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self._checks: dict[str, CheckView] = {}
        self.policy = HealthPolicy()

    async def checks(self, who: Principal) -> Sequence[CheckView]:
        return [self._checks[name] for name in sorted(self._checks)]

    async def one(self, who: Principal, name: str) -> CheckDetail:
        if name not in self._checks:
            raise NotFound(f"no such health-check: {name}", where="health-check")
        return CheckDetail.of(self._checks[name], items=())

    async def put(self, who: Principal, name: str, spec: CheckSpec, expected: int | None = None) -> CheckView:
        check(spec, name)
        revision = self._checks[name].revision if name in self._checks else 0
        if expected not in (None, revision):
            raise Conflict("it is at another revision", revision=revision, where=name)
        self._checks[name] = CheckView(
            name=name, spec=spec, author=who.name, revision=revision + 1, nodes=1, failing=0, trusted=True
        )
        return self._checks[name]

    async def delete(self, who: Principal, name: str, expected: int | None = None) -> None:
        found = await self.one(who, name)
        if expected not in (None, found.revision):
            raise Conflict("it is at another revision", revision=found.revision, where=name)
        del self._checks[name]

    async def set_policy(self, who: Principal, policy: HealthPolicy) -> HealthPolicy:
        self.policy = policy
        return policy

    async def nodes(self, who: Principal, select: str) -> Sequence[NodeHealth]:
        names = await self._facade.node_names(who, select)
        return [NodeHealth(node=name, health="ok", why="", failing=(), repairs=()) for name in names]

    async def run(self, who: Principal, select: str) -> Sequence[Checked]:
        names = await self._facade.node_names(who, select)
        if not names:
            raise BadRequest("no node is selected", where="select")
        return [Checked(node=name, results={"memory": ""}) for name in names]


def fake_health(facade: Any) -> HealthService:
    """One of them."""
    return cast("HealthService", FakeHealth(facade))
