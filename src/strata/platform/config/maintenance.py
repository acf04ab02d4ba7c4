"""Maintenance windows: ``Tue,Thu 08:00-12:00``, ``22:00-04:00``. Pure: the time comes in."""

from __future__ import annotations

import datetime as dt
import re

import msgspec

from strata.core.errors import BadRequest

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FORM = re.compile(r"(?:([A-Za-z,-]+) )?(\d\d):(\d\d)-(\d\d):(\d\d)\Z")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Days of the week on which it begins, and the minutes of the day from which and until which it is open."""

    days: frozenset[int]
    begins: int
    ends: int

    def is_open(self, at: dt.datetime) -> bool:
        """Whether it is open at a local time. One that ends before it begins ends on the next day."""
        minute, day = at.hour * 60 + at.minute, at.weekday()
        if self.begins < self.ends:
            return day in self.days and self.begins <= minute < self.ends
        return (day in self.days and minute >= self.begins) or ((day - 1) % 7 in self.days and minute < self.ends)


def parse(text: str) -> Window:
    """Read one; ``BadRequest`` says how it is written."""
    found = _FORM.match(text)
    minutes = [int(found[n]) * 60 + int(found[n + 1]) for n in (2, 4)] if found else []
    if not found or int(found[3]) > 59 or int(found[5]) > 59 or max(minutes) > 24 * 60 or minutes[0] == minutes[1]:
        raise _not_a_window(text)
    return Window(days=_days(found[1] or "Mon-Sun", text), begins=minutes[0], ends=minutes[1])


def _days(words: str, text: str) -> frozenset[int]:
    found: set[int] = set()
    for word in words.split(","):
        first, dash, last = word.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise _not_a_window(text)
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update((begin + n) % 7 for n in range((end - begin) % 7 + 1))
    return frozenset(found)


def _not_a_window(text: str) -> BadRequest:
    return BadRequest(
        "is not a maintenance window", where=repr(text)[:80], hint="such as 'Tue,Thu 08:00-12:00' or '22:00-04:00'"
    )
