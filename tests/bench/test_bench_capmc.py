"""The benchmark of CAPMC's replies, small."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

pytestmark = [pytest.mark.server, pytest.mark.slow]

APPLETS = {"start_s", "node_status_s", "get_power_cap_s", "capabilities_s", "energy_counter_s"}


def test_every_applet_that_is_measured_answers_for_all_nodes(scratch: Path) -> None:
    found = figures(scratch, "capmc.py", "--nodes", "60", "--rounds", "1")
    assert found.keys() == {"nodes", "peak_rss_mb", *APPLETS}
    assert found["nodes"] == 60
    assert all(found[name] >= 0.5 * found["start_s"] > 0 for name in APPLETS), "each is a program that starts"
