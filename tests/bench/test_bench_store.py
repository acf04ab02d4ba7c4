"""``bench/store.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

MEASURED = ("single_per_s", "many64_per_s", "puts_per_s", "watch_p50_ms", "watch_p99_ms")


@pytest.mark.slow
def test_sqlite_is_held_against_raw_sqlite(scratch: Path) -> None:
    found = figures(scratch, "store.py", "--seconds", "0.1", "--no-etcd")
    assert all(found[f"sqlite_{figure}"] > 0 for figure in MEASURED)
    ratio = found["sqlite_puts_per_s"] / found["sqlite_puts_raw_sqlite_per_s"]
    assert found["sqlite_puts_ratio_to_raw_sqlite"] == pytest.approx(ratio, rel=0.01)
    assert not any(name.startswith("etcd") for name in found)


@pytest.mark.slow
@pytest.mark.server
def test_a_real_etcd_is_measured_in_the_same_way(scratch: Path) -> None:
    found = figures(scratch, "store.py", "--seconds", "0.2")
    assert all(found[f"etcd_{figure}"] > 0 for figure in MEASURED)
    assert found["etcd_puts_ratio_to_raw_sqlite"] < 1
