"""Where a job goes: which targets can run it, in which order they are tried, and why, in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, StrataError
from strata.jobs.settings import JobSettings
from strata.jobs.submission.ranking import Figures, weigh
from strata.jobs.submission.records import Considered, JobDocument
from strata.jobs.submission.targets import Target
from strata.schedulers.abilities import refusals
from strata.schedulers.choice import choose as best_queue
from strata.schedulers.jobs import Work

EXPECTED_WITHIN = 10.0
"""Seconds that a scheduler gets to say when a job would begin."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A target that can run a job."""

    target: Target
    queue: str | None
    why: str = ""
    """What spoke for the queue."""
    expected: float | None = None
    figures: Figures | None = None
    """None: there was nothing to compare it with."""

    def considered(self, why: str, *, taken: bool) -> Considered:
        """What is kept of it."""
        kept = Considered(target=self.target.name, taken=taken, why=why, queue=self.queue, expected=self.expected)
        return msgspec.structs.replace(kept, **self.figures.shown) if self.figures is not None else kept


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The targets that can run a job, the best first, and the others with what is against them."""

    candidates: Sequence[Candidate]
    refused: Sequence[Considered]
    fields: Mapping[str, str]
    """Target → the field of the document that it stumbled over."""

    def refusal(self) -> BadRequest:
        """For whoever asked, where nobody can."""
        # What the document stumbled over says more than that a target is not for it at all.
        telling = [one for one in self.refused if one.target in self.fields] or self.refused
        if len(telling) == 1:
            only = telling[0]
            return BadRequest(only.why, where=self.fields.get(only.target, "target"), hint=f"target {only.target}")
        if not self.refused:
            hint = "strata workload connect slurm; or jobs.local in the configuration file"
            return BadRequest("nothing here runs jobs", where="target", hint=hint)
        told = "; ".join(f"{one.target}: {one.why}" for one in telling)
        return BadRequest(f"no target takes it. {told}", where="target")


async def choose(
    targets: Sequence[Target],
    document: JobDocument,
    *,
    bound: Callable[[Target], str],
    work: Callable[[Target, str | None], Work],
    settings: JobSettings,
    now: float,
    estimate: bool = False,
) -> Choice:
    """``bound``: why a job's dependencies keep it from a target; empty: they do not. ``work``: what it would get.
    ``settings``: what counts how much, and what the site knows of targets. ``estimate``: when it would begin is asked
    of a target that is the only one, too."""
    others = any(not target.local for target in targets)
    refused: list[Considered] = []
    fields: dict[str, str] = {}

    def refuse(target: Target, field: str, why: str) -> None:
        refused.append(Considered(target=target.name, taken=False, why=why))
        fields[target.name] = field

    async def weighed(target: Target) -> Candidate | None:
        if document.target is None and target.local and others:
            why = "this machine runs only jobs that name it, as there are workload managers"
            refused.append(Considered(target=target.name, taken=False, why=why))
            return None
        if why := bound(target):
            refuse(target, "after", why)
            return None
        try:
            asked = work(target, document.queue)
            if found := next(refusals(target.scheduler.ability, asked, target.kind), None):
                refuse(target, *found)
                return None
            queue, why = await _queue(target, asked)
        except BadRequest as error:
            refuse(target, error.where, error.detail)
            return None
        except StrataError as error:
            refuse(target, "target", f"it does not answer: {error}")
            return None
        return Candidate(target=target, queue=queue, why=why)

    wanted = [target for target in targets if document.target in (None, target.name)]
    if document.target is not None and not wanted:
        names = ", ".join(target.name for target in targets) or "none"
        raise BadRequest(f"there is no target {document.target}", where="target", hint=f"there are: {names}")
    found = [one for one in await asyncio.gather(*map(weighed, wanted)) if one is not None]
    if estimate or len(found) > 1:
        found = await asyncio.gather(*(_expect(one, work) for one in found))
    if len(found) > 1:
        found = _weighed_up(found, document, settings, now)
    return Choice(candidates=found, refused=refused, fields=fields)


def _weighed_up(
    found: Sequence[Candidate], document: JobDocument, settings: JobSettings, now: float
) -> list[Candidate]:
    """The cheapest first, with what it comes to; of those that come to the same, the one that is thought of first."""
    expected = {one.target.name: one.expected for one in found}
    figures = weigh(document, expected, settings.targets, settings.broker, now)
    with_figures = [msgspec.structs.replace(one, figures=figures[one.target.name]) for one in found]
    return sorted(with_figures, key=lambda one: (figures[one.target.name].cost, one.expected is None))


async def _expect(one: Candidate, work: Callable[[Target, str | None], Work]) -> Candidate:
    try:
        async with asyncio.timeout(EXPECTED_WITHIN):
            expected = await one.target.scheduler.expected(work(one.target, one.queue))
    except (StrataError, TimeoutError):
        return one  # nobody knows: it comes after those who do
    return msgspec.structs.replace(one, expected=expected)


async def _queue(target: Target, work: Work) -> tuple[str | None, str]:
    """The queue for the job (None: the scheduler has none), and why that one. ``BadRequest``: no queue takes it."""
    if not target.scheduler.ability.queues:
        return None, ""
    queues = await target.queues()
    if work.queue is not None and work.queue not in {queue.name for queue in queues}:
        names = ", ".join(sorted(queue.name for queue in queues)) or "none"
        raise BadRequest(f"{target.name} has no queue {work.queue}; it has {names}", where="queue")
    found = best_queue(queues, work, work.account)
    if found.queue is None:
        asked = {name: why for name, why in found.refused.items() if work.queue in (None, name)}
        told = "; ".join(f"{name}: {', '.join(why)}" for name, why in asked.items()) or "it has none"
        raise BadRequest(f"no queue of {target.name} takes it: {told}", where="queue" if work.queue else "resources")
    return found.queue.name, found.why
