"""``bench/boot_dhcp.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_exchanges_are_counted_for_kea_and_for_us(scratch: Path) -> None:
    found = figures(scratch, "boot_dhcp.py", "--clients", "100", "--seconds", "1", "--rates", "300")
    assert set(found) == {"dhcp_ratio_to_kea", "dhcp_per_s", "kea_per_s", "kea_in_memory_per_s"}
    # What is shown is no more than what was asked for.
    assert all(0 < found[name] < 330 for name in ("dhcp_per_s", "kea_per_s", "kea_in_memory_per_s"))
