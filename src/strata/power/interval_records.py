"""Records of when and where jobs and applications ran, and of what they came to. See ``intervals``."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from strata.core.intset import Runs

What = Literal["start", "end", "suspend", "resume"]
Span = tuple[float, float]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to a job, or to an application of it. ``uids`` as runs; of an application without any, those
    of its job."""

    what: What
    job: str
    time: float
    apid: str = ""
    user: str = ""
    name: str = ""
    uids: Runs = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished run came to. Kept with it, since it outlives the samples."""

    joules: float
    known: float
    """How much of the run is covered by measurements, 0 to 1."""
    seconds: float
    """That it ran, without the times that it was suspended."""
    nodes: int
    average: float
    """Watts of a node, over what is known; NaN where nothing is."""
    peak: float
    """Watts: the most that any of its nodes drew; NaN where nothing is known."""
    together: float = math.nan
    """Watts of all nodes together, on average; NaN where that was not kept."""
    error: float = 0.0
    """Joules by which the truth about the known part may differ."""
    unmeasured: int = 0
    """Nodes of which nothing is known."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job or an application. ``end`` None: it goes on."""

    job: str
    start: float
    apid: str = ""
    end: float | None = None
    user: str = ""
    name: str = ""
    uids: Runs = ()
    pauses: tuple[tuple[float, float | None], ...] = ()
    unplaced: float = 0.0
    """Seconds of suspension of which nobody told when they were."""
    doubt: str = ""
    """What is wrong with what was told."""
    summary: Summary | None = None

    def spans(self, now: float) -> list[Span]:
        """When it ran, without the times that it was suspended."""
        end = now if self.end is None else self.end
        found, at = list[Span](), self.start
        for pause, resumed in self.pauses:
            if pause > at:
                found.append((at, min(pause, end)))
            at = max(at, end if resumed is None else resumed)
        if end > at:
            found.append((at, end))
        return found

    def seconds(self, now: float) -> float:
        """How long it ran."""
        return max(0.0, sum(end - start for start, end in self.spans(now)) - self.unplaced)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what was told: how many were taken, and those that were not, with why."""

    taken: int
    refused: tuple[tuple[str, str], ...] = ()
