"""``bench/plan.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_plans_and_reactions_are_timed(scratch: Path) -> None:
    found = figures(scratch, "plan.py", "--nodes", "400", "--look-ms", "20")
    assert {"nodes", "plan_s", "cli_plan_s", "classes", "react_ms", "react_median_ms", "sweeps", "look_ms"} <= set(
        found
    )
    # The command does all that the service does, and starts first.
    assert 0 < found["plan_s"] < found["cli_plan_s"]
    # Nodes that are ready and nodes that are off do not have the same way to go.
    assert found["classes"] > 3
    assert 0 < found["react_median_ms"] <= found["react_ms"]
    assert found["sweeps"] > 0
