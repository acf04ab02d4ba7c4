"""``bench/policy.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
def test_a_simulated_day_is_measured(scratch: Path) -> None:
    found = figures(scratch, "policy.py", "--nodes", "160", "--days", "0.2")
    assert found["limit_w"] == 40_000
    for name in ("policy", "policy_dies", "static", "fewer"):
        assert found[f"{name}_over_limit_s"] == 0
        assert 0 < found[f"{name}_peak_w"] <= found[f"{name}_peak_possible_w"] <= found["limit_w"]
        assert found[f"{name}_jobs_per_day"] > 0 and found[f"{name}_energy_kwh"] > 0
    assert found["policy_node_hours"] > found["fewer_node_hours"]
    assert found["simulate_s"] > 0
