"""Looks at the power of every node at a steady pace, and hands what was seen to the series and the columns.

How nodes are asked is a ``Source``'s: through their BMCs one by one (``bmcs``), or many in one
request (``BulkSource``). A sweep never waits for the slow: what comes later is kept with the time that it is of.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import DeviceError, Unavailable
from strata.fleet.controller.controller import Controller
from strata.fleet.nodes.batches import batch_of
from strata.fleet.recurring import Recurring
from strata.power.series.records import METRICS, Samples, Uids
from strata.power.series.series import Series
from strata.power.telemetry.columns import PowerColumns
from strata.power.telemetry.values import BOUNDS

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]


class CollectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often is looked. Times in seconds."""

    every: float = 10.0
    """Between two looks at a node."""
    every_many: float = 30.0
    """The same, for a fleet of more than ``many`` nodes."""
    many: int = 10_000
    jitter: float = 0.1
    """Of that time: a sweep begins so much later, at random, so that BMCs do not all hear from us in step."""

    def interval(self, nodes: int) -> float:
        """Seconds between two looks at each of so many nodes."""
        return self.every if nodes <= self.many else self.every_many


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to look at: sorted by uid, all of the same length. The same object for as long as nothing changed."""

    uids: Uids
    names: Sequence[str]
    bmcs: Sequence[str]

    def where(self, mask: npt.NDArray[np.bool_]) -> Nodes:
        kept = np.flatnonzero(mask).tolist()
        return Nodes(uids=self.uids[mask], names=[self.names[i] for i in kept], bmcs=[self.bmcs[i] for i in kept])


NOBODY = Nodes(uids=np.empty(0, dtype=np.int64), names=(), bmcs=())


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What some nodes showed at about one instant; NaN: not known. Uids are sorted, each once."""

    time: float
    """Of the first of them."""
    uids: Uids
    values: Mapping[str, Floats]
    """Metrics, and the names in ``values.BOUNDS``."""
    times: Floats | None = None
    """Of each node; None: all at ``time``."""


TOGETHER = 0.1
"""Seconds within which nodes are taken to have been seen at one instant, by the series: the watts between two readings
of a counter are then wrong by one part in a hundred at most. Whoever asks for the newest gets the time of each."""

NodeTold = tuple[float, int, Mapping[str, float]]
"""When one node told what."""


def looks_of(seen: Iterable[NodeTold]) -> list[Look]:
    """What single nodes told, as columns, for each part of a second in which anything was seen; of a node, its last."""
    parts: dict[int, dict[int, tuple[float, Mapping[str, float]]]] = {}
    for when, uid, values in seen:
        part = parts.setdefault(int(when / TOGETHER), {})
        before = part.get(uid)
        part[uid] = (when, values if before is None else {**before[1], **values})
    return [_look_of(part) for _, part in sorted(parts.items())]


def _look_of(part: Mapping[int, tuple[float, Mapping[str, float]]]) -> Look:
    uids = np.array(sorted(part), dtype=np.int64)
    told = [part[uid] for uid in uids.tolist()]
    names = {name for _, values in told for name in values}
    times = np.array([when for when, _ in told])
    columns = {name: np.array([values.get(name, np.nan) for _, values in told]) for name in names}
    return Look(time=float(times.min()), uids=uids, values=columns, times=times)


class Source(Protocol):
    """A way to ask nodes."""

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """Ask them, and return what is there after at most ``limit`` seconds; the rest comes with the next call."""
        ...

    async def close(self) -> None: ...


class ByAddress:
    """Asks one source for the nodes whose BMCs' addresses begin with ``prefix``, and another for the rest."""

    def __init__(self, prefix: str, there: Source, elsewhere: Source) -> None:
        self._prefix = prefix
        self._sources = (there, elsewhere)
        self._split: tuple[Nodes, tuple[Nodes, Nodes]] = (NOBODY, (NOBODY, NOBODY))

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        if self._split[0] is not nodes:
            here = np.array([bmc.startswith(self._prefix) for bmc in nodes.bmcs], dtype=np.bool_)
            self._split = (nodes, (nodes.where(here), nodes.where(~here)))
        asked = zip(self._sources, self._split[1], strict=True)
        found = await asyncio.gather(
            *(source.look(part, limit) for source, part in asked if len(part.uids)), return_exceptions=True
        )
        wrong = [one for one in found if isinstance(one, BaseException)]
        if wrong and len(wrong) == len(found):
            raise wrong[0]
        for one in wrong:  # what the other saw counts all the same
            log.error("power was not measured in one of two ways", extra={"reason": str(one)}, exc_info=one)
        return [look for looks in found if not isinstance(looks, BaseException) for look in looks]

    async def close(self) -> None:
        for source in self._sources:
            await source.close()


