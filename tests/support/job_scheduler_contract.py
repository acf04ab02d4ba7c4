"""What every ``JobScheduler`` must do, against one that runs jobs in earnest.

``keeps_the_contract`` runs all checks side by side: they wait most of the time. Each is a coroutine of its own, for
whoever wants one alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest
from strata.schedulers.choice import choose
from strata.schedulers.jobs import Array, JobScheduler, JobSeen, Resources, Work

HOSTILE = {
    "PLAIN": "x",
    "EMPTY": "",
    "COMMAS": "a,b=c;d",
    "LINES": "one\ntwo\n",
    "QUOTES": 'it\'s "$(id)" `id` \\ %a %j',
    "OPTION": "--uid=0",
    "LETTERS": "ü☃",
}
LONGEST = 600.0
"""Seconds that a check waits for something to become so."""


class Site:
    """A scheduler with an account whose jobs it may run. ``folder`` is that account's."""

    def __init__(self, scheduler: JobScheduler, account: str, folder: Path) -> None:
        self.scheduler = scheduler
        self.account = account
        self.folder = folder
        self._began = time.time() - 60
        self._numbers = 0
        self._looking = asyncio.Lock()
        self._looks = 0
        self._seen: Sequence[JobSeen] = ()

    def work(self, script: str, **more: Any) -> Work:
        """A job with a key of its own; what it prints goes to ``out``."""
        self._numbers += 1
        key = f"k{self._numbers}-{int(self._began)}"
        given = {
            "key": key,
            "name": f"job {key}",
            "script": script,
            "account": self.account,
            "workdir": str(self.folder),
            "stdout": str(self.folder / f"{key}.out"),
            **more,
        }
        return Work(**given)

    async def look(self) -> Sequence[JobSeen]:
        """All jobs, as they are seen after this was called. Whoever waits at the same time shares the look."""
        wanted = self._looks + 2 if self._looking.locked() else self._looks + 1
        async with self._looking:
            if self._looks < wanted:
                self._seen = await self.scheduler.jobs(self._began)
                self._looks += 1
        return self._seen

    async def of(self, work: Work) -> list[JobSeen]:
        """What is seen of a job, by its key."""
        return sorted((job for job in await self.look() if job.key == work.key), key=lambda job: job.index or 0)

    async def until(self, work: Work, holds: Callable[[list[JobSeen]], bool], what: str) -> list[JobSeen]:
        """What is seen of a job once that holds."""
        end = asyncio.get_running_loop().time() + LONGEST
        while not holds(seen := await self.of(work)):
            if asyncio.get_running_loop().time() > end:
                pytest.fail(f"not within {LONGEST:g} s: {what}; seen {seen}")
            await asyncio.sleep(0.4)
        return seen

    async def ended(self, work: Work, count: int = 1) -> list[JobSeen]:
        """Its end, or the ends of its tasks."""
        return await self.until(
            work, lambda seen: len(seen) >= count and all(job.state == "ended" for job in seen), f"{work.name} ends"
        )

    async def done(self, script: str, **more: Any) -> tuple[Work, list[JobSeen]]:
        """A job, submitted and ended."""
        work = self.work(script, **more)
        await self.scheduler.submit(work)
        count = len(work.array.indices) if work.array else 1
        return work, await self.ended(work, count)

    def out(self, work: Work, index: int | None = None) -> str:
        path = work.stdout if index is None else work.stdout.replace("%a", str(index))
        return Path(path).read_text(encoding="utf-8")


async def runs_as_its_account_with_what_it_was_given(site: Site) -> None:
    asked = site.folder / "asked"
    asked.write_text("what it reads\n", encoding="utf-8")
    script = (
        "#!/usr/bin/python3\nimport json, os, pwd, sys\n"
        "told = {'who': pwd.getpwuid(os.getuid()).pw_name, 'where': os.getcwd(), 'env': dict(os.environ)}\n"
        "told['read'] = sys.stdin.read()\nprint(json.dumps(told))\nprint('to the other', file=sys.stderr)\n"
    )
    errors = str(site.folder / "errors")
    given = {"env": HOSTILE, "stderr": errors, **({"stdin": str(asked)} if site.scheduler.ability.stdin else {})}
    work, (seen,) = await site.done(script, **given)
    assert (seen.outcome, seen.status, seen.signal) == ("done", 0, None), seen
    assert seen.account == site.account
    assert seen.submitted and seen.began and seen.ended and seen.began <= seen.ended
    told = json.loads(site.out(work))
    assert told["who"] == site.account
    assert told["where"] == str(site.folder)
    assert {name: told["env"].get(name) for name in HOSTILE} == HOSTILE
    assert told["read"] == ("what it reads\n" if site.scheduler.ability.stdin else "")
    assert Path(errors).read_text(encoding="utf-8") == "to the other\n"


async def tells_how_a_job_failed(site: Site) -> None:
    _, (seen,) = await site.done("#!/bin/sh\nexit 3\n")
    assert (seen.state, seen.outcome, seen.status, seen.signal) == ("ended", "failed", 3, None), seen
    _, (seen,) = await site.done("#!/bin/sh\nkill -9 $$\n")
    assert (seen.state, seen.outcome, seen.signal) == ("ended", "failed", 9), seen


