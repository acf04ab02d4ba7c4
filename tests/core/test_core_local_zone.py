"""The machine's time zone, whatever the season."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata.core.host.local_zone import LOCAL
from strata.power.capmc.request import moment, stamped, written


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def be(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield be
    monkeypatch.undo()
    time.tzset()


def test_a_time_in_the_other_half_of_the_year_has_its_own_offset(zone: Callable[[str], None]) -> None:
    zone("Europe/Berlin")
    for text, utc in (("2026-01-15 12:00:00", "11"), ("2026-07-15 12:00:00", "10")):
        unix = dt.datetime.fromisoformat(f"{text[:11]}{utc}{text[13:]}+00:00").timestamp()
        assert moment(text, LOCAL, "BAD_START_TIME") == unix
        assert written(unix, LOCAL) == text
        assert stamped(unix + 0.25, LOCAL) == f"{text}.250000+0{12 - int(utc)}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(unix=st.floats(0, 4e9), name=st.sampled_from(["Europe/Berlin", "America/Chicago", "Asia/Kolkata", "UTC"]))
def test_it_is_the_zone_that_the_system_names(zone: Callable[[str], None], unix: float, name: str) -> None:
    zone(name)
    mine, known = (dt.datetime.fromtimestamp(unix, place) for place in (LOCAL, ZoneInfo(name)))
    assert mine.isoformat() == known.isoformat()
    assert abs(mine.timestamp() - unix) < 1e-5 and mine.tzname() == known.tzname()
