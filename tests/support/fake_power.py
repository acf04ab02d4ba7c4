"""A power layer that behaves, in memory: every node draws 100 W, and one job ran."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.core.nodeset import expand
from strata.fleet.access.principal import Principal
from strata.power.accounting.records import Comparison, JobBrief, JobBriefs, JobPower, JobsTaken, JobsTold, Spread
from strata.power.accounting.service import PowerJobs
from strata.power.policies.policy import parse
from strata.power.policies.records import (
    Policies,
    PolicyDetail,
    PolicySpec,
    PolicyView,
    SimulationSpec,
    SimulationView,
    SitePowerView,
)
from strata.power.policies.service import PolicyService
from strata.power.queue.records import QueueTold, QueueView
from strata.power.queue.service import PowerQueue
from strata.power.series.records import metric_named
from strata.power.telemetry.records import (
    CabinetsPower,
    NodePower,
    NodePowerPage,
    NodeSeries,
    PowerHistory,
    PowerSummary,
    SystemPower,
    Trouble,
)
from strata.power.telemetry.service import PowerService

JOB = "7"
POLICY = "night"
_NOTHING = Comparison(
    runs=0, average=None, joules_per_node=None, seconds=None, average_change=None, joules_change=None,
    seconds_change=None,
)  # fmt: skip
_SPREAD = Spread(least=1.0, average=2.0, most=3.0, deviation=0.5, least_node="n000", most_node="n001")
_BRIEF = JobBrief(
    job=JOB, apid="", user="ada", name="cfd", nodes=2, start=1.0, end=2.0, seconds=1.0, joules=200.0, known=1.0,
    average=100.0, peak=None,
)  # fmt: skip
_PART = PowerSummary(name="system", nodes=2, measured=1, now=100.0, least=90.0, average=None, most=110.0)

_SIMULATION = SimulationView(author="ada", time=1.0, nodes=1000, days=1.0, limit=2000.0, peak=1900.0)


class FakeMeasured:
    """Stands in for ``PowerService``."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade

    async def nodes(self, who: Principal, select: str, sort: str, limit: int, after: str) -> NodePowerPage:
        if sort not in ("", "power", "-power"):
            raise BadRequest("no order", where="sort")
        names = list(await self._facade.node_names(who, select))[:limit]
        values = {"energy": 1.0, "accel_power": None, "temperature": 40.0, "cap": 0.0}
        return NodePowerPage(items=tuple(NodePower(node=n, time=1.0, power=100.0, **values) for n in names))

    async def history(
        self,
        who: Principal,
        select: str,
        metric: str,
        start: float | None,
        end: float | None,
        step: float,
        *,
        each: bool = False,
    ) -> PowerHistory:
        names = list(await self._facade.node_names(who, select))
        start, end = _span(start, end)
        values = (100.0 * len(names), None)
        singles = [NodeSeries(node=n, values=(100.0, None), trouble=Trouble(gaps=1)) for n in names] if each else ()
        return PowerHistory(
            metric=metric, unit=metric_named(metric).unit, start=start, end=end, step=step or 1.0, nodes=len(names),
            times=(start, start + 1), values=values, counts=(len(names), 0), each=tuple(singles),
        )  # fmt: skip

    def samples(
        self, who: Principal, select: str, kind: str, metric: str, start: float | None, end: float | None, step: float
    ) -> AsyncIterator[bytes]:
        _span(start, end)

        async def pieces() -> AsyncIterator[bytes]:
            yield f"time,node,{metric}\n".encode() if kind == "csv" else b"PAR1"

        return pieces()

    async def system(self, who: Principal, start: float | None, end: float | None, step: float) -> SystemPower:
        start, end = _span(start, end)
        return SystemPower(start=start, end=end, step=step or 1.0, system=_PART, joules=1.0, known=0.5)

    async def cabinets(self, who: Principal, start: float | None, end: float | None, step: float) -> CabinetsPower:
        start, end = _span(start, end)
        return CabinetsPower(start=start, end=end, step=step or 1.0, items=(_PART,))


