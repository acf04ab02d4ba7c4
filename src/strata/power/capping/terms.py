"""The words of capping: what a node is used for, what it draws, what the site allows, what is commanded."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Column = NDArray[np.float64]
Mask = NDArray[np.bool_]

SETTLE = 60.0
"""Seconds that whoever sends a command gives it. After that it is given up, and cannot take effect any more."""


GRACE = 5.0
"""Seconds before the end of ``SETTLE`` at which what has not been answered is given up."""


class Use(IntEnum):
    """What a node is doing, as far as power goes."""

    OFF = 0
    STOPPING = 1
    IDLE = 2
    BOOTING = 3
    BUSY = 4
    """Runs a job, or may at any moment: draws up to its cap."""


class Ratings(NamedTuple):
    """Watts of each node, a column each."""

    idle: Column
    boot: Column
    """The most while it starts."""
    low: Column
    """The lowest cap that it takes."""
    high: Column
    """The most that it draws without a cap."""

    @classmethod
    def alike(cls, count: int, *, idle: float, boot: float, low: float, high: float) -> Ratings:
        """``count`` nodes with the same figures."""
        return cls(*(np.full(count, value, np.float64) for value in (idle, boot, low, high)))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the site allows, in watts."""

    site: float
    """Never more than this, at any instant."""
    floor: float = 0.0
    """The lower edge of the power band: caps are not lowered so far that the machine could not draw this."""
    ramp_up: float = np.inf
    """The most by which what may be drawn rises within any minute."""
    ramp_down: float = np.inf
    """The same for lowering caps; not heeded while more may be drawn than ``site`` allows."""


class Commands(NamedTuple):
    """Caps to set: one value for each row."""

    rows: Rows
    watts: Column


NOTHING = Commands(np.empty(0, np.int64), np.empty(0, np.float64))

Control = Literal["node", "accel"]


class CapChange(msgspec.Struct, frozen=True, kw_only=True):
    """Caps to set, one value for each uid; 0 takes the cap off."""

    control: Control
    uids: Rows
    watts: Column


class Bounds(NamedTuple):
    """By how many watts what may be drawn can move one way."""

    whole: float
    """In all: to the limit, or to the floor."""
    ramp: float
    """Within any minute."""
    moved: float
    """Within this one already."""

    @property
    def now(self) -> float:
        return min(self.whole, self.ramp - self.moved) if self.whole > 0 else self.whole
