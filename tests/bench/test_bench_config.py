"""``bench/config.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_plans_of_a_repository_are_timed(scratch: Path) -> None:
    found = figures(scratch, "config.py", "--nodes", "300")
    assert {"nodes", "plan_20000_s", "plan_one_s", "apply_20000_s", "apply_again_s", "render_20000_s"} <= set(found)
    assert found["nodes"] == 300
    assert found["plan_one_cpu_s"] > 0 and found["plan_20000_cpu_s"] > 0
