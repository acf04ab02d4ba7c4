"""``bench/boot.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_boot_scripts_are_compared_with_nginx_and_every_node_boots(scratch: Path) -> None:
    found = figures(scratch, "boot.py", "--scripts-only", "--nodes", "200", "--seconds", "1")
    assert found["boot_nodes"] == 200 and found["boot_5000_s"] > 0
    assert found["script_ratio_to_nginx"] == pytest.approx(found["scripts_per_s"] / found["nginx_per_s"], abs=0.01)
    assert found["script_cpu_us"] > 0 and found["nginx_cpu_us"] > 0
    assert found["script_bytes"] > 500
