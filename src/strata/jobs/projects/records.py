"""Projects: what is kept of them, and what is shown."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.texts import In, NoteText, Out
from strata.jobs.submission.records import AccountText

Hours = Annotated[float, Meta(ge=0, le=1e12)]
DAY = 86_400


class ProjectSpec(In, frozen=True, kw_only=True):
    """Who may compute for a project, and how much."""

    members: Annotated[tuple[AccountText, ...], Meta(max_length=10_000)] = ()
    """Local accounts whose jobs it takes. Empty: those of everybody."""
    core_hours: Hours | None = None
    """Hours of one core that its jobs may use within ``per``. None: as many as they like."""
    accelerator_hours: Hours | None = None
    """Hours of one accelerator, the same."""
    kwh: Hours | None = None
    """Kilowatt hours that its jobs may draw, as far as their nodes are measured. None: as many as they like."""
    per: Annotated[int, Meta(ge=3600, le=366 * DAY)] = 30 * DAY
    """Seconds: what was used longer ago counts no more."""
    description: NoteText = ""

    @property
    def limited(self) -> bool:
        """Whether it has a quota."""
        return self.core_hours is not None or self.accelerator_hours is not None


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project as it is kept."""

    name: str
    spec: ProjectSpec


class ProjectView(Out, frozen=True, kw_only=True):
    """A project, and what its jobs use. Hours are of one core, or of one accelerator."""

    name: str
    revision: int
    members: tuple[str, ...]
    core_hours: float | None
    accelerator_hours: float | None
    kwh: float | None
    per: int
    description: str
    used_core_hours: float
    """By jobs that ended within ``per``."""
    used_accelerator_hours: float
    booked_core_hours: float
    """By jobs that have not ended: all the time that they may run."""
    booked_accelerator_hours: float
    used_kwh: float
    """Of those of its ended jobs whose nodes are measured."""
    kwh_error: float
    """By which that may be wrong."""
    measured_jobs: int
    """Jobs that are in it; of the other ended ones nothing was measured."""
    open_jobs: int
    ended_jobs: int
