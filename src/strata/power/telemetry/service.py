"""Requests about what the machine draws: nodes, histories, cabinets, the whole. Jobs are in ``service_power_jobs``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np

from strata.core.distinct import distinct
from strata.core.errors import BadRequest
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.machine.service import MachineService
from strata.power.series.records import Floats, Latest, Uids, metric_named
from strata.power.series.series import Series
from strata.power.telemetry.export import export
from strata.power.telemetry.gauges import drawing
from strata.power.telemetry.records import (
    CabinetsPower,
    MachineMeasured,
    NodePower,
    NodePowerPage,
    NodeSeries,
    PowerHistory,
    SystemPower,
    Trouble,
)
from strata.power.telemetry.sums import by_group, places, spread_out, steps, summary, trouble, whole, whole_sums

EACH_AT_MOST = 1000
"""Nodes whose own histories one answer holds."""
POINTS = 240
"""In a history, where nobody says how long a step is."""
POINTS_AT_MOST = 100_000
CELLS_AT_MOST = 2_000_000
"""Values of single nodes in one answer."""
KEPT_SAMPLES, KEPT = 7 * 86_400.0, 20 * 366 * 86_400.0
"""Seconds for which samples, and summaries of them, are kept at most."""
RECENT = 300.0
"""Seconds that the figures of cabinets and of the system are about, where nobody says."""

SORTS = ("power", "energy", "accel_power", "temperature", "cap")
_METRICS = {"power": "power", "energy": "energy", "accel_power": "accel-power", "temperature": "temperature"}


class PowerService:
    """Answers from ``series``. ``interval``: seconds between two looks at a node, as it is now."""

    def __init__(self, nodes: Fleet, series: Series, interval: Callable[[], float]) -> None:
        self._nodes = nodes
        self._series = series
        self._interval = interval
        self._now = nodes.controller.clock.wall

    @property
    def fresh(self) -> float:
        """Seconds after which a value says nothing of now: three looks that were missed."""
        return 3 * self._interval() + 5

    async def nodes(
        self, who: Principal, select: str = "*", sort: str = "", limit: int = 1000, after: str = ""
    ) -> NodePowerPage:
        """What the selected nodes draw now: as last measured, and nothing where that is too long ago."""
        chosen = self._nodes.seen(who, select)
        column = sort.removeprefix("-")
        if sort and column not in SORTS:
            raise BadRequest(f"{sort[:40]!r} is no order", where="sort", hint=f"one of {', '.join(SORTS)}, or -power")
        if sort and after:
            raise BadRequest("only a list by name has a next page", where="cursor", hint="raise the limit")
        following = None
        if sort:
            values = await self._latest(column.replace("_", "-"), chosen)
            order = np.argsort(-values.values if sort.startswith("-") else values.values, kind="stable")
            chosen = chosen[order][: min(limit, int(np.isfinite(values.values).sum()))]
        else:
            chosen, following = self._nodes.view.page(self._nodes.view.order(chosen, "name"), after, limit)
        found = {name: await self._latest(metric, chosen) for name, metric in _METRICS.items()}
        # A cap stays until somebody changes it; it is looked at with the rest, and old news of it are still news.
        found["cap"] = await self._latest("cap", chosen)
        times = np.stack([one.times for one in found.values()])
        newest = np.where(np.isnan(times).all(axis=0), np.nan, np.nanmax(np.nan_to_num(times, nan=-1.0), axis=0))
        rows = zip(
            self._nodes.view.names(chosen),
            _known(newest),
            *(_known(found[name].values) for name in ("power", "energy", "accel_power", "temperature", "cap")),
            strict=True,
        )
        return NodePowerPage(
            items=tuple(
                NodePower(node=n, time=t, power=p, energy=e, accel_power=a, temperature=h, cap=c)
                for n, t, p, e, a, h, c in rows
            ),
            next=following or "",
        )

    async def machine(self, who: Principal, metric: str = "power") -> MachineMeasured:
        """A metric of all nodes at once, in the order of ``/v1/machine``: what a picture of the machine is coloured
        by."""
        machine = self._nodes.of(MachineService).places(who)
        found = await self._latest(metric, machine.nodes)
        values = np.round(found.values, 1).tolist()
        return MachineMeasured(
            roster=machine.roster,
            metric=metric,
            unit=metric_named(metric).unit,
            values=tuple(None if value != value else value for value in values),
        )

    async def history(
        self,
        who: Principal,
        select: str = "*",
        metric: str = "power",
        start: float | None = None,
        end: float | None = None,
        step: float = 0.0,
        *,
        each: bool = False,
    ) -> PowerHistory:
        """A metric of the selected nodes over time; by default their power in the last hour."""
        known = metric_named(metric)
        chosen = self._summed(who) if select == "*" else self._nodes.seen(who, select)
        start, end = self._span(start, end, 3600.0)
        step = self._step(start, end, step)
        if known.counter and not each:
            raise BadRequest(
                "counters of several nodes cannot be added up", where="metric", hint="ask for power, or for each"
            )
        singles: tuple[NodeSeries, ...] = ()
        if each:
            if len(chosen) > EACH_AT_MOST or len(chosen) * (end - start) / step > CELLS_AT_MOST:
                raise BadRequest(
                    f"{len(chosen)} nodes in steps of {step:g} s are too much for one answer",
                    where="each",
                    hint="fewer nodes, a shorter time or longer steps",
                )
            singles = await self._singles(chosen, metric, start, end, step)
        times = steps(start, end, step)
        values, counts = np.full(len(times), np.nan), np.zeros(len(times), dtype=np.int64)
        if known.counter:
            for one in singles:
                counts += [value is not None for value in one.values]
        else:
            total = await self._series.total(metric, self._sorted(chosen)[0], start, end, step=step)
            sums = total.sums / np.maximum(total.counts, 1) if metric == "temperature" else total.sums
            at = places(times, total.times)
            counts[at] = total.counts
            values = spread_out(len(times), at, np.where(total.counts > 0, sums, np.nan))
        return PowerHistory(
            metric=metric,
            unit=known.unit,
            start=start,
            end=end,
            step=step,
            nodes=len(chosen),
            times=tuple(times.tolist()),
            values=tuple(_known(values)),
            counts=tuple(counts.tolist()),
            each=singles,
        )

    def samples(
        self, who: Principal, select: str, kind: str, metric: str, start: float | None, end: float | None, step: float
    ) -> AsyncIterator[bytes]:
        """Every node's samples (or with a step their means) as a file, piece by piece."""
        chosen = self._nodes.seen(who, select)
        start, end = self._span(start, end, 3600.0)
        if step and step != whole(step):
            raise BadRequest("steps are whole seconds, above a minute whole minutes", where="step")
        metric_named(metric)
        # Where nothing can be, nothing is looked for.
        kept = KEPT_SAMPLES if step < 60 else KEPT
        start, end = max(start, self._now() - kept), min(end, self._now() + 60)
        names = self._nodes.view.names(chosen)
        nodes = dict(zip(self._nodes.registry.uids[chosen].tolist(), names, strict=True))
        return export(self._series, kind, metric, nodes, start, end, step=step)

    async def _singles(
        self, chosen: Indices, metric: str, start: float, end: float, step: float
    ) -> tuple[NodeSeries, ...]:
        uids, order = self._sorted(chosen)
        window = await self._series.window(metric, uids, start, end, step=step)
        at = {uid: place for place, uid in enumerate(window.uids.tolist())}
        times = steps(start, end, step)
        rows = places(times, window.times)
        nothing = (None,) * len(times)
        found = []
        for index, uid in zip(order.tolist(), uids.tolist(), strict=True):
            place = at.get(uid)
            found.append(
                NodeSeries(
                    node=self._nodes.registry.names[index],
                    values=nothing
                    if place is None
                    else tuple(_known(spread_out(len(times), rows, window.values[:, place]))),
                    trouble=Trouble() if place is None else trouble(window.flags, place),
                )
            )
        return tuple(sorted(found, key=lambda one: one.node))

    async def system(
        self, who: Principal, start: float | None = None, end: float | None = None, step: float = 0.0
    ) -> SystemPower:
        """What all nodes draw together: now, and over a time (by default five minutes)."""
        chosen = self._summed(who)
        start, end = self._span(start, end, RECENT)
        step = whole(max(self._step(start, end, step), self._interval()))
        asked, _ = self._sorted(chosen)
        total = await self._series.total("power", asked, start, end, step=step)
        latest, caps = await self._latest("power", chosen), await self._latest("cap", chosen)
        energy = await self._series.energy(asked, start, end)
        known = float(energy.known.sum()) / len(chosen) if len(chosen) else 0.0
        return SystemPower(
            start=start,
            end=end,
            step=step,
            system=summary("system", latest.values, caps.values, whole_sums(total.sums, total.counts)),
            joules=float(np.nansum(energy.joules)),
            known=min(1.0, known),
        )

    async def cabinets(
        self, who: Principal, start: float | None = None, end: float | None = None, step: float = 0.0
    ) -> CabinetsPower:
        """What the nodes of each cabinet draw: now, and over a time (by default five minutes)."""
        chosen = self._summed(who)
        start, end = self._span(start, end, RECENT)
        step = whole(max(self._step(start, end, step), self._interval(), (end - start) / 60))
        uids, order = self._sorted(chosen)
        window = await self._series.window("power", uids, start, end, step=step)
        latest, caps = await self._latest("power", order), await self._latest("cap", order)
        words = self._nodes.registry.location("cabinet")
        codes = words.codes[order]
        groups = codes[np.searchsorted(uids, window.uids)]
        sums = await asyncio.to_thread(by_group, window.values, groups, len(words.table))
        items = [
            summary(words.table[code], latest.values[here], caps.values[here], sums[:, code])
            for code in distinct(codes).tolist()
            for here in [codes == code]
        ]
        return CabinetsPower(start=start, end=end, step=step, items=tuple(sorted(items, key=lambda one: one.name)))

    # -- helpers

    def _span(self, start: float | None, end: float | None, length: float) -> tuple[float, float]:
        end = self._now() if end is None else end
        start = end - length if start is None else start
        if not start < end:
            raise BadRequest("it ends before it begins", where="start", hint="start is a time before end")
        return start, end

    def _step(self, start: float, end: float, step: float) -> float:
        if not step:
            step = whole(max(self._interval(), (end - start) / POINTS))
        if (end - start) / step > POINTS_AT_MOST:
            raise BadRequest(f"more than {POINTS_AT_MOST} points", where="step", hint="longer steps or a shorter time")
        return step

    def _sorted(self, chosen: Indices) -> tuple[Uids, Indices]:
        """Uids in ascending order, and the indices that they are of."""
        uids = self._nodes.registry.uids[chosen]
        order = np.argsort(uids, kind="stable")
        return uids[order], chosen[order]

    def _summed(self, who: Principal) -> Indices:
        """All that draw power, without what only passes it on: that would count twice."""
        return drawing(self._nodes.registry, self._nodes.seen(who, "*"))

    async def _latest(self, metric: str, chosen: Indices) -> Latest:
        """One value for each of ``chosen``, in their order."""
        uids = self._nodes.registry.uids[chosen]
        if not len(uids):
            return Latest(uids=uids, times=np.empty(0), values=np.empty(0))
        ordered = np.sort(uids)
        found = await self._series.latest(metric, ordered, self.fresh)
        values, times = np.full(len(ordered), np.nan), np.full(len(ordered), np.nan)
        place = np.searchsorted(ordered, found.uids)
        values[place], times[place] = found.values, found.times
        back = np.searchsorted(ordered, uids)
        return Latest(uids=uids, times=times[back], values=values[back])


def _known(values: Floats) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    rounded = np.round(values.astype(np.float64), 3).tolist()
    return [None if value != value else value for value in rounded]
