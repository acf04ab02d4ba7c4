"""Looks at the power of every node at a steady pace, and hands what was seen to the series and the columns.

How nodes are asked is a ``Source``'s: through their controllers one by one (``collector_nodes``), or many in one
request (``collector_bulk``). A sweep never waits for the slow: what comes later is kept with the time that it is of.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import StrataError
from strata.power.collector_values import BOUNDS
from strata.power.columns import PowerColumns
from strata.power.series import METRICS, Samples, Series, Uids

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
    """Of that time: a sweep begins so much later, at random, so that controllers do not all hear from us in step."""

    def interval(self, nodes: int) -> float:
        """Seconds between two looks at each of so many nodes."""
        return self.every if nodes <= self.many else self.every_many


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to look at: sorted by uid, all of the same length. The same object for as long as nothing changed."""

    uids: Uids
    names: Sequence[str]
    bmcs: Sequence[str]

    def where(self, mask: npt.NDArray[np.bool_]) -> Nodes:
        """Some of them."""
        kept = np.flatnonzero(mask).tolist()
        return Nodes(uids=self.uids[mask], names=[self.names[i] for i in kept], bmcs=[self.bmcs[i] for i in kept])


NOBODY = Nodes(uids=np.empty(0, dtype=np.int64), names=(), bmcs=())


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What some nodes showed at one instant; NaN: not known. Uids are sorted, each once."""

    time: float
    uids: Uids
    values: Mapping[str, Floats]
    """Metrics, and the names in ``collector_values.BOUNDS``."""


class Source(Protocol):
    """A way to ask nodes."""

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """Ask them, and return what is there after at most ``limit`` seconds; the rest comes with the next call."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class ByAddress:
    """Asks one source for the nodes whose controllers' addresses begin with ``prefix``, and another for the rest."""

    def __init__(self, prefix: str, there: Source, elsewhere: Source) -> None:
        self._prefix = prefix
        self._sources = (there, elsewhere)
        self._split: tuple[Nodes, tuple[Nodes, Nodes]] = (NOBODY, (NOBODY, NOBODY))

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """Both at once."""
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
        """Both."""
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
        clock: Callable[[], float] = time.time,
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
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def interval(self) -> float:
        """Seconds between two looks at a node, for the fleet as it is."""
        return self.settings.interval(len(self._nodes().uids))

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="power collector")

    async def stop(self) -> None:
        """End, and let go of the source."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._source.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            interval = self.interval
            await asyncio.sleep(max(0.0, due - loop.time()) + self.settings.jitter * interval * random.random())
            try:
                await self.sweep(0.8 * interval)
            except StrataError as error:
                log.warning("power was not measured", extra={"reason": str(error)})
            except Exception:
                # A device's nonsense in one sweep must not end all that come after it.
                log.exception("a sweep over the power of nodes failed")
            due = max(due + interval, loop.time())

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
            self._note(name, look.time, uids, told)
        return batch

    def _note(self, name: str, time_: float, uids: Uids, values: Floats) -> None:
        """The newest of what can be true, for those who ask what is so now."""
        column = BOUNDS.get(name, name)
        metric = METRICS.get(name)
        if metric is not None:
            true = (values >= metric.floor) & (values <= (np.inf if metric.counter else metric.ceiling))
            uids, values = uids[true], values[true]
        if name == "power":
            self.measured += len(uids)
        if column in ("power", "energy", "cap", "accel_cap"):
            self._columns.put(uids, **{column: values, f"{column}_time": np.full(len(uids), time_)})
        elif column in BOUNDS.values():
            self._columns.put(uids, **{column: values})
