"""The ledger of caps: what may be sent now, and what a node counts with."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.errors import Corrupt
from strata.power.capping.ledger import Ledger, moved, pack
from strata.power.capping.split import propose
from strata.power.capping.terms import Limits, Ratings, Use
from support.work import counted

HIGH = 400.0


def ledger(count: int = 4, *, cap: float = HIGH, use: Use = Use.BUSY) -> Ledger:
    ratings = Ratings.alike(count, idle=50, boot=120, low=200, high=HIGH)
    return Ledger(ratings, caps=np.full(count, cap), use=use)


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def to(*watts: float) -> np.ndarray:
    return np.array(watts, np.float64)


def test_a_raise_waits_until_the_lowering_that_pays_for_it_is_confirmed() -> None:
    book, limits = ledger(2, cap=300), Limits(site=600)
    wanted = to(250, 350)
    first = propose(book, 0, wanted, limits)
    assert first.rows.tolist() == [0]
    book.send(first, 0, until=60)
    assert len(propose(book, 1, wanted, limits).rows) == 0
    book.confirm(rows(0), to(250), 2)
    second = propose(book, 2, wanted, limits)
    assert (second.rows.tolist(), second.watts.tolist()) == ([1], [350.0])


def test_a_command_without_an_answer_counts_as_the_higher_of_both() -> None:
    book = ledger(1, cap=300)
    book.send(propose(book, 0, to(200), Limits(site=1000)), 0, until=60)
    assert book.worst().tolist() == [300.0]
    book.confirm(rows(0), to(200), 1)
    book.send(propose(book, 1, to(380), Limits(site=1000)), 1, until=61)
    assert book.worst().tolist() == [380.0]


def test_a_look_before_the_command_can_have_ended_decides_nothing() -> None:
    book = ledger(1, cap=300)
    book.send(propose(book, 0, to(380), Limits(site=1000)), 0, until=60)
    book.observe(rows(0), to(300), 30)
    assert book.worst().tolist() == [380.0]
    assert book.overdue(60).tolist() == [0]
    book.observe(rows(0), to(300), 60)
    assert book.worst().tolist() == [300.0]


def test_a_look_that_shows_the_command_in_force_ends_it_early() -> None:
    book = ledger(1, cap=300)
    book.send(propose(book, 0, to(200), Limits(site=1000)), 0, until=60)
    book.observe(rows(0), to(200), 5)
    assert book.worst().tolist() == [200.0]


def test_an_answer_from_before_the_last_command_is_not_believed() -> None:
    book = ledger(1, cap=300)
    book.send(propose(book, 10, to(380), Limits(site=1000)), 10, until=70)
    book.confirm(rows(0), to(380), 12)
    book.observe(rows(0), to(300), 9)
    assert book.worst().tolist() == [380.0]


def test_a_node_that_cannot_be_read_counts_as_not_capped() -> None:
    ratings = Ratings.alike(2, idle=50, boot=120, low=200, high=HIGH)
    assert Ledger(ratings, caps=to(250, np.nan)).worst().tolist() == [250.0, HIGH]


def test_a_refused_command_changes_nothing() -> None:
    book = ledger(1, cap=300)
    book.send(propose(book, 0, to(200), Limits(site=1000)), 0, until=60)
    book.refuse(rows(0), 1)
    assert book.worst().tolist() == [300.0]
    assert not book.in_flight.any()


def test_nodes_count_by_what_they_are_used_for() -> None:
    book = ledger(5)
    for number, use in enumerate(Use):
        book.occupy(rows(number), use, 0)
    assert book.worst().tolist() == [0.0, 50.0, 50.0, 120.0, HIGH]


def test_the_paper_s_starting_state_leaves_no_room() -> None:
    book = ledger(8000, use=Use.IDLE)
    book.occupy(np.arange(4875), Use.BUSY, 0)
    book.occupy(np.arange(5875, 8000), Use.OFF, 0)
    assert book.room(0, Limits(site=2e6)) == 0.0


def test_a_job_is_launched_only_where_its_caps_have_room() -> None:
    book, limits = ledger(4, use=Use.IDLE), Limits(site=1000)
    assert book.launch(rows(0, 1, 2), to(400, 400, 400), limits, 0, 60) is None
    commands = book.launch(rows(0, 1), to(400, 400), limits, 0, 60)
    assert commands is not None and not len(commands.rows)
    assert book.room(0, limits) == 100.0


def test_a_job_with_a_lower_cap_counts_with_the_old_one_until_it_is_set() -> None:
    book, limits = ledger(2, use=Use.IDLE), Limits(site=1000)
    commands = book.launch(rows(0, 1), to(300, 300), limits, 0, 60)
    assert commands is not None and commands.watts.tolist() == [300.0, 300.0]
    assert book.worst().tolist() == [400.0, 400.0]
    book.confirm(*commands, 1)
    assert book.worst().tolist() == [300.0, 300.0]


def test_what_rises_within_a_minute_stays_under_the_ramp() -> None:
    book, limits = ledger(4, cap=200), Limits(site=10_000, ramp_up=250)
    wanted = np.full(4, 300.0)
    first = propose(book, 0, wanted, limits)
    assert len(first.rows) == 2
    book.send(first, 0, until=60)
    book.confirm(*first, 40)
    assert not len(propose(book, 70, wanted, limits).rows), "the raise may have taken effect as late as at 40"
    assert len(propose(book, 100, wanted, limits).rows) == 2


def test_caps_are_not_lowered_below_the_band() -> None:
    book = ledger(4, cap=300)
    assert len(propose(book, 0, np.full(4, 200.0), Limits(site=2000, floor=1000)).rows) == 2
    assert not len(propose(book, 0, np.full(4, 200.0), Limits(site=2000, floor=1150)).rows)


def test_lowering_keeps_to_its_ramp_unless_the_site_limit_is_at_stake() -> None:
    book = ledger(4, cap=300)
    assert len(propose(book, 0, np.full(4, 200.0), Limits(site=2000, ramp_down=100)).rows) == 1
    assert len(propose(book, 0, np.full(4, 200.0), Limits(site=1000, ramp_down=100)).rows) == 4


def test_a_limit_that_falls_is_met_by_lowering_everybody_to_one_level() -> None:
    book = ledger(4)
    book.send(propose(book, 0, np.full(4, np.nan), Limits(site=1600)), 0, until=60)
    assert not book.in_flight.any()
    book = Ledger(book.ratings, caps=to(400, 350, 220, 400))
    commands = propose(book, 0, np.full(4, np.nan), Limits(site=1200))
    assert commands.rows.tolist() == [0, 1, 3]
    assert set(commands.watts.tolist()) == {326.0}
    book.send(commands, 0, until=60)
    book.confirm(*commands, 1)
    assert book.worst().sum() <= 1200


def test_the_others_make_up_for_a_node_that_does_not_answer() -> None:
    book, limits = ledger(4), Limits(site=1200)
    leave = np.full(4, np.nan)
    first = propose(book, 0, leave, limits)
    book.send(first, 0, until=60)
    book.confirm(first.rows[1:], first.watts[1:], 1)
    assert not len(propose(book, 30, leave, limits).rows), "it may still come"
    second = propose(book, 60, leave, limits)
    book.send(second, 60, until=120)
    book.confirm(*second, 61)
    assert book.worst().tolist() == [400.0, 266.0, 266.0, 266.0]


def test_a_group_is_raised_as_a_whole_and_smaller_ones_pass_it() -> None:
    book = ledger(6, cap=200)
    groups = np.array([0, 0, 0, 1, 1, -1])
    commands = propose(book, 0, np.full(6, 250.0), Limits(site=1300), groups=groups)
    assert commands.rows.tolist() == [3, 4]
    rank = np.array([2.0, 2, 2, 1, 1, 0])
    commands = propose(book, 0, np.full(6, 250.0), Limits(site=1350), groups=groups, rank=rank)
    assert commands.rows.tolist() == [3, 4, 5]


def test_targets_are_brought_within_what_the_node_takes() -> None:
    book = ledger(2, cap=300)
    assert propose(book, 0, to(10, 9000), Limits(site=9000)).watts.tolist() == [200.0, 400.0]


def test_a_successor_knows_all_that_is_under_way() -> None:
    book = ledger(2, cap=300)
    book.send(propose(book, 0, to(200, 380), Limits(site=1000)), 0, until=60)
    later = Ledger.restore(book.ratings, book.snapshot())
    assert later.worst().tolist() == [300.0, 380.0]
    assert later.overdue(60).tolist() == [0, 1]


FEWER = pack(np.zeros(2, np.int8), [np.zeros(2)] * 7)
MORE = pack(np.zeros(2, np.int8), [np.zeros(2)] * 9)


@pytest.mark.parametrize("damage", [b"", b"junk", ledger(3).snapshot(), ledger(2).snapshot()[:-9], FEWER, MORE])
def test_a_damaged_ledger_is_not_served(damage: bytes) -> None:
    with pytest.raises(Corrupt, match="ledger of caps"):
        Ledger.restore(ledger(2).ratings, damage)


def test_a_ledger_that_lacks_nodes_which_it_is_said_to_have_is_not_carried_over() -> None:
    with pytest.raises(Corrupt, match="ledger of caps"):
        moved(ledger(2).snapshot(), rows(0, 5))


@pytest.mark.slow
def test_a_hundred_thousand_nodes_are_worked_on_as_columns_and_not_one_by_one() -> None:
    book = ledger(100_000, cap=300)
    odd = np.arange(100_000) % 2
    groups = np.arange(100_000) // 64
    for now in range(3):
        with counted() as work:
            commands = propose(book, now, np.where(odd == now % 2, 250.0, 350.0), Limits(site=32e6), groups=groups)
            book.send(commands, now, until=now + 60)
        assert work.calls < 5000
        assert len(commands.rows) > 50_000, "there was something to do"
        book.confirm(*commands, now)
