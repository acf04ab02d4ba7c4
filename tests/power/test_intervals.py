"""When and where jobs ran: told twice, late, from every node, from accounting; it comes to the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata.core.errors import Unavailable
from strata.power.accounting.intervals import IntervalFile, Intervals
from strata.power.accounting.records import Event, Run, Summary

DAY = 86_400.0


def at(what: Any, time: float, job: str = "1", **more: Any) -> Event:
    return Event(what=what, job=job, time=time, **more)


START = at("start", 1000.0, user="ada", name="cfd", uids=((1, 4),))


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Intervals]:
    found = Intervals(tmp_path / "jobs.db")
    await found.start()
    yield found
    await found.stop()


async def test_a_run_is_from_its_start_to_its_end(book: Intervals) -> None:
    await book.tell([START])
    (run,) = await book.find("1")
    assert (run.end, run.spans(1500.0)) == (None, [(1000.0, 1500.0)])
    await book.tell([at("end", 2000.0)])
    (run,) = await book.find("1")
    assert (run.user, run.uids, run.spans(9e9), run.seconds(9e9)) == ("ada", ((1, 4),), [(1000.0, 2000.0)], 1000.0)


async def test_told_twice_it_happened_once(book: Intervals) -> None:
    events = [START, at("suspend", 1200.0), at("resume", 1300.0), at("end", 2000.0)]
    for event in events:
        told = await book.tell([event, event])
        assert not told.refused
    (run,) = await book.find("1")
    assert run.spans(9e9) == [(1000.0, 1200.0), (1300.0, 2000.0)]


async def test_every_node_may_tell_for_itself(book: Intervals) -> None:
    await book.tell([at("start", 1000.0 + n, uids=((n, n),)) for n in (2, 1, 3)])
    await book.tell([at("end", 2000.0 + n) for n in (3, 1, 2)])
    (run,) = await book.find("1")
    assert (run.uids, run.start, run.end) == (((1, 3),), 1001.0, 2003.0)


async def test_a_requeued_job_runs_again(book: Intervals) -> None:
    await book.tell([START, at("end", 2000.0), at("start", 5000.0, uids=((7, 7),))])
    new, old = await book.find("1")
    assert (new.start, new.end, new.uids, old.end) == (5000.0, None, ((7, 7),), 2000.0)


async def test_a_job_that_begins_again_without_having_ended_leaves_a_doubt(book: Intervals) -> None:
    await book.tell([START, at("start", 9000.0, uids=((7, 7),))])
    _, old = await book.find("1")
    assert old.end == 9000.0 and "not told" in old.doubt


async def test_one_that_ends_while_suspended_was_suspended_to_its_end(book: Intervals) -> None:
    await book.tell([START, at("suspend", 1500.0), at("end", 2000.0)])
    (run,) = await book.find("1")
    assert run.spans(9e9) == [(1000.0, 1500.0)]


async def test_what_makes_no_sense_is_refused_and_keeps_nothing_else_out(book: Intervals) -> None:
    told = await book.tell(
        [
            at("end", 5.0, "never"),
            START,
            at("end", 10.0),
            at("suspend", 1100.0),
            at("end", 2000.0),
            at("resume", 2500.0),
        ]
    )
    assert told.taken == 3
    assert [why for _, why in told.refused] == ["nobody told that it began", "that is before it began", "it has ended"]


async def test_an_application_is_where_its_job_is_and_ends_with_it(book: Intervals) -> None:
    await book.tell([START, at("start", 1100.0, apid="a"), at("suspend", 1200.0), at("resume", 1300.0)])
    await book.tell([at("end", 2000.0)])
    (part,) = await book.applications("1", 1000.0)
    assert (part.uids, part.user, part.spans(9e9)) == (((1, 4),), "ada", [(1100.0, 1200.0), (1300.0, 2000.0)])
    assert [run.apid for run in await book.of_application("a")] == ["a"]
    told = await book.tell([at("start", 1.0, "other", apid="b")])
    assert "say where it runs" in told.refused[0][1]


async def test_accounting_corrects_what_was_told(book: Intervals) -> None:
    await book.tell([START, at("suspend", 1200.0), at("resume", 1300.0), at("end", 2005.0)])
    told = Run(job="1", start=1001.0, end=2001.0, user="ada", name="cfd", uids=((1, 8),), unplaced=150.0)
    await book.account([told])
    await book.account([told])
    (run,) = await book.find("1")
    assert (run.start, run.end, run.uids, run.pauses) == (1001.0, 2001.0, ((1, 8),), ((1200.0, 1300.0),))
    assert run.unplaced == 50.0 and run.seconds(9e9) == 850.0


async def test_accounting_tells_of_runs_that_nobody_told_of(book: Intervals) -> None:
    runs = [Run(job="1", start=1000.0 * n, end=1000.0 * n + 500, uids=((1, 1),)) for n in (1, 5)]
    await book.account(runs)
    assert [run.start for run in await book.find("1")] == [5000.0, 1000.0]
    told = await book.account([Run(job="2", start=10.0, end=5.0)])
    assert (told.taken, told.refused) == (0, (("2", "it ends before it begins"),))


async def test_what_a_run_came_to_is_forgotten_when_the_run_changes(book: Intervals) -> None:
    await book.tell([START, at("end", 2000.0)])
    (run,) = await book.unsummed(9e9, 10)
    summary = Summary(joules=1.0, known=1.0, seconds=1000.0, nodes=4, average=2.0, peak=3.0, together=8.0)
    await book.sum_up(run, summary)
    assert (await book.find("1"))[0].summary == summary
    assert await book.unsummed(9e9, 10) == []
    await book.tell([at("end", 2100.0)])
    assert (await book.find("1"))[0].summary is None
    await book.sum_up(run, summary)
    assert (await book.find("1"))[0].summary is None, "it is the sum of another time"


async def test_accounting_that_says_the_same_again_leaves_what_a_run_came_to(book: Intervals) -> None:
    run = Run(job="1", user="ada", name="cfd", start=1000.0, end=2000.0, uids=((1, 4),))
    await book.account([run])
    summary = Summary(joules=1.0, known=1.0, seconds=1000.0, nodes=4, average=2.0, peak=3.0, together=8.0)
    await book.sum_up(run, summary)
    await book.account([run])
    assert (await book.find("1"))[0].summary == summary
    await book.account([msgspec.structs.replace(run, end=2100.0)])
    assert (await book.find("1"))[0].summary is None


async def test_earlier_runs_are_of_the_same_user_and_name(book: Intervals) -> None:
    for n, (user, name) in enumerate([("ada", "cfd"), ("ada", "md"), ("eve", "cfd"), ("ada", "cfd"), ("ada", "cfd")]):
        start = 10_000.0 * (n + 1)
        await book.tell(
            [at("start", start, str(n), user=user, name=name, uids=((1, 1),)), at("end", start + 10, str(n))]
        )
    (run,) = await book.find("4")
    assert [one.job for one in await book.earlier(run, 10)] == ["3", "0"]
    assert [one.job for one in await book.newest("ada", 0.0, 2)] == ["4", "3"]
    assert await book.newest("", 0.0, 9, running=True) == []


async def test_the_old_is_forgotten_and_the_rest_survives_a_restart(tmp_path: Path) -> None:
    book = Intervals(tmp_path / "jobs.db", keep=10 * DAY)
    await book.start()
    await book.tell([START, at("end", 2000.0), at("start", 20 * DAY, "2", uids=((1, 1),))])
    assert await book.prune(21 * DAY) == 1
    await book.stop()
    again = Intervals(tmp_path / "jobs.db")
    await again.start()
    assert await again.find("1") == []
    assert [run.job for run in await again.find("2")] == ["2"]
    await again.stop()


async def test_a_file_of_another_format_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    other = apsw.Connection(str(path))
    other.execute("PRAGMA user_version=99")
    other.close()
    book = Intervals(path)
    with pytest.raises(Unavailable):
        await book.start()
    await book.stop()


ORDER = st.permutations([("suspend", 1100.0), ("resume", 1200.0), ("suspend", 1300.0), ("resume", 1400.0)])


@pytest.mark.slow
@given(ORDER, st.lists(st.integers(0, 3), max_size=4))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_told_in_whatever_order_spans_are_disjoint_and_within_the_run(
    tmp_path: Path, order: list[tuple[Any, float]], again: list[int]
) -> None:
    (tmp_path / "h.db").unlink(missing_ok=True)
    file = IntervalFile(tmp_path / "h.db")
    file.tell([START, *(at(what, time) for what, time in order), *(at(*order[n]) for n in again), at("end", 2000.0)])
    (run,) = file.find("1")
    file.close()
    edges = [edge for span in run.spans(9e9) for edge in span]
    assert edges == sorted(edges)
    assert all(1000.0 <= edge <= 2000.0 for edge in edges)
    assert 0 <= run.seconds(9e9) <= 1000.0
