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


def duration(told: str) -> int | None:
    """``48:00:00`` or seconds; None: no limit."""
    parts = told.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    found = 0
    for part in parts:
        found = found * 60 + int(part)
    return found
