"""Workload managers that behave, in memory: whatever is connected answers, and knows every node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.core.errors import BadRequest, NotFound
from strata.fleet.access.principal import Principal
from strata.platform.basil.records import BasilInventory
from strata.platform.basil.service import BasilService
from strata.platform.slurm.records import SlurmFiles, SlurmPower, SlurmPowered, SlurmSpec, SlurmView
from strata.platform.slurm.service import SlurmService
from strata.platform.workload.cluster import called
from strata.platform.workload.records import WorkloadNode, WorkloadSpec, WorkloadView
from strata.platform.workload.service import WorkloadService
from strata.schedulers.kinds import SETTINGS
from strata.schedulers.slurm.conf import Cluster, files


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


class FakeSlurm:
    """Stands in for ``SlurmService``: clusters without nodes."""

    def __init__(self) -> None:
        self._described: dict[str, SlurmView] = {}

    def all(self) -> Sequence[SlurmView]:
        return [self._described[name] for name in sorted(self._described)]

    def one(self, name: str) -> SlurmView:
        if name not in self._described:
            raise NotFound(f"no such slurm: {name}", where="slurm")
        return self._described[name]

    async def put(self, who: Principal, name: str, spec: SlurmSpec) -> SlurmView:
        self._made(name, spec)
        self._described[name] = SlurmView(name=name, spec=spec, author=who.name, time=1.0)
        return self._described[name]

    async def delete(self, who: Principal, name: str) -> None:
        self.one(name)
        del self._described[name]

    async def files(self, who: Principal, name: str) -> SlurmFiles:
        return self._made(name, self.one(name).spec)

    async def power(self, who: Principal, name: str, request: SlurmPower) -> SlurmPowered:
        raise NotFound(f"no such workload: {name}", where="workload")

    def _made(self, name: str, spec: SlurmSpec) -> SlurmFiles:
        cluster = Cluster(name=name, controllers=spec.controllers, settings=spec.settings, cgroup=spec.cgroup)
        return SlurmFiles(name=name, nodes=0, files=files(cluster), warnings=())


class FakeBasil:
    """Stands in for ``BasilService``: a machine without NIDs."""

    async def inventory(self, who: Principal) -> BasilInventory:
        return BasilInventory(time=1.0, items=())


def fake_workload(facade: Any) -> dict[type[Any], Any]:
    """Services by type."""
    return {WorkloadService: FakeWorkloads(facade), SlurmService: FakeSlurm(), BasilService: FakeBasil()}
