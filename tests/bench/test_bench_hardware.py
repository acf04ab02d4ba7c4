"""``bench/hardware.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_discovery_and_sweeps_are_timed(scratch: Path) -> None:
    found = figures(scratch, "hardware.py", "--nodes", "200", "--discover", "20")
    assert {"discover_20_s", "sweep_200_s", "sweep_200_warm_s", "sweep_200_dead_s", "ratio_to_bare"} <= set(found)
    # A first sweep logs in everywhere; a second one asks each controller once.
    assert 0 < found["sweep_200_warm_s"] < found["sweep_200_s"]
    assert found["discover_requests_each"] < 20
    assert found["ratio_to_bare"] > 0
