"""One connected workload manager: what it says of all nodes, asked once for everybody who wants to know.

``recent`` is for facts; ``now`` is for guards: what it gives was asked after the question was put.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.core.nodeset import expand
from strata.fleet.tasks import all_cancelled, beside
from strata.platform.workload.records import Place, WorkloadSpec
from strata.schedulers.protocol import UNSEEN_JOB, NodeSeen, Scheduler

RECENT = 5.0
"""Seconds for which an answer is as good as a new one where nothing is at stake."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of a cluster, by the names that it has for them."""

    began: float
    """On the monotonic clock: it saw the world no earlier than this."""
    nodes: Mapping[str, NodeSeen]


class Cluster:
    """``scheduler`` under our names. At most one look is under way."""

    def __init__(self, name: str, spec: WorkloadSpec, scheduler: Scheduler, *, clock: Callable[[], float]) -> None:
        self.name = name
        self.kind = spec.kind
        self.last: Look | None = None
        """The last answer."""
        self.trouble = ""
        """Why the last look brought none; empty: it did."""
        self._scheduler = scheduler
        self._clock = clock
        self._called = called(spec.names)
        self._own = {theirs: ours for ours, theirs in self._called.items()}
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[Look] | None = None
        self._looks: set[asyncio.Task[Look]] = set()
        self._stale = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def called(self, node: str) -> str:
        """What the workload manager calls one of our nodes."""
        return self._called.get(node, node)

    def own(self, theirs: str) -> str:
        """What we call a node of its."""
        return self._own.get(theirs, theirs)

    async def recent(self) -> Look:
        """What it said within the last seconds, and since we last told it anything."""
        last = self.last
        if last is not None and last.began > max(self._stale, self._clock() - RECENT) and not self.trouble:
            return last
        return await self.now()

    async def now(self) -> Look:
        """What it says to a question that is put no earlier than this call. Raises what the adapter raises."""
        if self._next is None:
            self._next = beside(self._looks, self._look(), name=f"look at {self}")
            self._next.add_done_callback(_looked)
        looking = self._next
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            if not looking.cancelled():
                raise  # whoever asked has gone
            raise Unavailable("its connection was changed", where=str(self), hint="ask again") from None

    async def drain(self, names: Sequence[str], reason: str) -> None:
        """Have no more jobs started there. Names are the workload manager's."""
        await self._scheduler.drain(names, reason)
        self._stale = self._clock()

    async def resume(self, names: Sequence[str]) -> None:
        """Have jobs started there again. Names are the workload manager's."""
        await self._scheduler.resume(names)
        self._stale = self._clock()

    async def close(self) -> None:
        """End the looks that are under way."""
        await all_cancelled(self._looks)

    async def _look(self) -> Look:
        async with self._one_at_a_time:
            # From here on it is under way: whoever asks now has to wait for the next one.
            self._next = None
            began = self._clock()
            try:
                found = Look(began=began, nodes=await self._scheduler.look())
            except StrataError as error:
                self.trouble = str(error)
                raise
            self.last, self.trouble = found, ""
            return found


def _looked(task: asyncio.Task[Look]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waited for it has it; perhaps nobody does any more


def called(names: Mapping[str, str]) -> dict[str, str]:
    """Our name → the workload manager's, from nodesets of both. Raises ``BadRequest``."""
    found: dict[str, str] = {}
    for ours, theirs in names.items():
        left, right = expand(ours), expand(theirs)
        if len(left) != len(right):
            told = f"{ours[:60]} is {len(left)} nodes, {theirs[:60]} is {len(right)}"
            raise BadRequest(told, where="names", hint="both sides are nodesets of the same size")
        found.update(zip(left, right, strict=True))
    if len(set(found.values())) != len(found):
        raise BadRequest("two nodes have the same name there", where="names")
    return found


def place(seen: NodeSeen | None) -> Place:
    """Whose a node is. One that the workload manager does not know is not its."""
    if seen is None:
        return "out"
    if seen.jobs:
        return "in"
    if not seen.understood:
        return "unknown"
    return "out" if seen.drained or seen.boots_first else "in"


def jobs_in_words(jobs: Sequence[str]) -> str:
    """``job 17 runs there``, of one or more."""
    known = [job for job in jobs if job != UNSEEN_JOB]
    if not known:
        return "a job runs there"
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return f"job{'s' if len(known) > 1 else ''} {', '.join(known[:3])}{more} run{'' if len(known) > 1 else 's'} there"
