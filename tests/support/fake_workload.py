"""Workload managers that behave, in memory: whatever is connected answers, and knows every node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.core.errors import BadRequest, NotFound
from strata.fleet.access.principal import Principal
from strata.platform.workload.cluster import called
from strata.platform.workload.records import WorkloadNode, WorkloadSpec, WorkloadView
from strata.platform.workload.service import WorkloadService
from strata.schedulers.kinds import SETTINGS


class FakeWorkloads:
    """Stands in for ``WorkloadService``."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self._connected: dict[str, WorkloadView] = {}

    async def all(self, who: Principal) -> Sequence[WorkloadView]:
        return [self._connected[name] for name in sorted(self._connected)]

    async def one(self, who: Principal, name: str) -> WorkloadView:
        if name not in self._connected:
            raise NotFound(f"no such workload: {name}", where="workload")
        return self._connected[name]

    async def connect(self, who: Principal, name: str, spec: WorkloadSpec) -> WorkloadView:
        called(spec.names)
        if set(spec.env) - set(SETTINGS[spec.kind]):
            raise BadRequest("cannot be set", where="env")
        self._connected[name] = WorkloadView.of(
            spec, name=name, author=who.name, connected=1.0, answers=True, trouble="", seen=2.0, nodes=1, drained=0,
            busy=0, strangers="", missing="",
        )  # fmt: skip
        return self._connected[name]

    async def disconnect(self, who: Principal, name: str, *, force: bool) -> None:
        await self.one(who, name)
        del self._connected[name]

    async def nodes(self, who: Principal, name: str, select: str) -> Sequence[WorkloadNode]:
        await self.one(who, name)
        return [
            WorkloadNode(node=node, called=node, workload="in", state="idle", jobs=(), reason="", by="", ours=False)
            for node in sorted(self._facade.nodes)
        ]


def fake_workload(facade: Any) -> dict[type[Any], Any]:
    """Services by type."""
    return {WorkloadService: FakeWorkloads(facade)}
