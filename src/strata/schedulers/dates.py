"""Times as schedulers' commands print them where they are asked in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

ZONE = {"TZ": "UTC"}
"""Environment in which commands print times in UTC, and not in the zone of whoever answers."""
LONG = "%a %b %d %H:%M:%S %Y"
"""As ``date`` prints it: ``Mon Nov 16 15:45:31 2026``."""


def seconds(told: str, *forms: str) -> float | None:
    """Seconds since 1970, by the first form that fits; None: no time."""
    for form in forms or (LONG,):
        try:
            return datetime.strptime(told, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def this_year(told: str, form: str, now: float) -> float | None:
    """The same of a time that has no year: the last such one that is not more than a day ahead of ``now``."""
    year = datetime.fromtimestamp(now, UTC).year
    for tried in range(year + 1, year - 4, -1):  # back to a leap year
        found = seconds(f"{tried} {told}", f"%Y {form}")
        if found is not None and found <= now + 86_400:
            return found
    return None


def duration(told: str) -> int | None:
    """``48:00:00`` or seconds; None: no limit."""
    parts = told.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    found = 0
    for part in parts:
        found = found * 60 + int(part)
    return found
