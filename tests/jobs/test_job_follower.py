"""Jobs at a scheduler that loses answers, refuses and forgets: a fake one, which can be told when to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import BadRequest, DeviceError, Unavailable
from strata.jobs.resources import Asked
from strata.jobs.submission import follower
from strata.jobs.submission.records import Dependency, Job, JobDocument, Task
from strata.jobs.submission.targets import Target
from strata.schedulers.jobs import Ability, JobSeen, Queue, Work
from strata.schedulers.runner import Place, Runner
from support.job_site import ALICE, JobSite, job_site, until

pytestmark = pytest.mark.slow


class FakeScheduler:
    """Keeps what it is given, and shows it as it is told to."""

    def __init__(self, *, ability: Ability | None = None) -> None:
        self.ability = ability or Ability()
        self.kept: dict[str, Work] = {}
        self.shown: dict[str, JobSeen] = {}
        self.cancelled: list[str] = []
        self.sent = 0
        self.on_submit: Callable[[Work], None] = lambda work: None
        self.starts: float | None = None

    async def submit(self, work: Work) -> str:
        self.sent += 1
        ident = str(100 + self.sent)
        if len(self.kept) < 100:
            self.on_submit(work)
        self.kept[ident] = work
        self.shown[ident] = JobSeen(id=ident, key=work.key, account=work.account, state="waiting")
        return ident

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        return list(self.shown.values())

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        self.cancelled += ids

    async def hold(self, account: str, ids: Sequence[str]) -> None: ...

    async def release(self, account: str, ids: Sequence[str]) -> None: ...

    async def queues(self) -> Sequence[Queue]:
        return [Queue(name="q", open=True, default=True, nodes=4, free_nodes=4, most_time=3600)]

    async def expected(self, work: Work) -> float | None:
        return self.starts


class QuietRunner(Runner):
    """Makes folders that nobody needs, and finds no file."""

    async def run(self, *command: str, **_: object) -> str:  # type: ignore[override]
        return ""


@asynccontextmanager
async def with_fakes(directory: Path, **fakes: FakeScheduler) -> AsyncIterator[JobSite]:
    async with job_site(directory, local=False, poll=1.0) as site:
        for name, fake in fakes.items():
            site.jobs.targets[name] = Target(
                name, "slurm", fake, QuietRunner(Place()), clock=site.controller.clock.wall
            )
        await site.jobs.target_views()  # begins to look at them
        try:
            yield site
        finally:
            for fake in fakes.values():  # nothing is left to be waited for
                fake.shown = {
                    ident: msgspec.structs.replace(one, state="ended", outcome="done", status=0)
                    for ident, one in fake.shown.items()
                }


JOB = JobDocument(command="true")


async def test_a_job_whose_answer_was_lost_is_found_again_and_not_sent_twice(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "RESEND_AFTER", 0.0)
    fake = FakeScheduler()

    def lost(work: Work) -> None:
        fake.kept["7"] = work
        fake.shown["7"] = JobSeen(id="7", key=work.key, account=work.account, state="running")
        raise Unavailable("no answer")

    fake.on_submit = lost
    async with with_fakes(open_dir, one=fake) as site:
        # Somebody else's job with the same key is not it.
        job = await site.jobs.submit(ALICE, JOB)
        fake.shown["6"] = JobSeen(id="6", key=job.id, account="mallory", state="ended", outcome="failed", status=1)
        assert job.there == "" and "not known yet" in job.considered[0].why
        await until(lambda: site.jobs.job(ALICE, job.id).there == "7")
        assert site.jobs.job(ALICE, job.id).state == "running"
        assert fake.sent == 1


@pytest.mark.parametrize("passes", [False, True])
async def test_a_job_whose_folder_cannot_be_made_is_refused_and_not_tried_for_ever(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    said = "ssh: no route to host" if passes else "mkdir: cannot create directory '/nonexistent': Permission denied"

    async def run(self: Runner, *command: str, **_: object) -> str:
        if command[0] == "mkdir":
            raise DeviceError(said, node="mkdir", reply=said)
        return ""

    monkeypatch.setattr(QuietRunner, "run", run)
    fake = FakeScheduler()
    async with with_fakes(open_dir, one=fake) as site:
        if passes:
            job = await site.jobs.submit(ALICE, JOB)
            assert job.considered[0].why.endswith(said), "it is tried again"
        else:
            with pytest.raises(BadRequest, match="'/nonexistent': Permission denied"):
                await site.jobs.submit(ALICE, JOB)
            assert not site.jobs.jobs(ALICE).items
        assert fake.sent == 0
        monkeypatch.undo()


async def test_a_job_that_never_arrived_is_sent_again_after_a_look_that_does_not_find_it(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "RESEND_AFTER", 0.0)
    fake = FakeScheduler()
    fails = [Unavailable("no answer")]

    def once(work: Work) -> None:
        if fails:
            raise fails.pop()

    fake.on_submit = once
    async with with_fakes(open_dir, one=fake) as site:
        job = await site.jobs.submit(ALICE, JOB)
        await until(lambda: site.jobs.job(ALICE, job.id).there)
        assert (fake.sent, len(fake.kept)) == (2, 1)
        refuses = BadRequest("it is closed")
        fails += [refuses, Unavailable("no answer")]  # the last is raised first
        late = await site.jobs.submit(ALICE, JOB)
        over = await site.ended(ALICE, late.id)
        assert (over.outcome, over.reason) == ("failed", "one refused it: it is closed")


async def test_the_broker_takes_who_begins_first_and_the_next_where_one_refuses(open_dir: Path) -> None:
    slow, quick, small = FakeScheduler(), FakeScheduler(), FakeScheduler(ability=Ability(array=False, licences=False))
    slow.starts, quick.starts = 2e9, 1e9

    def closed(work: Work) -> None:
        raise BadRequest("no more today")

    async with with_fakes(open_dir, slow=slow, quick=quick, small=small) as site:
        document = JobDocument(command="true", resources=Asked(licences={"x": 1}))
        plan = await site.jobs.plan(ALICE, document)
        assert (plan.target, plan.queue) == ("quick", "q")
        assert {one.target: one.taken for one in plan.considered} == {"quick": True, "slow": False, "small": False}
        assert (await site.jobs.submit(ALICE, document)).target == "quick"
        quick.on_submit = closed
        job = await site.jobs.submit(ALICE, document)
        whys = {one.target: one.why for one in job.considered}
        assert job.target == "slow" and whys["quick"] == "it refused the job: no more today"
        assert whys["small"] == "slurm cannot count licences"
        # Whoever depends on it goes where it is.
        after = await site.jobs.submit(ALICE, JobDocument(command="true", after=(Dependency(job=job.id),)))
        assert after.target == "slow" and slow.kept[after.there].after == (("done", job.there),)
        slow.on_submit = closed
        with pytest.raises(BadRequest, match="no more today"):
            await site.jobs.submit(ALICE, document)
        with pytest.raises(BadRequest, match="ends jobs after 3600 s"):
            await site.jobs.submit(ALICE, JobDocument(command="true", resources=Asked(time=9999)))
        assert len(site.jobs.jobs(ALICE).items) == 3


async def test_a_job_that_its_scheduler_forgot_is_lost_or_what_it_wrote_itself(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOST_AFTER", 0.0)
    fake = FakeScheduler()
    async with with_fakes(open_dir, one=fake) as site:
        lost, told = await site.jobs.submit(ALICE, JOB), await site.jobs.submit(ALICE, JOB)

        async def run(*command: str, **_: object) -> str:
            return f"3 10 20 {site.people['alice'].home}/.strata/jobs/{told.id}/end\n"

        monkeypatch.setattr(QuietRunner, "run", lambda self, *command, **more: run(*command))
        fake.shown.clear()
        over = await site.ended(ALICE, lost.id)
        assert (over.outcome, over.status) == ("lost", None) and "no longer knows it" in over.reason
        over = await site.ended(ALICE, told.id)
        assert (over.outcome, over.status, over.began, over.ended) == ("failed", 3, 10.0, 20.0)


async def test_many_ends_are_few_writes_and_old_jobs_go_in_batches(open_dir: Path) -> None:
    fake = FakeScheduler()
    async with with_fakes(open_dir, one=fake) as site:
        for _ in range(150):
            await site.jobs.submit(ALICE, JOB)
        newest = site.jobs.jobs(ALICE, limit=1).items[0]
        before = await site.store.revision()
        fake.shown = {
            ident: msgspec.structs.replace(one, state="ended", outcome="done", status=0, ended=1e9)
            for ident, one in fake.shown.items()
        }
        await site.ended(ALICE, newest.id)
        await until(lambda: not site.jobs.jobs(ALICE, state="waiting", limit=1).items)
        assert await site.store.revision() - before < 10
        page = site.jobs.jobs(ALICE, limit=100)
        rest = site.jobs.jobs(ALICE, limit=100, after=page.next or "")
        assert (len(page.items), len(rest.items), rest.next) == (100, 50, None)
        assert len({one.id for one in (*page.items, *rest.items)}) == 150
        await site.jobs._follower._forget()  # all ended longer ago than the retention
        assert not site.jobs.jobs(ALICE).items


async def test_a_scheduler_that_did_not_hear_of_a_cancel_is_told_again(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "AGAIN", 0.0)
    fake = FakeScheduler()
    async with with_fakes(open_dir, one=fake) as site:
        job = await site.jobs.submit(ALICE, JOB)
        await site.jobs.cancel(ALICE, job.id)
        await until(lambda: fake.cancelled.count(job.there) >= 2)
        found = site.jobs.job(ALICE, job.id)  # not ended before its scheduler says so
        assert (found.state, found.outcome) == ("ending", None)
        assert found.reason == "cancelled by alice; one has not ended it yet"


async def test_a_job_that_may_not_have_arrived_is_said_to_be_cancelled_and_ends_once_that_is_known(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeScheduler()

    def lost(work: Work) -> None:
        raise Unavailable("no answer")

    fake.on_submit = lost
    async with with_fakes(open_dir, one=fake) as site:
        job = await site.jobs.submit(ALICE, JOB)
        assert (job.there, job.state) == ("", "waiting")
        found = await site.jobs.cancel(ALICE, job.id)
        assert (found.state, found.outcome) == ("ending", None)
        assert found.reason == "cancelled by alice; one has not said whether it has it yet"
        monkeypatch.setattr(follower, "RESEND_AFTER", 0.0)
        found = await site.jobs.cancel(ALICE, job.id)
        assert (found.state, found.outcome, fake.sent) == ("ended", "cancelled", 1)


async def test_a_look_at_thousands_of_jobs_lets_others_have_their_turn() -> None:
    many = 3 * follower._QUICK_TURN
    job = Job(
        id="0", document=JOB, owner="alice", account="nobody", submitted=0.0, target="one", kind="slurm",
        controller="c1", tasks=(Task(index=None, state="running"),), folder="/", stdout="/o",
    )  # fmt: skip
    jobs = [msgspec.structs.replace(job, id=str(number), there=f"t{number}") for number in range(many)]
    seen = [JobSeen(id=f"t{number}", account="nobody", state="running") for number in range(many)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    found = await follower._grouped(jobs, seen)
    task.cancel()
    assert len(found) == many
    assert turns >= 5
