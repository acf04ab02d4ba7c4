"""What containers cost to start, by each runtime that is here."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_every_runtime_that_works_here_is_told_as_a_ratio_to_the_least_that_a_container_can_be() -> None:
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as short:  # podman takes no long paths
        Path(short).chmod(0o755)
        found = figures(Path(short), "jobs.py", "--only", "runtimes", "--rounds", "1")
    for name in ("charliecloud", "bubblewrap", "podman", "runc", "udocker"):
        assert found[f"{name}_ratio_to_unshare"] > 0 and found[f"{name}_start_ms"] > 0, name
