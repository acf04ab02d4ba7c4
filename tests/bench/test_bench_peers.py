"""``bench/peers.py`` measures Strata as it says; Ironic is pinned to the last package.

Installing Ironic takes minutes and a network, so that half is not tried here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench_support import BENCH, figures


def test_every_package_of_ironic_has_its_version_and_none_names_a_place() -> None:
    lines = (BENCH / "ironic.txt").read_text().splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert {"ironic", "sushy", "psycopg2-binary"} <= {line.partition("==")[0] for line in lines}


@pytest.mark.slow
@pytest.mark.server
def test_strata_is_measured_on_bmcs_with_addresses_of_their_own(scratch: Path) -> None:
    found = figures(scratch, "peers.py", "--only", "strata", "--nodes", "5", "--seconds", "0.5")
    assert found["nodes"] == 5
    assert all(
        found[f"strata_{name}"] > 0 for name in ("enrol_s", "power_on_s", "get_p50_ms", "get_per_s", "memory_mb")
    )
