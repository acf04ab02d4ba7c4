"""``bench/dashboard.py`` runs and says what is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_support import figures


@pytest.mark.slow
@pytest.mark.server
def test_a_page_is_loaded_changed_and_zoomed(scratch: Path) -> None:
    found = figures(scratch, "dashboard.py", "--nodes", "10000", "--times", "1")
    assert found["nodes"] == 10_000
    assert {"first_paint_s", "update_5000_ms", "update_page_ms", "zoom_fps"} <= set(found)
    assert found["zoom_fps"] > 0
    assert 0 < found["update_bytes"] < found["load_bytes"] < 2_000_000
