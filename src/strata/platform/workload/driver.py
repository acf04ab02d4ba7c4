"""Driver ``workload``: facts, drains and the guard ``no-running-job``, asked of the connected workload managers.

The order in which a node changes hands is drain, ask, act. A job can only begin on a node that is not drained, so one
that is drained when it is asked about, and has no job then, stays without one for as long as the drain stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import DeviceError, StrataError
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.platform.no_workload import NoWorkload
from strata.platform.workload.cluster import Cluster, Look, jobs_in_words, place
from strata.platform.workload.records import Place

Looks = Mapping[Cluster, Look | StrataError]


class WorkloadDriver:
    """Implements ``strata.core.driver.Driver`` over all of ``clusters``; ``nobody`` answers where there is none.

    ``why`` says of a node that is about to be drained what for."""

    name = NoWorkload.name

    def __init__(
        self,
        clusters: Callable[[], Sequence[Cluster]],
        nobody: NoWorkload,
        *,
        why: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clusters = clusters
        self._nobody = nobody
        self._why = why
        self._clock = clock
        self._acted: dict[str, float] = {}

    # -- looking

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """Whose the nodes are. What was asked a few seconds ago is good enough here."""
        clusters = self._clusters()
        if not clusters:
            return await self._nobody.observe(variables, batch)
        looks = await gathered(clusters, Cluster.recent)
        return {"workload": column(looks, batch.names)} if "workload" in variables else {}

    def told_since(self, began: float) -> set[str]:
        """Nodes of which a look that began then cannot tell how they are now: something was done to them since."""
        self._acted = {name: at for name, at in self._acted.items() if at >= began}
        return set(self._acted)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """``no-running-job``: asked of every workload manager at this moment. No answer is a no."""
        clusters = self._clusters()
        if guard != "no-running-job" or not clusters:
            return await self._nobody.permits(guard, batch)
        looks = await gathered(clusters, Cluster.now)
        return [_refusal(looks, name) for name in batch.names]

    # -- acting

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Drain, or resume what is ours. That the last job has ended is for looks to see."""
        steps = {"leave-workload": self._leave, "join-workload": self._join}
        clusters = self._clusters()
        if mutation.name not in steps or not clusters:
            return await self._nobody.act(mutation, batch)
        looks = await gathered(clusters, Cluster.now)
        result = _Result(batch)
        for cluster, look in looks.items():
            if isinstance(look, StrataError):
                # It may know the nodes or not: nobody can say what is left to do.
                result.add(batch.names, Outcome.UNKNOWN, f"{cluster} does not answer: {look}")
            else:
                await steps[mutation.name](cluster, look, batch, result)
        if mutation.name == "join-workload" and not any(isinstance(look, StrataError) for look in looks.values()):
            strange = [name for name in batch.names if not _known(looks, name)]
            result.add(strange, Outcome.UNTRIED, "no connected workload manager knows it")
        return result.outcomes()

    async def _leave(self, cluster: Cluster, look: Look, batch: Batch, result: _Result) -> None:
        alike: dict[str, list[str]] = {}
        for name in batch.names:
            seen = look.nodes.get(cluster.called(name))
            # Who has to boot first is out already; a drain would keep the workload manager from switching it on.
            if seen is not None and not seen.drained and not seen.boots_first:
                alike.setdefault(self._why(name), []).append(name)
        for why, names in alike.items():
            await self._tell(cluster, names, batch, result, partial(cluster.drain, reason=why))

    async def _join(self, cluster: Cluster, look: Look, batch: Batch, result: _Result) -> None:
        ours: list[str] = []
        for name in batch.names:
            seen = look.nodes.get(cluster.called(name))
            if seen is None or not seen.drained:
                continue
            if seen.ours:
                ours.append(name)
            else:
                by, why = seen.by or "somebody", seen.reason or "no reason is given"
                result.add([name], Outcome.UNTRIED, f"{by} drained it in {cluster} ({why}): only people resume that")
        await self._tell(cluster, ours, batch, result, cluster.resume)

    async def _tell(
        self,
        cluster: Cluster,
        names: Sequence[str],
        batch: Batch,
        result: _Result,
        command: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        if not names:
            return
        if self._clock() > batch.valid_until:
            result.add(
                names, Outcome.FENCED, "this controller stopped leading the node before the workload manager was told"
            )
            return
        try:
            await command([cluster.called(name) for name in names])
        except DeviceError as error:
            result.add(names, Outcome.FAILED, f"{cluster} refused: {error.detail}")
        except StrataError as error:
            result.add(names, Outcome.UNKNOWN, f"{cluster}: {error}")
        self._acted.update(dict.fromkeys(names, self._clock()))


class _Result:
    """Outcomes of a batch, node by node; the worst that was said of a node counts."""

    _WORST = (Outcome.DONE, Outcome.UNTRIED, Outcome.FAILED, Outcome.UNKNOWN, Outcome.FENCED)

    def __init__(self, batch: Batch) -> None:
        self._at = {name: position for position, name in enumerate(batch.names)}
        self._said: dict[int, tuple[Outcome, str]] = {}

    def add(self, names: Iterable[str], outcome: Outcome, reason: str) -> None:
        for name in names:
            before = self._said.get(self._at[name], (Outcome.DONE, ""))[0]
            if self._WORST.index(outcome) > self._WORST.index(before):
                self._said[self._at[name]] = outcome, reason

    def outcomes(self) -> Outcomes:
        codes = np.full(len(self._at), Outcome.DONE, dtype=np.int8)
        for position, (outcome, _) in self._said.items():
            codes[position] = outcome
        return Outcomes(codes, {position: reason for position, (_, reason) in self._said.items()})


async def gathered(clusters: Sequence[Cluster], ask: Callable[[Cluster], Awaitable[Look]]) -> Looks:
    """What each says, or why it says nothing."""

    async def one(cluster: Cluster) -> Look | StrataError:
        try:
            return await ask(cluster)
        except StrataError as error:
            return error

    found = await asyncio.gather(*(one(cluster) for cluster in clusters))
    return dict(zip(clusters, found, strict=True))


def column(looks: Looks, names: Sequence[str]) -> Column:
    """Whose each node is, as far as the workload managers say."""
    places = [_place(looks, name) for name in names]
    failed = {cluster: look for cluster, look in looks.items() if isinstance(look, StrataError)}
    silent = "; ".join(f"{cluster} does not answer: {error}" for cluster, error in failed.items())
    made = Column.of(places)
    if silent:
        made.reasons = {at: silent for at, where in enumerate(places) if where == "unknown"}
    return made


def occupied(looks: Looks, names: Sequence[str]) -> list[bool]:
    """Whether a job is on each node."""
    jobs = [
        {theirs for theirs, seen in look.nodes.items() if seen.jobs} if isinstance(look, Look) else frozenset[str]()
        for look in looks.values()
    ]
    return [any(cluster.called(name) in busy for cluster, busy in zip(looks, jobs, strict=True)) for name in names]


def _known(looks: Looks, name: str) -> bool:
    return any(isinstance(look, Look) and cluster.called(name) in look.nodes for cluster, look in looks.items())


def _place(looks: Looks, name: str) -> Place:
    """In, if it is for any of them; out, if it is for all."""
    found: set[Place] = {
        place(look.nodes.get(cluster.called(name))) if isinstance(look, Look) else "unknown"
        for cluster, look in looks.items()
    }
    return "in" if "in" in found else "unknown" if "unknown" in found else "out"


def _refusal(looks: Looks, name: str) -> str:
    """Why a job could lose the node; empty: none can."""
    for cluster, look in looks.items():
        if isinstance(look, StrataError):
            return f"{cluster} does not answer: {look}"
        seen = look.nodes.get(cluster.called(name))
        if seen is None:
            continue
        if seen.jobs:
            return f"{jobs_in_words(seen.jobs)} ({cluster})"
        if not seen.understood:
            return f"{cluster} says {seen.state!r}, which can mean anything"
        if not (seen.drained or seen.down or seen.boots_first):
            return f"{cluster} may start a job there at any moment: set workload=out first"
    return ""
