"""``bench/fleet.py`` runs what ``strata up`` runs, says what is documented, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

KEYS = {
    "nodes", "up_s", "rss_mb", "files", "files_allowed", "idle_cores", "status_p50_s", "status_p99_s", "status_max_s",
    "freeze_s", "list_json_s", "service_cpu_s", "simulator_cpu_s", "simulator_rss_mb", "seed",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.server
def test_a_whole_fleet_comes_up_while_somebody_asks_and_freezes(scratch: Path) -> None:
    found = figures(scratch, "fleet.py", "--nodes", "60", "--settle", "0", "--idle", "1")
    assert found.keys() == KEYS
    assert found["nodes"] == 60
    assert 0 < found["files"] < found["files_allowed"]
    assert 0 < found["status_p50_s"] <= found["status_p99_s"] <= found["status_max_s"]
    assert found["freeze_s"] > 0