class FakeJobs:
    """Stands in for ``PowerJobs``."""

    async def tell(self, who: Principal, told: JobsTold) -> JobsTaken:
        for one in (*told.events, *told.runs):
            if one.nodes:
                expand(one.nodes)
        return JobsTaken(taken=len(told.events) + len(told.runs), refused=(), unknown_nodes=0)

    async def jobs(
        self, who: Principal, user: str, since: float | None, limit: int, *, running: bool = False
    ) -> JobBriefs:
        return JobBriefs(items=(_BRIEF,))

    async def job(self, who: Principal, job: str, apid: str) -> JobPower:
        if job != JOB:
            raise NotFound("nobody told of it", where="job")
        return JobPower(
            job=job, apid=apid, user="ada", name="cfd", nodeset="n[000-001]", nodes=2, start=1.0, end=None, runs=1,
            seconds=1.0, suspended=0.0, joules=200.0, known=1.0, error=1.0, average=None, peak=None, drawn=(),
            allocated=None, energy=_SPREAD, power=_SPREAD, highest=_SPREAD, unmeasured=0,
            trouble=Trouble(), doubt="", each=(),
            applications=(_BRIEF,), earlier=_NOTHING,
        )  # fmt: skip


class FakePolicies:
    """Stands in for ``PolicyService``."""

    def __init__(self) -> None:
        self.texts = {POLICY: "limit: 2kW"}
        self.enabled = ""
        self.simulated_texts = {"limit: 2kW"}

    async def policies(self, who: Principal) -> Policies:
        site = SitePowerView(
            limit=2000.0, ramp=None, band=None, policy=self.enabled, controller="test", static=0.0, allowed=100.0,
            over=0.0, in_flight=0, error="",
        )  # fmt: skip
        views = [await self.policy(who, name) for name in sorted(self.texts)]
        items = [PolicyView(**{n: getattr(one, n) for n in PolicyView.__struct_fields__}) for one in views]
        return Policies(items=tuple(items), site=site)

    async def policy(self, who: Principal, name: str) -> PolicyDetail:
        if name not in self.texts:
            raise NotFound("no such power policy", where="policy")
        text = self.texts[name]
        return PolicyDetail(
            name=name, doc="", enabled=name == self.enabled, limit=2000.0, author="ada", time=1.0, digest="0" * 64,
            simulated=_SIMULATION if text in self.simulated_texts else None, unsimulated="", text=text,
        )  # fmt: skip

    async def put(self, who: Principal, name: str, spec: PolicySpec) -> PolicyDetail:
        parse(spec.text, source=name)
        if spec.text not in self.simulated_texts and not spec.without_simulation:
            raise Refused("this content was not simulated", by="simulation", where=name)
        self.texts[name] = spec.text
        return await self.policy(who, name)

    async def enable(self, who: Principal, name: str) -> PolicyDetail:
        await self.policy(who, name)
        self.enabled = name
        return await self.policy(who, name)

    async def disable(self, who: Principal, name: str) -> PolicyDetail:
        await self.policy(who, name)
        self.enabled = ""
        return await self.policy(who, name)

    async def delete(self, who: Principal, name: str) -> None:
        await self.policy(who, name)
        if name == self.enabled:
            raise Conflict("it runs", where=name)
        del self.texts[name]

    async def note_simulation(self, who: Principal, spec: SimulationSpec) -> SimulationView:
        parse(spec.text, source="text")
        self.simulated_texts.add(spec.text)
        return _SIMULATION


class FakeQueue:
    """Stands in for ``PowerQueue``."""

    def __init__(self) -> None:
        self.view = QueueView(time=None, author="", good_until=None, fresh=False, waiting=(), running=())

    async def tell(self, who: Principal, told: QueueTold) -> QueueView:
        self.view = QueueView(
            time=1.0, author=who.name, good_until=1.0 + told.good_for, fresh=True,
            waiting=told.waiting, running=told.running,
        )  # fmt: skip
        return self.view

    async def queue(self, who: Principal) -> QueueView:
        return self.view


def fake_power(facade: Any) -> dict[type[Any], Any]:
    """All of it, by type."""
    return {
        PowerService: FakeMeasured(facade),
        PowerJobs: FakeJobs(),
        PolicyService: FakePolicies(),
        PowerQueue: FakeQueue(),
    }


def _span(start: float | None, end: float | None) -> tuple[float, float]:
    end = 100.0 if end is None else end
    start = end - 10 if start is None else start
    if not start < end:
        raise BadRequest("it ends before it begins", where="start")
    return start, end
