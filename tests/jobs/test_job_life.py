"""Jobs on this machine, from their document to their end: real processes, a store in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Conflict, Denied, NotFound, Refused
from strata.jobs.resources import Asked
from strata.jobs.submission import follower
from strata.jobs.submission.records import Copy, Dependency, JobDocument
from strata.schedulers.jobs import Array
from support.job_site import ALICE, BOB, OPERATOR, ROOT, VIEWER, JobSite, job_site, until

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture
async def site(open_dir: Path) -> AsyncIterator[JobSite]:
    async with job_site(open_dir) as found:
        yield found


def sh(text: str, **more: object) -> JobDocument:
    return JobDocument(script=f"#!/bin/sh\n{text}\n", **more)  # type: ignore[arg-type]


async def test_a_job_runs_as_whoever_submitted_it_with_a_clean_environment(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TOKEN", "not for jobs")
    async with job_site(open_dir) as site:
        await runs_as_alice(site)


async def runs_as_alice(site: JobSite) -> None:
    found = await site.jobs.submit(ALICE, sh("id -u; pwd; env"))
    found = await site.ended(ALICE, found.id)
    assert (found.state, found.outcome, found.status, found.account) == ("ended", "done", 0, site.people["alice"].name)
    uid, folder, *env = (await site.printed(ALICE, found.id)).splitlines()
    assert (uid, folder) == (str(site.people["alice"].uid), site.people["alice"].home)
    assert not [line for line in env if "not for jobs" in line]
    if ROOT:
        assert Path(found.stdout).stat().st_uid == site.people["alice"].uid


async def test_what_a_job_exits_with_and_what_kills_it_are_told(site: JobSite) -> None:
    failed = await site.jobs.submit(ALICE, JobDocument(command="sh", arguments=("-c", "exit 3")))
    killed = await site.jobs.submit(ALICE, sh("kill -9 $$"))
    missing = await site.jobs.submit(ALICE, sh("true", workdir="/nowhere"))
    over = await site.ended(ALICE, failed.id)
    assert (over.outcome, over.status, over.signal) == ("failed", 3, None)
    over = await site.ended(ALICE, killed.id)
    assert (over.outcome, over.status, over.signal) == ("failed", 137, 9)
    over = await site.ended(ALICE, missing.id)
    assert over.outcome == "failed" and "cannot enter /nowhere" in over.reason
    assert over.ended is not None and over.began is not None and over.submitted <= over.began <= over.ended


async def test_a_job_is_retried_staged_and_given_its_arguments(site: JobSite) -> None:
    home = Path(site.people["alice"].home)
    (home / "in.txt").write_text("given\n")
    document = JobDocument(
        script='#!/bin/sh\necho "$STRATA_ATTEMPT $1 $WORD"; cat copy.txt\n'
        '[ "$STRATA_ATTEMPT" = 3 ] && cp copy.txt result\n',
        arguments=("two words",),
        env={"WORD": 'it\'s "quoted"\nover two lines'},
        retries=2,
        stage_in=(Copy(source=f"{home}/in.txt", to=f"{home}/copy.txt"),),
        stage_out=(Copy(source=f"{home}/result", to=f"{home}/kept"),),
    )
    found = await site.jobs.submit(ALICE, document)
    found = await site.ended(ALICE, found.id)
    printed = await site.printed(ALICE, found.id)
    assert found.outcome == "done", printed
    assert [line[0] for line in printed.splitlines() if "two words" in line] == ["1", "2", "3"]
    assert '3 two words it\'s "quoted"\nover two lines\ngiven' in printed
    assert (home / "kept").read_text() == "given\n"
    lacking = await site.jobs.submit(
        ALICE,
        JobDocument(
            command="touch",
            arguments=(f"{home}/begun",),
            stage_in=(Copy(source="/nowhere/a", to=f"{home}/b"),),
            stage_out=(Copy(source=f"{home}/in.txt", to=f"{home}/out"),),
        ),
    )
    lacking = await site.ended(ALICE, lacking.id)
    assert lacking.outcome == "failed" and "/nowhere/a cannot be copied in" in await site.printed(ALICE, lacking.id)
    assert not (home / "begun").exists() and not (home / "out").exists()
    failing = await site.jobs.submit(
        ALICE, JobDocument(command="false", stage_out=(Copy(source=f"{home}/in.txt", to=f"{home}/out"),))
    )
    assert (await site.ended(ALICE, failing.id)).status == 1
    assert (home / "out").exists()


async def test_an_array_runs_so_many_at_once_and_each_task_has_its_log(site: JobSite) -> None:
    # Each says who else is there while it waits for a second one that must never come.
    text = 'mkdir "$HOME/at.$STRATA_ARRAY_INDEX"; ls -d "$HOME"/at.* | wc -l; rmdir "$HOME/at.$STRATA_ARRAY_INDEX"'
    document = sh(f"{text}; exit $STRATA_ARRAY_INDEX", array=Array(first=0, last=4, step=2, at_once=1))
    found = await site.jobs.submit(ALICE, document)
    found = await site.ended(ALICE, found.id)
    assert (found.outcome, found.tasks, found.tasks_failed) == ("failed", 3, 2)
    assert [(task.index, task.status) for task in found.array] == [(0, 0), (2, 2), (4, 4)]
    for index in (0, 2, 4):
        assert (await site.printed(ALICE, found.id, task=index)).strip() == "1"
    with pytest.raises(BadRequest, match="no such task, 0 to 4"):
        await site.jobs.log(ALICE, found.id, task=1)


async def test_a_job_waits_for_another_and_ends_where_that_can_never_be(site: JobSite) -> None:
    first = await site.jobs.submit(ALICE, sh("exit 1", held=True))
    assert first.state == "held"
    good = await site.jobs.submit(ALICE, sh("true", after=(Dependency(job=first.id, what="ended"),)))
    never = await site.jobs.submit(ALICE, sh("true", after=(Dependency(job=first.id, what="done"),)))
    await until(lambda: "waits until" in site.jobs.job(ALICE, never.id).reason)
    await site.jobs.release(ALICE, first.id)
    over = await site.ended(ALICE, good.id)
    assert over.outcome == "done", over.reason
    over = await site.ended(ALICE, never.id)
    assert (over.outcome, over.reason) == ("cancelled", f"job {first.id} failed")
    with pytest.raises(BadRequest, match="has ended, and did not end well"):
        await site.jobs.submit(ALICE, sh("true", after=(Dependency(job=first.id),)))


async def test_a_job_that_is_cancelled_or_out_of_time_leaves_nothing_behind(site: JobSite) -> None:
    # A child that takes its time at SIGTERM gets it; one that ignores it, in a session of its own, goes all the same.
    child = 'trap "" TERM; echo $$ > "$HOME/$0.pid"; exec sleep 1000'
    stubborn = f"trap '' TERM; setsid sh -c '{child}' \"$1\" & wait; sleep 1000"
    document = JobDocument(script=f"#!/bin/sh\n{stubborn}\n", arguments=("one",))
    cancelled = await site.jobs.submit(ALICE, document)
    timed = await site.jobs.submit(
        ALICE, JobDocument(script=f"#!/bin/sh\n{stubborn}\n", arguments=("two",), resources=Asked(time=1))
    )
    saving = 'trap "sleep 0.3; echo saved; exit 1" TERM; touch "$HOME/ready"; sleep 1000 & wait'
    kind = await site.jobs.submit(ALICE, JobDocument(command="sh", arguments=("-c", saving), retries=1))
    home = Path(site.people["alice"].home)
    await until(lambda: (home / "one.pid").is_file() and (home / "ready").is_file())
    for job in (cancelled, kind):
        await site.jobs.cancel(ALICE, job.id)
        over = await site.ended(ALICE, job.id)
        assert over.outcome == "cancelled"
    assert await site.printed(ALICE, kind.id) == "saved\n"
    over = await site.ended(ALICE, timed.id)
    assert (over.outcome, over.reason) == ("timed-out", "it ran for longer than 1 s")
    for file in home.glob("*.pid"):
        assert not Path(f"/proc/{file.read_text().strip()}").exists()
    assert (await site.jobs.cancel(ALICE, timed.id)).outcome == "timed-out"


async def test_a_job_that_takes_more_memory_than_it_asked_for_is_ended(site: JobSite) -> None:
    hungry = "#!/usr/bin/env python3\nheld = b'x' * (300 << 20)\nimport time; time.sleep(1000)\n"
    found = await site.jobs.submit(ALICE, JobDocument(script=hungry, resources=Asked(memory=100)))
    over = await site.ended(ALICE, found.id)
    assert (over.outcome, over.reason) == ("out-of-memory", "it used more than 100 MiB")


async def test_nobody_sees_ends_or_reads_the_job_of_another(site: JobSite) -> None:
    found = await site.jobs.submit(ALICE, sh("echo secret; sleep 1000"))
    await until(lambda: site.jobs.job(ALICE, found.id).state == "running")
    for ask in (site.jobs.job, site.jobs.log, site.jobs.cancel, site.jobs.hold, site.jobs.release, site.jobs.rerun):
        with pytest.raises(NotFound):
            answer = ask(BOB, found.id)
            await answer  # type: ignore[misc]
    with pytest.raises(NotFound):
        await site.jobs.follow_log(BOB, found.id)
    with pytest.raises(BadRequest, match="there is no job"):
        await site.jobs.submit(BOB, sh("true", after=(Dependency(job=found.id),)))
    assert not site.jobs.jobs(BOB).items
    for refused in ({"everybody": True}, {"owner": "alice"}):
        with pytest.raises(Denied):
            site.jobs.jobs(BOB, **refused)  # type: ignore[arg-type]
    assert [one.id for one in site.jobs.jobs(OPERATOR, everybody=True).items] == [found.id]
    with pytest.raises(Denied, match="only its owner"):
        await site.jobs.rerun(OPERATOR, found.id)
    assert (await site.jobs.cancel(OPERATOR, found.id)).id == found.id
    assert (await site.ended(ALICE, found.id)).outcome == "cancelled"


@pytest.mark.skipif(not ROOT, reason="one account alone has no other")
async def test_a_log_is_read_as_its_owner_so_that_a_link_to_anothers_file_shows_nothing(site: JobSite) -> None:
    secret = Path(site.people["bob"].home) / "secret"
    secret.write_text("of bob")
    secret.chmod(0o600)
    found = await site.jobs.submit(
        ALICE, sh(f"rm $HOME/.strata/jobs/*/out; ln -s {secret} $(ls -d ~/.strata/jobs/*)/out")
    )
    assert (await site.ended(ALICE, found.id)).outcome == "done"
    assert "of bob" not in await site.printed(ALICE, found.id)


async def test_root_system_accounts_and_strangers_run_nothing(site: JobSite) -> None:
    from strata.fleet.access.principal import LOCAL_ADMIN, Principal
    from strata.jobs.accounts import LocalAccounts
    from strata.schedulers.runner import Account

    known = {
        "root": Account(name="root", uid=0, gid=0, home="/root", shell="/bin/sh"),
        "daemon": Account(name="daemon", uid=1, gid=1, home="/", shell="/bin/sh"),
        "alice": Account(name="alice", uid=61001, gid=61001, home="/home/alice", shell="/bin/sh"),
    }
    accounts = LocalAccounts({"*@site.example": "*", "*": "*"}, 1000, look_up=known.get, own=0)
    for name, said in (
        ("root", "jobs cannot run as root"),
        ("daemon", "account of the system"),
        ("eve", "has no account"),
    ):
        with pytest.raises(Denied, match=said):
            await accounts.of(Principal(name=name, role="user", via="token"))
    with pytest.raises(Denied, match="jobs cannot run as root"):
        await accounts.of(LOCAL_ADMIN)
    assert (await accounts.of(Principal(name="alice@site.example", role="user", via="token"))).name == "alice"
    unprivileged = LocalAccounts({}, 1000, look_up=known.get, own=4711)
    with pytest.raises(Denied, match="runs jobs only as its own account"):
        await unprivileged.named("alice")
    with pytest.raises(Denied, match="only an administrator"):
        await site.jobs.submit(ALICE, sh("true", account="bob"))


async def test_the_same_key_is_the_same_job_and_another_document_a_conflict(site: JobSite) -> None:
    first = await site.jobs.submit(ALICE, sh("true"), key="k1")
    again = await site.jobs.submit(ALICE, sh("true"), key="k1")
    other = await site.jobs.submit(BOB, sh("true"), key="k1")
    assert first.id == again.id != other.id
    with pytest.raises(Conflict, match="used for another job"):
        await site.jobs.submit(ALICE, sh("false"), key="k1")
    assert len(site.jobs.jobs(ALICE).items) == 1


async def test_jobs_go_on_while_the_service_is_away_and_are_found_again(open_dir: Path) -> None:
    site = JobSite(open_dir, cores=1)
    await site.start()
    home = Path(site.people["alice"].home)
    running = await site.jobs.submit(ALICE, sh('until [ -e "$HOME/go" ]; do sleep 0.05; done; exit 7'))
    waiting = await site.jobs.submit(ALICE, sh("echo after"))
    await until(lambda: site.jobs.job(ALICE, running.id).state == "running")
    await site.stop()
    (home / "go").touch()  # it ends while nobody looks
    again = JobSite(open_dir, store=site.store, cores=1)
    await again.start()
    try:
        over = await again.ended(ALICE, running.id)
        assert (over.outcome, over.status) == ("failed", 7)
        over = await again.ended(ALICE, waiting.id)
        assert over.outcome == "done" and await again.printed(ALICE, waiting.id) == "after\n"
    finally:
        await again.stop()


async def test_a_job_that_runs_while_the_service_is_away_began_when_it_began(open_dir: Path) -> None:
    site = JobSite(open_dir, cores=1)
    await site.start()
    home = Path(site.people["alice"].home)
    job = await site.jobs.submit(ALICE, sh('until [ -e "$HOME/go" ]; do sleep 0.05; done'))
    await until(lambda: site.jobs.job(ALICE, job.id).state == "running")
    began = site.jobs.job(ALICE, job.id).began
    assert began is not None
    await site.stop()
    # What it wrote down at its beginning is what counts: let that have been long ago.
    [claim] = open_dir.rglob("job.pid")
    known = json.loads(claim.read_text())
    assert known["began"] == began
    claim.write_text(json.dumps(known | {"began": known["began"] - 5000.0}))
    again = JobSite(open_dir, store=site.store, cores=1)
    await again.start()
    try:
        await until(lambda: (again.jobs.job(ALICE, job.id).began or began) < began - 4000)
        seen = again.jobs.job(ALICE, job.id)
        assert (seen.state, seen.began) == ("running", known["began"] - 5000.0)
    finally:
        (home / "go").touch()
        await again.ended(ALICE, job.id)
        await again.stop()


async def test_what_a_target_cannot_do_is_refused_with_field_and_reason(site: JobSite) -> None:
    for document, field, said in (
        (sh("true", resources=Asked(nodes=2, tasks=2)), "resources.nodes", "more than one node"),
        (sh("true", resources=Asked(cores=5)), "resources", "largest node has 4 cores"),
        (sh("true", resources=Asked(licences={"matlab": 1})), "resources.licences", "cannot count licences"),
        (sh("true", native={"local": ("--nice",)}), "native", "local cannot take options in words of its own"),
        (sh("true", project="p"), "project", "there is no project p"),
        (sh("true", queue="nope"), "queue", "has no queue nope"),
        (sh("true", target="nope"), "target", "there is no target nope"),
        (JobDocument(), "command", "one of command and script"),
        (sh("true", array=Array(last=20_000)), "array", "1 to 10000"),
    ):
        with pytest.raises(BadRequest, match=said) as refused:
            await site.jobs.submit(ALICE, document)
        assert refused.value.where == field
    assert not site.jobs.jobs(ALICE).items
    plan = await site.jobs.plan(ALICE, sh("true", resources=Asked(licences={"matlab": 1})))
    assert plan.target is None and "licences" in plan.considered[0].why
    (only,) = (await site.jobs.plan(ALICE, sh("true"))).considered
    assert only.expected is not None, "when it would begin is told where there is one target, too"
    assert VIEWER.name not in {one.owner for one in site.jobs.jobs(OPERATOR, everybody=True).items}


async def test_events_tell_the_owner_of_every_change_and_nobody_else(site: JobSite) -> None:
    since = await site.store.revision()
    mine = await site.jobs.submit(ALICE, sh("exit 2"))
    await site.jobs.submit(BOB, sh("true"))
    await site.ended(ALICE, mine.id)
    told = []
    async for events in await site.jobs.events(ALICE, since, everybody=False):
        told += [event.job for event in events]
        if told[-1].state == "ended":
            break
    assert {one.owner for one in told} == {"alice"}
    assert told[0].state == "waiting" and told[-1].status == 2


async def test_a_log_is_followed_to_its_end_without_cutting_characters(site: JobSite) -> None:
    found = await site.jobs.submit(
        ALICE, sh("printf '\\303'; sleep 0.3; printf '\\251t\\303\\251\\n'; sleep 0.3; echo end")
    )
    text, ends = "", []
    async for parts in await site.jobs.follow_log(ALICE, found.id):
        text += "".join(part.text for part in parts)
        ends += [part.end for part in parts]
    assert text == "été\nend\n"
    assert ends[-1] and not any(ends[:-1])


async def test_a_job_that_has_begun_is_not_held_and_the_answer_says_so(site: JobSite) -> None:
    job = await site.jobs.submit(ALICE, sh("sleep 600"))
    await until(lambda: site.jobs.job(ALICE, job.id).state == "running")
    with pytest.raises(Refused, match="it has begun"):
        await site.jobs.hold(ALICE, job.id)
    assert not site.jobs.job(ALICE, job.id).document.held


async def test_jobs_are_listed_by_the_way_in_which_they_ended(site: JobSite) -> None:
    good, bad = [await site.jobs.submit(ALICE, sh(f"exit {status}")) for status in (0, 1)]
    for job in (good, bad):
        await site.ended(ALICE, job.id)
    assert [one.id for one in site.jobs.jobs(ALICE, state="failed").items] == [bad.id]
    assert len(site.jobs.jobs(ALICE, state="ended").items) == 2


async def test_the_log_of_an_array_asks_which_task_and_a_project_that_is_not_set_is_named(site: JobSite) -> None:
    job = await site.jobs.submit(ALICE, sh("true", array=Array(first=1, last=3), held=True))
    with pytest.raises(BadRequest, match="say which of its tasks, 1 to 3"):
        await site.jobs.log(ALICE, job.id)
    with pytest.raises(BadRequest, match="has no such task, 1 to 3"):
        await site.jobs.log(ALICE, job.id, task=9)
    with pytest.raises(BadRequest, match="there is no project nosuch"):
        await site.jobs.submit(ALICE, sh("true", project="nosuch"))


async def test_a_look_at_this_machine_is_not_told_again_of_all_that_has_ended(
    site: JobSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_CLOCKS", 0.0)
    for _ in range(5):
        await site.ended(ALICE, (await site.jobs.submit(ALICE, sh("true"))).id)
    held = await site.jobs.submit(ALICE, sh("true", held=True))
    await site.jobs.hold(ALICE, held.id)  # somebody looks
    look = site.jobs.targets["local"].last
    assert look is not None and [seen.id for seen in look.jobs] == [held.id]
