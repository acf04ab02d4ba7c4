"""Energy counters as whoever asks more often than nodes are read wants them: they go on rising between two readings.

What a node used since its counter was last read is reckoned from its power; and so is what a coarse counter, one that
counts in tenths of a kilowatt hour, has not shown yet. The result never falls: a counter that begins anew goes on from
where it was, and one that stands still while its node draws power is left behind. Where too much was reckoned, it goes
on at half its pace until the truth has caught up: one that stood still would be taken for a node without power.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Uids = npt.NDArray[np.int64]

QUANTUM = 0.125
"""Joules: how finely counters are told apart, as in the series."""
STILL = 3.0
"""Steps of a counter for which it may stand still before it is left behind."""
SLOWER = 0.5
"""The pace of a counter that is ahead of the truth, as a share of its node's power."""
FARTHEST = 60.0
"""Seconds of its node's power that it may be ahead and still move."""
_FIELDS = ("shown", "read", "watts", "step", "offset", "total", "held", "told", "asked")


class Counters:
    """Of every node, by uid. Not safe for threads."""

    def __init__(self) -> None:
        self._fields: dict[str, Floats] = {name: np.empty(0) for name in _FIELDS}

    def take(self, uids: Uids, joules: Floats, times: Floats, watts: Floats) -> None:
        """Counters were read. ``watts``: what the nodes draw; NaN: nobody tells, and it is what the counter rose by."""
        self._grow(uids)
        shown, read, step, offset, total, held = (
            self._fields[name][uids] for name in ("shown", "read", "step", "offset", "total", "held")
        )
        first = np.isnan(shown)
        shown, read = np.where(first, joules, shown), np.where(first, times, read)
        offset, total = np.where(first, 0.0, offset), np.where(first, joules, total)
        passed, rise = np.maximum(0.0, times - read), joules - shown
        own = np.divide(rise, passed, out=np.zeros_like(rise), where=(passed > 0) & (rise > 0))
        rate = np.where(np.isnan(watts), own, watts)
        reckoned = total + rate * passed
        risen = rise > 0
        units = np.rint(np.stack([np.where(np.isnan(step), 0.0, step), np.where(risen, rise, 0.0)]) / QUANTUM)
        step = np.gcd(*units.astype(np.int64)) * QUANTUM
        # One that began anew goes on from where it was.
        offset = np.where(rise < 0, reckoned - joules, offset)
        least = joules + offset
        pace = np.maximum(step, rate * passed)
        unknown = step <= 0  # it has not moved yet: nobody knows how coarse it is
        most = np.where(unknown, np.inf, np.maximum(least + pace, total))
        found = np.clip(reckoned, least, most)
        # What it does not show is held back until it does, or until it is plain that it never will.
        held = np.where(risen, 0.0, np.nan_to_num(held)) + np.maximum(0.0, reckoned - most)
        left = held > STILL * pace
        found = np.where(left, found + held, found)
        offset, held = np.where(left, found - joules, offset), np.where(left, 0.0, held)
        for name, values in (
            ("shown", joules), ("read", times), ("watts", rate), ("step", step), ("offset", offset), ("total", found),
            ("held", held),
        ):  # fmt: skip
            self._fields[name][uids] = values

    def at(self, uids: Uids, now: float, fresh: float) -> tuple[Floats, Floats, Floats]:
        """Joules, of which time they are, and when they were read; NaN where that is more than ``fresh`` seconds ago.
        Who asks again is told no less."""
        self._grow(uids)
        total, read, watts, told, asked = (
            self._fields[name][uids] for name in ("total", "read", "watts", "told", "asked")
        )
        known, rate = read >= now - fresh, np.nan_to_num(watts)
        found = total + rate * np.maximum(0.0, now - read)
        slow = np.minimum(told + SLOWER * rate * np.maximum(0.0, now - asked), found + FARTHEST * rate)
        found = np.where(known, np.fmax(found, np.fmax(told, slow)), np.nan)
        self._fields["told"][uids] = np.where(known, found, told)
        self._fields["asked"][uids] = now
        return found, np.where(known, np.maximum(read, now), np.nan), np.where(known, read, np.nan)

    def forget(self, uids: Uids) -> None:
        """Of nodes that are no more nothing is known."""
        uids = uids[uids < len(self._fields["shown"])]
        for values in self._fields.values():
            values[uids] = np.nan

    def _grow(self, uids: Uids) -> None:
        size = int(uids.max(initial=-1)) + 1
        room = len(self._fields["shown"])
        if size > room:
            room = max(size, 2 * room, 1024)
            for name, values in self._fields.items():
                self._fields[name] = np.append(values, np.full(room - len(values), np.nan))
