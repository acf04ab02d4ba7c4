"""The wire of rehearsals: commands take their time, some never arrive, and of some nobody hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from strata.power.capping.terms import Commands


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of commands."""

    slowest: int = 8
    """They take effect after 1 to this many seconds."""
    lost: float = 0.005
    """Part of them that never arrive."""
    unanswered: float = 0.005
    """Part of them that take effect, and nobody hears of it."""

    def carry(self, commands: Commands, luck: np.random.Generator) -> Iterator[Delivery]:
        """What arrives, the soonest first."""
        rows, watts = commands
        delay = luck.integers(1, self.slowest + 1, len(rows))
        fate = luck.random(len(rows))
        arrives = fate >= self.lost
        answered = fate >= self.lost + self.unanswered
        for seconds in np.unique(delay[arrives]):
            due = arrives & (delay == seconds)
            heard = due & answered
            yield Delivery(float(seconds), Commands(rows[due], watts[due]), Commands(rows[heard], watts[heard]))


class Delivery(NamedTuple):
    """Commands that take effect at one moment."""

    after: float
    """Seconds."""
    arrived: Commands
    answered: Commands
    """Those of them that are heard of."""
