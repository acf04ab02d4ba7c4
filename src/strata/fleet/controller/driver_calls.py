"""Runs drivers' calls: a few batches of each driver at a time, the urgent ones first, none for ever.

Results go back as inputs of the engine. What a driver raises becomes what the seam says it means (see
``strata.core.driver.Driver``); nothing a driver does can stop the controller.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np

from strata.core.driver import Batch, Driver, Outcomes
from strata.core.model import Guard, Mutation
from strata.core.redact import redact
from strata.core.state import Outcome
from strata.engine.effects import Answered, Done, Input, Seen
from strata.engine.table import Mask
from strata.fleet.metrics import Metrics
from strata.fleet.tasks import all_cancelled, beside

log = logging.getLogger(__name__)

KEPT_FREE = 2
"""Of the calls that a driver may have under way, how many are never given to routine looks: a wish must not wait until
a sweep lets go."""

_SLACK = 5.0  # a driver keeps its own time limit; this is for one that does not


class DriverCalls:
    """Carries out looks, asks and acts. ``deliver`` takes each result, in the loop's thread."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        deliver: Callable[[Input], None],
        *,
        at_once: int,
        look_timeout: float,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._drivers = dict(drivers)
        self._deliver = deliver
        self._at_once = at_once
        self._look_timeout = look_timeout
        self._metrics = metrics
        self._clock = clock
        self._queues: dict[str, list[tuple[int, int, Callable[[], Awaitable[None]]]]] = {}
        self._running: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sequence = 0

    @property
    def waiting(self) -> int:
        """Calls that have not begun yet."""
        return sum(len(queue) for queue in self._queues.values())

    @property
    def running(self) -> int:
        """Calls under way."""
        return len(self._tasks)

    def add(self, driver: Driver) -> None:
        """One more driver, by the name that the model calls it by."""
        self._drivers[driver.name] = driver

    def get(self, name: str) -> Driver | None:
        """The driver of that name, if there is one."""
        return self._drivers.get(name)

    def look(self, look: int, driver: str, variables: Sequence[str], batch: Batch, urgency: int) -> None:
        """Observe, and deliver ``Seen``."""

        async def call() -> None:
            detail, begun = "", self._clock()
            try:
                async with asyncio.timeout(self._look_timeout):
                    columns = await self._driver(driver).observe(variables, batch)
                short = [name for name, column in columns.items() if len(column) != len(batch)]
                if short:
                    raise ValueError(f"{len(batch)} nodes were asked about, {short[0]} came back for another number")
            except Exception as error:
                columns, detail = {}, self._said(error)
                log.warning("look failed", extra={"driver": driver, "nodes": len(batch), "error": detail})
            self._count(driver, "observe", begun, {"failed" if detail else "done": len(batch)})
            self._deliver(Seen(look, columns, detail))

        self._submit(driver, urgency, call)

    def ask(self, ask: int, guard: Guard, batch: Batch) -> None:
        """Put a guard's question, and deliver ``Answered``. No answer is a no."""

        async def call() -> None:
            self._deliver(Answered(ask, await self.permits(guard, batch)))

        self._submit(guard.driver, 0, call)

    async def permits(self, guard: Guard, batch: Batch) -> Sequence[str]:
        """A guard's answers: empty for yes, else why not. No answer is a no."""
        begun = self._clock()
        try:
            async with asyncio.timeout(self._look_timeout):
                refusals = await self._driver(guard.driver).permits(guard.name, batch)
            if len(refusals) != len(batch):
                raise ValueError(f"{len(batch)} nodes were asked about, {len(refusals)} answers came")
        except Exception as error:
            refusals = [f"nobody could answer: {redact(self._said(error))}"] * len(batch)
            log.warning("guard not answered", extra={"guard": guard.name, "error": str(error)})
        no = sum(1 for refusal in refusals if refusal)
        self._count(guard.driver, guard.name, begun, {"yes": len(batch) - no, "no": no})
        return refusals

    def act(self, mutation: Mutation, batch: Batch, urgency: int, allowed: Callable[[], Mask]) -> None:
        """Carry out a mutation, and deliver ``Done``. An exception is an unknown outcome.

        ``allowed`` is asked at the last moment: whoever was braked since the decision is withheld.
        """

        async def call() -> None:
            begun = self._clock()
            may = allowed()
            outcomes = Outcomes.all(Outcome.WITHHELD, len(batch))
            if may.any():
                some = batch if may.all() else batch.take(np.flatnonzero(may))
                answer = await self._attempt(mutation, some)
                outcomes.codes[may] = answer.codes
                places = np.flatnonzero(may)
                outcomes.reasons = {int(places[place]): reason for place, reason in answer.reasons.items()}
            counts = np.bincount(outcomes.codes, minlength=len(Outcome))
            ends = {outcome.name.lower(): int(counts[outcome]) for outcome in Outcome if counts[outcome]}
            self._count(mutation.driver, mutation.name, begun, ends)
            self._deliver(Done(batch.generation, outcomes))

        self._submit(mutation.driver, urgency, call)

    async def _attempt(self, mutation: Mutation, batch: Batch) -> Outcomes:
        try:
            async with asyncio.timeout(mutation.timeout + _SLACK):
                outcomes = await self._driver(mutation.driver).act(mutation, batch)
            if len(outcomes.codes) != len(batch):
                raise ValueError(f"{len(batch)} nodes were sent, {len(outcomes.codes)} outcomes came back")
        except Exception as error:
            log.warning("act failed", extra={"mutation": mutation.name, "nodes": len(batch), "error": str(error)})
            return Outcomes.all(Outcome.UNKNOWN, len(batch), redact(str(error)) or type(error).__name__)
        # What a device says goes into history and in front of people; it may echo what it was sent.
        return Outcomes(outcomes.codes, {at: redact(reason) for at, reason in outcomes.reasons.items()})

    async def close(self) -> None:
        """Let go: what has not begun is dropped, what is under way is cancelled (its intent says what it was)."""
        self._queues.clear()
        await all_cancelled(self._tasks)

    def _count(self, driver: str, action: str, begun: float, ends: Mapping[str, int]) -> None:
        self._metrics.driver_call(driver, action, self._clock() - begun, ends)

    def _said(self, error: Exception) -> str:
        """What went wrong with a look or a question, in words."""
        if isinstance(error, TimeoutError) and not str(error):
            return f"no answer in {self._look_timeout:g} s"
        return str(error) or type(error).__name__

    def _driver(self, name: str) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            raise LookupError(f"no driver {name!r} runs here")
        return driver

    def _submit(self, driver: str, urgency: int, call: Callable[[], Awaitable[None]]) -> None:
        self._sequence += 1
        heapq.heappush(self._queues.setdefault(driver, []), (urgency, self._sequence, call))
        self._pump(driver)

    def _pump(self, driver: str) -> None:
        queue = self._queues.get(driver)
        while queue and self._running.get(driver, 0) < self._at_once - (KEPT_FREE if queue[0][0] > 0 else 0):
            _, _, call = heapq.heappop(queue)
            self._running[driver] = self._running.get(driver, 0) + 1
            beside(self._tasks, self._run(driver, call))

    async def _run(self, driver: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        finally:
            self._running[driver] -= 1
            self._pump(driver)
