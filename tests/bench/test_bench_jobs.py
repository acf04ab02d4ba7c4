"""``bench/jobs.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

from support.native import built


@pytest.mark.slow
def test_starts_in_a_container_are_compared_with_a_plain_unshare(scratch: Path) -> None:
    built()
    scratch.chmod(0o755)  # somebody who is not root looks into it
    found = figures(scratch, "jobs.py", "--only", "native", "--rounds", "3")
    assert found["rounds"] == 3
    kinds = ("bare_ms", "unshare_ms", "native_ms", "native_pid_ms", "native_layer_ms")
    assert all(found[name] > 0 for name in kinds)
    assert found["native_ratio_to_unshare"] == pytest.approx(found["native_ms"] / found["unshare_ms"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.server
def test_jobs_are_run_and_listed_and_their_scheduler_is_asked_once_an_interval(scratch: Path) -> None:
    scratch.chmod(0o755)
    found = figures(
        scratch, "jobs.py", "--only", "local", "--only", "list", "--jobs", "20", "--listed", "200", "--polls", "1"
    )
    assert (found["local_jobs"], found["listed"]) == (20, 200)
    assert all(found[name] > 0 for name in ("local_jobs_per_s", "local_p99_ms", "bare_jobs_per_s", "list_200_p99_ms"))
    assert found["polls"] >= 1, "the scheduler is asked while jobs are listed"
    assert found["polls_per_interval"] <= 1
