"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.times import parse_duration, parse_when, span, when

NOW = 1_767_225_600.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h", 3600), ("1h30m", 5400), ("1.5h", 5400), ("7d", 604800), ("1y", 31536000)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "1 h", "-1h", "1hour", "１h"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="1h30m"):
        parse_duration(text)


@given(st.integers(0, 10**8))
def test_a_span_reads_back_to_within_its_smallest_unit(seconds: int) -> None:
    text = span(seconds)
    smallest = {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]
    assert abs(parse_duration(text) - seconds) < max(smallest, 86400 if "d" in text and "h" not in text else 3600)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-3, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (190, "3m10s"), (18005, "5h"), (187200, "2d4h")],
)
def test_spans_are_short(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_a_duration_as_a_time_is_that_long_ago() -> None:
    assert parse_when("1h", NOW) == NOW - 3600
    assert parse_when("now", NOW) == NOW
    assert parse_when("@12.5", NOW) == 12.5


def test_a_date_with_a_zone_is_that_moment() -> None:
    assert parse_when("2026-01-01T00:00:00+00:00", 0) == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@given(st.integers(0, 4_000_000_000))
def test_a_shown_time_can_be_typed_back(seconds: int) -> None:
    shown = when(float(seconds))
    # The hour that is repeated when summer time ends has two moments for one text.
    assert parse_when(shown, 0) in (seconds, seconds - 3600, seconds + 3600)


@pytest.mark.parametrize("text", ["", "yesterday", "@x", "2026-13-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="an hour ago"):
        parse_when(text, NOW)


def test_an_absurd_time_is_shown_as_a_number() -> None:
    assert when(1e20) == "@1e+20"
    assert when(None) == "-"
