"""What goes into a step of the engine and what comes out. Plain records; indices are the table's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Column, Indices
from strata.core.driver import Outcomes

# ---- in ----


class Seen(NamedTuple):
    """A look came back. No columns: nothing was seen (the driver failed or was too slow)."""

    look: int
    columns: Mapping[str, Column]
    detail: str = ""


class Told(NamedTuple):
    """Facts that arrived by themselves: from an agent, an event. ``at``: when they were so; None: now."""

    nodes: Indices
    columns: Mapping[str, Column]
    source: str
    at: float | None = None


class Done(NamedTuple):
    """A driver finished an act. None: it was never begun (the intent could not be written)."""

    generation: int
    outcomes: Outcomes | None
    detail: str = ""


class Answered(NamedTuple):
    """A guard's answers, aligned with the question's nodes: empty for yes, else why not."""

    ask: int
    refusals: Sequence[str]


Input = Seen | Told | Done | Answered

# ---- out ----


class Look(NamedTuple):
    """Observe ``variables`` of ``nodes``. Lower ``urgency`` goes first: 0 somebody waits for it, 1 refresh."""

    id: int
    driver: str
    variables: tuple[str, ...]
    nodes: Indices
    urgency: int


class Ask(NamedTuple):
    """Put ``guard`` to its driver for ``nodes``, which are about to undergo ``mutation``."""

    id: int
    guard: str
    mutation: str
    nodes: Indices


class Act(NamedTuple):
    """Carry out ``mutation``. The intent is made durable first; ``epochs`` and ``generation`` are the fence."""

    generation: int
    mutation: str
    nodes: Indices
    epochs: npt.NDArray[np.int64]
    urgency: int


class Change(NamedTuple):
    """A fact changed, for all of ``nodes`` alike: what history keeps."""

    variable: str
    old: str
    new: str
    source: str
    cause: str
    nodes: Indices


class Effects(NamedTuple):
    """All that one step wants done."""

    looks: list[Look]
    asks: list[Ask]
    acts: list[Act]
    changes: list[Change]
    settled: list[int]
    """Generations whose every node has ended: their intents can go."""
    abandoned: list[int]
    """Generations under way when their lead was lost: their intents stay, for the next leader."""