class Collector:
    """Sweeps over ``nodes()`` for as long as it runs. The series is the caller's to close, the source is not."""

    def __init__(
        self,
        nodes: Callable[[], Nodes],
        source: Source,
        series: Series,
        columns: PowerColumns,
        *,
        settings: CollectorSettings | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings or CollectorSettings()
        self.sweeps = 0
        """That have ended."""
        self.measured = 0
        """Nodes of the last sweep whose power is known."""
        self._nodes = nodes
        self._source = source
        self._series = series
        self._columns = columns
        self._told = told
        self._due = 0.0
        self._sweeps = Recurring("power collector", self._sweep, self._pause, trouble="power was not measured")
        self.start = self._sweeps.start

    @property
    def interval(self) -> float:
        """Seconds between two looks at a node, for the fleet as it is."""
        return self.settings.interval(len(self._nodes().uids))

    async def stop(self) -> None:
        """End, and let go of the source."""
        await self._sweeps.stop()
        await self._source.close()

    async def _sweep(self) -> None:
        if not self._due:  # controllers that start together do not begin together
            await asyncio.sleep(self.settings.jitter * self.interval * random.random())
            self._due = asyncio.get_running_loop().time()
        await self.sweep(0.8 * self.interval)

    def _pause(self) -> float:
        """Sweeps are an interval apart, whatever one takes, as far as it is no longer than that."""
        now, interval = asyncio.get_running_loop().time(), self.interval
        self._due = max(self._due + interval, now)
        return self._due - now + self.settings.jitter * interval * random.random()

    async def sweep(self, limit: float) -> None:
        """Look at every node once."""
        nodes = self._nodes()
        looks = await self._source.look(nodes, limit) if len(nodes.uids) else ()
        batch: list[Samples] = []
        self.measured = 0
        for look in looks:
            batch += self._take(look)
        if batch:
            await self._series.append(batch)
        self.sweeps += 1
        self._told()

    def _take(self, look: Look) -> list[Samples]:
        batch = []
        for name, values in look.values.items():
            known = np.isfinite(values)
            if not known.any():
                continue
            whole = bool(known.all())
            uids, told = (look.uids, values) if whole else (look.uids[known], values[known])
            if name in METRICS:
                batch.append(Samples(metric=name, time=look.time, uids=uids, values=told))
            times = np.full(len(uids), look.time) if look.times is None else look.times[known]
            self._note(name, times, uids, told)
        return batch

    def _note(self, name: str, times: Floats, uids: Uids, values: Floats) -> None:
        """The newest of what can be true, for those who ask what is so now."""
        column = BOUNDS.get(name, name)
        metric = METRICS.get(name)
        if metric is not None:
            true = (values >= metric.floor) & (values <= (np.inf if metric.counter else metric.ceiling))
            uids, values, times = uids[true], values[true], times[true]
        if name == "power":
            self.measured += len(uids)
        if column in ("power", "energy", "cap", "accel_cap"):
            self._columns.put(uids, **{column: values, f"{column}_time": times})
        elif column in BOUNDS.values():
            self._columns.put(uids, **{column: values})


Told = tuple[Sequence[str], Mapping[str, Floats]]
"""Names of nodes, and for each metric one value per name."""


class BulkSource:
    """Reads with ``ask``, which ``let_go`` closes, of the nodes whose BMCs' addresses begin with ``prefix``."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Told]],
        let_go: Callable[[], Awaitable[None]],
        *,
        prefix: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.prefix = prefix
        self._ask = ask
        self._let_go = let_go
        self._clock = clock
        self._nodes: Nodes | None = None
        self._names: Sequence[str] = ()
        self._places: tuple[Uids, Uids] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    async def close(self) -> None:
        await self._let_go()

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """One request for all of them."""
        asked = self._clock()
        try:
            async with asyncio.timeout(limit):
                names, values = await self._ask()
        except TimeoutError:
            raise Unavailable(f"no answer in {limit:g} s", where="the source of power readings") from None
        if any(len(column) != len(names) for column in values.values()):
            raise DeviceError("the source of power readings told of more nodes than it named")
        uids, places = self._where(nodes, names)
        now = (asked + self._clock()) / 2  # somewhere between the two it was measured
        return [Look(time=now, uids=uids, values={name: column[places] for name, column in values.items()})]

    def _where(self, nodes: Nodes, names: Sequence[str]) -> tuple[Uids, Uids]:
        """Uids of those asked for that were told of, and where; worked out anew only when either has changed."""
        if nodes is not self._nodes or names != self._names:
            place_of = {name: place for place, name in enumerate(names)}
            places = np.array([place_of.get(name, -1) for name in nodes.names], dtype=np.int64)
            told = places >= 0
            self._nodes, self._names, self._places = nodes, names, (nodes.uids[told], places[told])
        return self._places


def led_nodes(controller: Controller) -> Callable[[], Nodes]:
    """The nodes that this process looks after and that have a BMC; the same object while that is so."""
    kept: tuple[tuple[int, int, int], Nodes] = ((-1, 0, 0), NOBODY)

    def led() -> Nodes:
        nonlocal kept
        registry = controller.registry
        mine = registry.alive & (controller.engine.progress.epoch[: registry.size] > 0)
        # A node that is new or changed has the highest revision; one that is gone is one less.
        stamp = (int(registry.revisions.max(initial=0)), len(registry), hash(mine.tobytes()))
        if kept[0] != stamp:
            roster = registry.nodes
            here = [i for i in np.flatnonzero(mine).tolist() if (node := roster[i]) is not None and node.bmc]
            indices = np.array(here, dtype=np.int64)
            indices = indices[np.argsort(registry.uids[indices], kind="stable")]
            batch = batch_of(registry, indices)
            kept = (stamp, Nodes(uids=np.array(batch.uids, dtype=np.int64), names=batch.names, bmcs=batch.bmcs))
        return kept[1]

    return led
