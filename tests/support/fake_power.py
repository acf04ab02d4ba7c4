"""A power layer that behaves, in memory: every node draws 100 W, and one job ran."""

from __future__ import annotations

from strata.api.services import Power
from strata.control import power_views as pv
from strata.control.facade import Facade
from strata.control.principal import Principal
from strata.core.errors import BadRequest, NotFound
from strata.core.nodeset import expand
from strata.power.series import metric_named

JOB = "7"
_NOTHING = pv.Comparison(
    runs=0, average=None, joules_per_node=None, seconds=None, average_change=None, joules_change=None,
    seconds_change=None,
)  # fmt: skip
_SPREAD = pv.Spread(least=1.0, average=2.0, most=3.0, deviation=0.5, least_node="n000", most_node="n001")
_BRIEF = pv.JobBrief(
    job=JOB, apid="", user="ada", name="cfd", nodes=2, start=1.0, end=2.0, seconds=1.0, joules=200.0, known=1.0,
    average=100.0, peak=None,
)  # fmt: skip
_PART = pv.PowerSummary(name="system", nodes=2, measured=1, now=100.0, least=90.0, average=None, most=110.0)


class FakeMeasured:
    """Stands in for ``PowerService``."""

    def __init__(self, facade: Facade) -> None:
        self._facade = facade

    async def nodes(self, who: Principal, select: str, sort: str, limit: int, after: str) -> pv.NodePowerPage:
        if sort not in ("", "power", "-power"):
            raise BadRequest("no order", where="sort")
        names = list(await self._facade.node_names(who, select))[:limit]
        values = {"energy": 1.0, "accel_power": None, "temperature": 40.0, "cap": 0.0}
        return pv.NodePowerPage(items=tuple(pv.NodePower(node=n, time=1.0, power=100.0, **values) for n in names))

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
    ) -> pv.PowerHistory:
        names = list(await self._facade.node_names(who, select))
        start, end = _span(start, end)
        values = (100.0 * len(names), None)
        singles = (
            [pv.NodeSeries(node=n, values=(100.0, None), trouble=pv.Trouble(gaps=1)) for n in names] if each else ()
        )
        return pv.PowerHistory(
            metric=metric, unit=metric_named(metric).unit, start=start, end=end, step=step or 1.0, nodes=len(names),
            times=(start, start + 1), values=values, counts=(len(names), 0), each=tuple(singles),
        )  # fmt: skip

    async def system(self, who: Principal, start: float | None, end: float | None, step: float) -> pv.SystemPower:
        start, end = _span(start, end)
        return pv.SystemPower(start=start, end=end, step=step or 1.0, system=_PART, joules=1.0, known=0.5)

    async def cabinets(self, who: Principal, start: float | None, end: float | None, step: float) -> pv.CabinetsPower:
        start, end = _span(start, end)
        return pv.CabinetsPower(start=start, end=end, step=step or 1.0, items=(_PART,))


class FakeJobs:
    """Stands in for ``PowerJobs``."""

    async def tell(self, who: Principal, told: pv.JobsTold) -> pv.JobsTaken:
        for one in (*told.events, *told.runs):
            if one.nodes:
                expand(one.nodes)
        return pv.JobsTaken(taken=len(told.events) + len(told.runs), refused=(), unknown_nodes=0)

    async def jobs(
        self, who: Principal, user: str, since: float | None, limit: int, *, running: bool = False
    ) -> pv.JobBriefs:
        return pv.JobBriefs(items=(_BRIEF,))

    async def job(self, who: Principal, job: str, apid: str) -> pv.JobPower:
        if job != JOB:
            raise NotFound("nobody told of it", where="job")
        return pv.JobPower(
            job=job, apid=apid, user="ada", name="cfd", nodeset="n[000-001]", nodes=2, start=1.0, end=None, runs=1,
            seconds=1.0, suspended=0.0, joules=200.0, known=1.0, error=1.0, average=None, peak=None, energy=_SPREAD,
            power=_SPREAD, highest=_SPREAD, unmeasured=0, trouble=pv.Trouble(), doubt="", each=(),
            applications=(_BRIEF,), earlier=_NOTHING,
        )  # fmt: skip


def fake_power(facade: Facade) -> Power:
    """All of it."""
    return Power(measured=FakeMeasured(facade), jobs=FakeJobs())  # type: ignore[arg-type]


def _span(start: float | None, end: float | None) -> tuple[float, float]:
    end = 100.0 if end is None else end
    start = end - 10 if start is None else start
    if not start < end:
        raise BadRequest("it ends before it begins", where="start")
    return start, end
