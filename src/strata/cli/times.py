"""Times as people type and read them. The API speaks Unix seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime

import click

from strata.core.units import show_seconds

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdwy])")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdwy])+\Z")


def parse_duration(text: str) -> float:
    """Seconds in ``90s``, ``1h30m``, ``7d``; raises ``ValueError``."""
    if not _DURATION.match(text):
        raise ValueError(f"{text!r} is not a duration such as 90s, 30m, 1h30m, 7d")
    return float(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def parse_when(text: str, now: float) -> float:
    """Unix time of ``1h`` (that long ago), ``now``, ISO 8601 (local without a zone) or ``@SECONDS``."""
    if text == "now":
        return now
    try:
        if text.startswith("@"):
            return float(text[1:])
        if _DURATION.match(text):
            return now - parse_duration(text)
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time such as 1h (an hour ago), 2026-01-31, '2026-01-31 12:00', @1767225600"
        ) from None


def when(unix: float | None) -> str:
    """Local time to the second; ``-`` for none."""
    if unix is None:
        return "-"
    try:
        return datetime.fromtimestamp(unix).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"@{unix}"


def span(seconds: float | None) -> str:
    """A length of time, short: ``12s``, ``3m10s``, ``5h``, ``2d4h``; ``-`` for none."""
    return "-" if seconds is None else show_seconds(seconds)


class _Seconds(click.ParamType[float]):
    """An option whose text ``parse`` makes seconds of."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; a number is taken as it is."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Seconds("duration", parse_duration)
"""An option that takes ``30m``."""
WHEN = _Seconds("time", lambda text: parse_when(text, time.time()))
"""An option that takes ``1h`` or a date."""
