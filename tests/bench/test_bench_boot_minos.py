"""``bench/boot_minos.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_the_way_from_the_kernel_to_the_agent_is_measured(scratch: Path) -> None:
    found = figures(scratch, "boot_minos.py", "--turns", "1")
    assert set(found) == {"kernel_to_agent_s", "kernel_to_agent_cpu_s"}
    assert all(value > 0 for value in found.values())
