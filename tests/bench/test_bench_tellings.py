"""``bench/tellings.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures

QUICK = ("--nodes", "40", "--reporting", "2", "--samples", "5", "--minutes", "0.1")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("what", ["report", "event"])
def test_the_time_from_a_telling_to_a_fact_and_looks_are_measured(scratch: Path, what: str) -> None:
    events = ("--events",) if what == "event" else ()
    told = figures(scratch, "tellings.py", *QUICK, *events)
    hinted = figures(scratch, "tellings.py", *QUICK, *events, "--hints")
    for found, mode in ((told, "tellings"), (hinted, "hints")):
        assert found["mode"] == mode
        assert 0 < found[f"{what}_to_fact_ms"] <= found[f"{what}_to_fact_p99_ms"]
    assert hinted["looks_per_node_minute"] > 0
    assert set(told) == set(hinted)
