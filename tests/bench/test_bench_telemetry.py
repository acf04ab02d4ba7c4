"""``bench/telemetry.py`` runs, says what is documented, and cleans up."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

KEYS = {
    "nodes", "real_time", "bulk_samples_per_s", "bulk_cores", "job_stats_ms", "job_stats_cpu_ms",
    "job_stats_side_by_side_ms", "job_stats_with_counters_ms", "system_power_ms", "node_history_ms",
    "all_nodes_latest_ms", "copy_samples_per_s",
    "ratio_to_copy", "copied_nodes", "sql_job_ms", "same_job_ms", "job_ratio_to_sql", "sql_power_ms", "same_power_ms",
    "power_ratio_to_sql", "sql_bytes_per_sample", "live_cores", "live_seconds", "append_worst_ms", "bytes_per_sample",
    "postgres_bulk_samples_per_s", "samples", "peak_rss_mb", "seed",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.server
def test_it_is_measured_against_postgresql_in_the_same_run(scratch: Path) -> None:
    # PostgreSQL runs as another user than root, and its data are below.
    scratch.chmod(0o711)
    options = ("--nodes", "300", "--bulk", "400", "--live", "20", "--job", "100", "--copied", "50")
    found = figures(scratch, "telemetry.py", *options)
    assert found.keys() == KEYS
    assert found["samples"] == 300 * 420
    assert found["ratio_to_copy"] == pytest.approx(found["bulk_samples_per_s"] / found["copy_samples_per_s"], rel=0.01)
    assert found["bytes_per_sample"] < found["sql_bytes_per_sample"]
    assert all(found[name] > 0 for name in KEYS - {"real_time"})
