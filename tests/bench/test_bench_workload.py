"""The benchmark of workload managers, small."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_it_asks_a_real_slurm_about_every_node(tmp_path: Path) -> None:
    found = figures(tmp_path, "workload.py", "--nodes", "200")
    assert (found["nodes"], found["drained"], found["jobs"]) == (200, 40, 100)
    assert 1 < found["rows"] <= 52, "Slurm folds nodes that are alike"
    assert all(found[name] > 0 for name in ("drain_s", "look_s", "bytes", "read_ms", "jobs_ms", "facts_ms"))
