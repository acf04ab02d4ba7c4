"""What a governor asks of the machine that it runs a policy on, and of the place where its ledger is kept."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from strata.power.capping.terms import Column, Commands, Mask, Ratings, Rows
from strata.power.policy_view import Jobs, Waiting

UNSEEN = -1
"""In ``Look.use``: nobody knows. What was known last still counts."""


class Look(NamedTuple):
    """What is seen of the machine: as in ``View``, but for what the governor knows itself."""

    use: NDArray[np.int8]
    job: Rows
    idle_since: Column
    cabinet: Rows
    pdu: Rows
    jobs: Jobs
    """Their caps, and when these were changed, are the governor's to know."""
    waiting: Waiting
    ratings: Ratings | None = None
    """Where more has become known of them."""
    caps: Column | None = None
    """Caps as somebody saw them lately, whoever set them; NaN: nobody did. ``caps_at`` says when."""
    caps_at: Column | None = None
    apart: Mask | None = None
    """Nodes that are neither started nor stopped: a person has taken them out, or wants them as they are."""
    starting: Mask | None = None
    """Nodes that are starting, as far as their supply feels it. None: all that count as such."""


class Answers(NamedTuple):
    """What became of commands, row by row. Neither: it is not known."""

    done: Mask
    refused: Mask


class Plant(Protocol):
    """The machine. Rows are places in the list of nodes that it was made with."""

    async def look(self) -> Look:
        """What is known now, without asking the hardware."""

    async def read_caps(self, rows: Rows) -> Column:
        """The caps that nodes have, asked of them now. Without a cap: the most that they draw; no answer: NaN."""

    async def set_caps(self, commands: Commands) -> Answers:
        """Set caps. What is still under way when this is cancelled must not take effect later than ``SETTLE``."""

    async def switch(self, rows: Rows, on: bool) -> None:
        """Have nodes started or stopped."""


class Shelf(Protocol):
    """Where the ledger outlives the governor."""

    async def load(self) -> bytes | None:
        """What was kept last."""

    async def save(self, kept: bytes) -> None:
        """Keep it. Returns when it is safe."""