async def runs_every_task_of_an_array_once(site: Site) -> None:
    if not site.scheduler.ability.array:
        return
    work, seen = await site.done(
        '#!/bin/sh\necho "$STRATA_ARRAY_INDEX"\ntest "$STRATA_ARRAY_INDEX" != 4\n',
        array=Array(first=0, last=4, step=2),
        stdout=str(site.folder / "array %a.out"),
    )
    assert [job.index for job in seen] == [0, 2, 4]
    assert len({job.id for job in seen}) == len(seen)
    assert [job.outcome for job in seen] == ["done", "done", "failed"], seen
    assert [site.out(work, index) for index in (0, 2, 4)] == ["0\n", "2\n", "4\n"]


async def begins_a_job_after_another(site: Site) -> None:
    able = site.scheduler.ability.after
    first = site.work("#!/bin/sh\nsleep 1\necho first >> order\nexit 1\n")
    before = await site.scheduler.submit(first)
    after: dict[str, Work] = {}
    for how in sorted(able & {"ended", "failed", "done"}):
        after[how] = site.work(f"#!/bin/sh\necho {how} >> order\n", after=((how, before),))
        await site.scheduler.submit(after[how])
    for how, work in after.items():
        (seen,) = await site.ended(work)
        assert seen.outcome == ("cancelled" if how == "done" else "done"), seen
    order = (site.folder / "order").read_text(encoding="utf-8").split()
    assert order[0] == "first"
    assert set(order[1:]) == able & {"ended", "failed"}


async def ends_a_job_that_is_cancelled(site: Site) -> None:
    runs = site.work("#!/bin/sh\ntouch began-to-run\nsleep 600\n")
    one = await site.scheduler.submit(runs)
    await site.until(runs, lambda seen: [job.state for job in seen] == ["running"], "it runs")
    held = site.work("#!/bin/sh\ntrue\n", held=True)
    other = await site.scheduler.submit(held) if site.scheduler.ability.hold else ""
    await site.scheduler.cancel(site.account, [one, *([other] if other else [])])
    (seen,) = await site.ended(runs)
    assert seen.outcome == "cancelled", seen
    if other:
        (seen,) = await site.until(held, lambda seen: not seen or seen[0].state == "ended", "it is gone") or [None]
        assert seen is None or (seen.outcome, seen.began, seen.status) == ("cancelled", None, None)
    await site.scheduler.cancel(site.account, [one])


async def holds_a_job_until_it_is_released(site: Site) -> None:
    if not site.scheduler.ability.hold:
        return
    work = site.work("#!/bin/sh\necho ran\n", held=True)
    one = await site.scheduler.submit(work)
    (seen,) = await site.until(work, lambda seen: bool(seen), "it is seen")
    assert (seen.state, seen.id) == ("held", one), seen
    await site.scheduler.release(site.account, [one])
    (seen,) = await site.ended(work)
    assert seen.outcome == "done"


async def ends_a_job_whose_time_is_over(site: Site) -> None:
    if not site.scheduler.ability.time:
        return
    _, (seen,) = await site.done("#!/bin/sh\nsleep 600\n", resources=Resources(time=1))
    assert seen.outcome == "timed-out", seen


async def refuses_in_words_what_it_does_not_take(site: Site) -> None:
    able = site.scheduler.ability
    refused = [site.work("no interpreter\n"), site.work("#!/bin/sh\n", env={"NOT A NAME": "x"})]
    if able.queues:
        refused.append(site.work("#!/bin/sh\n", queue="no-such-queue"))
    if not able.power:
        refused.append(site.work("#!/bin/sh\n", resources=Resources(power=100)))
    for work in refused:
        with pytest.raises(BadRequest) as caught:
            await site.scheduler.submit(work)
        assert caught.value.detail
    assert {job.key for job in await site.look()}.isdisjoint({work.key for work in refused})


async def tells_its_queues(site: Site) -> None:
    queues = await site.scheduler.queues()
    assert any(queue.open and queue.nodes for queue in queues), queues
    chosen = choose(queues, site.work("#!/bin/sh\n"), site.account)
    assert chosen.queue is not None, chosen
    far = msgspec.structs.replace(site.work("#!/bin/sh\n"), resources=Resources(cores=1_000_000))
    assert choose(queues, far, site.account).queue is None


CHECKS: tuple[Callable[[Site], Awaitable[None]], ...] = (
    ends_a_job_whose_time_is_over,
    runs_as_its_account_with_what_it_was_given,
    tells_how_a_job_failed,
    runs_every_task_of_an_array_once,
    begins_a_job_after_another,
    ends_a_job_that_is_cancelled,
    holds_a_job_until_it_is_released,
    refuses_in_words_what_it_does_not_take,
    tells_its_queues,
)


async def keeps_the_contract(site: Site) -> None:
    """All of it, side by side."""
    ended = await asyncio.gather(*(check(site) for check in CHECKS), return_exceptions=True)
    wrong = [(check.__name__, found) for check, found in zip(CHECKS, ended, strict=True) if found is not None]
    for name, found in wrong:
        found.add_note(f"in the check {name}")
    if wrong:
        raise BaseExceptionGroup("the contract of a job scheduler is broken", [found for _, found in wrong])
