"""Traces of jobs: generated, and read from recordings."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.power.simulation.trace import generate
from strata.power.simulation.trace_files import read

SWF = """\
; Version: 2.2
; MaxNodes: 4
; MaxProcs: 64
1 100 5 3600 32 -1 -1 32 7200 -1 1 7 1 -1 2 -1 -1 -1
2 40 0 60 -1 -1 -1 17 120 -1 1 7 1 -1 1 -1 -1 -1
3 50 0 0 16 -1 -1 16 120 -1 0 7 1 -1 1 -1 -1 -1
4 200 0 10 6400 -1 -1 6400 5 -1 1 7 1 -1 1 -1 -1 -1
"""

SACCT = """\
Submit|ElapsedRaw|TimelimitRaw|NNodes|ConsumedEnergyRaw|Partition|State
2026-01-05T08:00:10|100|30|2|50000|frugal|COMPLETED
2026-01-05T08:00:00|3600|UNLIMITED|4||free|COMPLETED
2026-01-05T09:00:00|0|30|4||free|CANCELLED by 1000
"""


def test_the_same_seed_gives_the_same_jobs() -> None:
    one, other = (generate(7, nodes=100, days=0.1, high=400.0) for _ in range(2))
    assert all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))
    assert not np.array_equal(one.seconds, generate(8, nodes=100, days=0.1, high=400.0).seconds)


def test_generated_jobs_ask_for_the_load_that_was_said() -> None:
    trace = generate(1, nodes=2000, days=1, high=400.0, load=1.3)
    asked = float((trace.nodes * trace.seconds).sum()) / (2000 * 86400)
    assert asked == pytest.approx(1.3, rel=0.02)
    assert (np.diff(trace.submit) >= 0).all() and (trace.limit >= trace.seconds).all()
    assert trace.nodes.max() <= 2000 and trace.watts.max() <= 400


def test_a_job_draws_the_same_in_every_simulation() -> None:
    trace = generate(1, nodes=100, days=0.1, high=400.0)
    assert np.array_equal(trace.levels(3, 400.0), trace.levels(3, 400.0))
    assert trace.levels(3, 300.0).max() <= 300.0


def test_one_node_is_a_machine_too() -> None:
    assert set(generate(1, nodes=1, days=0.01, high=400.0).nodes.tolist()) == {1}


def test_swf_is_read_in_order_of_arrival_and_by_nodes() -> None:
    trace = read(SWF, source="t.swf", nodes=100, high=400.0, queues=("1", "2"))
    assert trace.submit.tolist() == [0.0, 60.0, 160.0]
    assert trace.nodes.tolist() == [2, 2, 100], "16 processors a node, begun ones count; no more than there are"
    assert trace.limit.tolist() == [120.0, 7200.0, 10.0]
    assert trace.queue.tolist() == [0, 1, 0]


@pytest.mark.parametrize("text", [SACCT, SACCT.replace("|", ",")])
def test_what_sacct_prints_is_read_with_the_energy_that_it_knows(text: str) -> None:
    trace = read(text, source="t.txt", nodes=100, high=400.0, queues=("frugal",))
    assert trace.submit.tolist() == [0.0, 10.0]
    assert trace.watts[1] == 250.0
    assert 0 < trace.watts[0] <= 400.0
    assert trace.limit.tolist() == [3600.0, 1800.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no job that ran"),
        ("; only a comment\n", "holds no job that ran"),
        ("1 2 3\n", "t, line 1: found '1 2 3'; expected at least 9 numbers"),
        ("1 2 3 4 5 6 7 8 x\n", "t, line 1"),
        ("Submit|NNodes\n", "t, line 1: the heading has no column elapsedraw"),
        ("Submit|ElapsedRaw|NNodes\nnow|3|4\n", "t, line 2: found 'now|3|4'"),
        ("Submit|ElapsedRaw|NNodes\n5|3\n", "t, line 2"),
    ],
)
def test_a_line_that_is_none_is_named(text: str, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(text, source="t", nodes=10, high=400.0)
    assert says in str(caught.value)
