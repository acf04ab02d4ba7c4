"""The benchmark of rollouts, small."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_it_completes_within_its_limits_with_bad_nodes_and_a_controller_that_is_killed(scratch: Path) -> None:
    found = figures(scratch, "rollout.py", "--nodes", "200", "--kills", "2")
    assert (found["nodes"], found["kills"]) == (200, 2)
    assert found["bad"] > 0
    assert (found["ready"], found["failed"]) == (200 - found["bad"], found["bad"])
    assert found["limit_exceeded"] == 0
    assert found["peak_out"] == found["limit_out"]
    assert found["ratio_to_minimum"] == pytest.approx(found["seconds"] / found["minimum_seconds"], rel=0.01)
    assert found["ratio_to_minimum"] >= 1
