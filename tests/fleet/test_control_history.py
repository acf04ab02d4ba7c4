"""A node's past: what it was when, in pages, after pruning, after damage."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core import intset
from strata.core.errors import BadRequest, Compacted, Corrupt, Unavailable
from strata.fleet.history import file as history_file
from strata.fleet.history.file import HistoryFile
from strata.fleet.history.history import History
from strata.fleet.history.transitions import (
    MOST_BYTES,
    MOST_NODES,
    Change,
    FactChange,
    Transition,
    decode,
    encode,
    key_of,
    rows_of,
    seq_of,
)
from support.work import counted


def row(when: float, variable: str, new: str, *uids: int, old: str = "?") -> Transition:
    return Transition(when, "c1", (Change(variable, old, new, "bmc", "seen", intset.pack(list(uids))),))


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    history = await History.open(tmp_path / "history.db")
    yield history
    await history.close()


async def test_only_its_owner_reads_the_history(history: History, tmp_path: Path) -> None:
    await history.append([(1, row(1.0, "power", "on", 1))])
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


async def test_a_nodes_changes_come_newest_first_in_pages_without_gap_or_repeat(history: History) -> None:
    await history.append([(rev, row(float(rev), "power", f"v{rev}", 1, 2)) for rev in range(1, 8)])
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await history.of_node(1, limit=3, before=cursor)
        seen += [item.new for item in page.items]
        if page.next is None:
            break
        assert len(page.items) == 3
        cursor = page.next
    assert seen == [f"v{rev}" for rev in range(7, 0, -1)]
    between = await history.of_node(2, since=3, until=5)
    assert [item.time for item in between.items] == [5, 4, 3] and between.next is None
    assert (await history.of_node(3)).items == ()


async def test_the_state_at_a_time_is_the_last_word_on_every_variable_by_then(history: History) -> None:
    await history.append([(1, row(10, "power", "on", 1)), (2, row(20, "os", "up", 1)), (3, row(30, "power", "off", 1))])
    assert await history.state_at(1, 5) == {}
    assert await history.state_at(1, 10) == {"power": "on"}
    assert await history.state_at(1, 29) == {"power": "on", "os": "up"}
    assert await history.state_at(1, 1e12) == {"power": "off", "os": "up"}


async def test_a_clock_that_jumps_back_does_not_change_what_came_last(history: History) -> None:
    await history.append([(1, row(5000, "power", "on", 1)), (2, row(1400, "power", "off", 1))])
    assert await history.state_at(1, 9000) == {"power": "off"}
    assert [item.new for item in (await history.of_node(1)).items] == ["off", "on"]


async def test_rows_that_are_in_already_are_passed_over(history: History) -> None:
    batch = [(4, row(1, "power", "on", 1)), (4, row(1, "os", "up", 1)), (5, row(2, "power", "off", 1))]
    assert await history.append(batch) == 3
    assert await history.append(batch) == 0
    assert history.last_revision == 5
    assert len((await history.of_node(1)).items) == 3
    await history.append([], through=9)
    assert history.last_revision == 9


async def test_the_watermark_survives_a_restart(tmp_path: Path) -> None:
    first = await History.open(tmp_path / "h")
    await first.append([(7, row(1, "power", "on", 1))], through=12)
    await first.close()
    second = await History.open(tmp_path / "h")
    assert second.last_revision == 12
    assert await second.state_at(1, 2) == {"power": "on"}
    await second.close()


async def test_pruning_keeps_what_the_state_needs_and_says_how_far_back_one_can_ask(history: History) -> None:
    await history.append([(rev, row(float(rev), "power", f"v{rev}", 1, 2)) for rev in range(1, 10)])
    await history.append([(10, row(2.5, "os", "up", 1))])
    assert await history.prune(6.0) == 8
    assert await history.state_at(1, 6.0) == {"power": "v6", "os": "up"}
    assert await history.state_at(2, 7.5) == {"power": "v7"}
    assert [item.time for item in (await history.of_node(1)).items] == [9, 8, 7, 6]
    with pytest.raises(Compacted, match="1970-01-01 00:00:06Z"):
        await history.state_at(1, 5.9)
    assert await history.prune(6.0) == 0


async def test_pruning_forgets_nodes_that_are_no_more(history: History) -> None:
    await history.append([(1, row(1, "power", "on", 1, 2)), (2, row(9, "os", "up", 2))])
    await history.prune(5, living=np.array([1]))
    assert await history.state_at(1, 10) == {"power": "on"}
    assert await history.state_at(2, 10) == {"os": "up"}, "what is within retention stays"
    await history.prune(20, living=np.array([1]))
    assert await history.state_at(2, 30) == {}
    assert await history.state_at(1, 30) == {"power": "on"}


events = st.lists(
    st.tuples(st.sets(st.integers(1, 4), min_size=1), st.sampled_from("xy"), st.sampled_from("abc"), st.integers(0, 9)),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(events, st.integers(0, 10), st.integers(1, 6))
def test_any_past_reads_as_a_list_would_before_and_after_pruning(
    tmp_path_factory: pytest.TempPathFactory, past: list[tuple], cut: int, segment: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_file, "SEGMENT_ROWS", segment)
        patch.setattr(history_file, "_SLICE", 2)
        file = HistoryFile(tmp_path_factory.mktemp("history") / "h")
        for revision, (uids, variable, new, when) in enumerate(past, 1):
            file.append([(revision, row(float(when), variable, new, *uids))], revision)

        def expected(uid: int, at: float) -> dict[str, str]:
            return {variable: new for uids, variable, new, when in past if uid in uids and when <= at}

        for pruned in (False, True):
            for uid in range(1, 5):
                own = [(float(w), v, n) for uids, v, n, w in reversed(past) if uid in uids and (not pruned or w >= cut)]
                found = file.of_node(uid, float("-inf"), float("inf"), None, 1000)
                assert [(one.time, one.variable, one.new) for _, one in found] == own
                for at in range(cut if pruned else 0, 11):
                    assert file.state_at(uid, at) == expected(uid, at)
            file.begin_prune(cut)
            for first in file.slices():
                file.prune_slice(first, cut, None)
            file.end_prune(cut)
        file.close()


@pytest.mark.parametrize("damage", [b"not a database at all, but long enough to look at" * 30, b""])
async def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "h"
    path.write_bytes(damage)
    history = await History.open(path)
    assert history.last_revision == 0, "so that the log is read from the beginning"
    await history.append([(1, row(1, "power", "on", 1))])
    assert await history.state_at(1, 2) == {"power": "on"}
    await history.close()


async def test_damage_that_shows_later_is_never_served_and_heals_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "h"
    history = await History.open(path)
    for rev in range(1, 40):
        await history.append([(rev, row(float(rev), "power", f"v{rev}" * 50, *range(1, 500)))])
    await history.close()
    content = bytearray(path.read_bytes())
    after_the_roots = 6 * 4096
    content[after_the_roots:] = b"\xff" * (len(content) - after_the_roots)
    path.write_bytes(content)
    history = await History.open(path)
    assert history.last_revision == 39
    with pytest.raises(Corrupt, match="start the service anew"):
        await history.of_node(7)
    await history.close()
    history = await History.open(path)
    assert history.last_revision == 0 and (await history.of_node(7)).items == ()
    await history.close()


async def test_a_place_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await History.open(tmp_path / "missing" / "h")


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", str(2**63)])
async def test_a_foreign_cursor_is_refused(history: History, cursor: str) -> None:
    with pytest.raises(BadRequest, match="cursor"):
        await history.of_node(1, before=cursor)


def test_changes_are_cut_into_rows_of_bounded_size() -> None:
    scattered = np.random.default_rng(1).permutation(200_000)[:100_000] * 2
    changes = [FactChange("power", "off", "on", "bmc", "seen", scattered)]
    rows = rows_of(5.0, "c1", changes)
    entries = [change for each in rows for change in each.changes]
    assert all(intset.count(change.uids) <= MOST_NODES for change in entries)
    assert all(len(encode(each)) <= MOST_BYTES for each in rows)
    assert np.array_equal(np.concatenate([intset.unpack(change.uids) for change in entries]), np.sort(scattered))
    assert [decode(encode(each)) for each in rows] == rows
    assert rows_of(5.0, "c1", []) == []


def test_a_row_has_a_key_in_order_and_junk_is_named() -> None:
    assert key_of(42) == "transition/0000000000000042" and seq_of(key_of(42)) == 42
    with pytest.raises(Corrupt, match="transition/x"):
        seq_of("transition/x")
    with pytest.raises(Corrupt, match="row 7"):
        decode(b"junk", "row 7")


@pytest.mark.slow
async def test_whole_fleet_changes_are_appended_as_a_whole_and_not_one_by_one(history: History) -> None:
    uids = np.random.default_rng(1).permutation(100_000)
    changes = [FactChange("power", "off", "on", "bmc", "seen", uids[i : i + 5000]) for i in range(0, 100_000, 5000)]
    batch = [(rev, each) for rev in (1, 2) for each in rows_of(float(rev), "c1", changes)]
    with counted() as work:
        assert await history.append(batch) == 200_000
    assert work.calls < 100_000
