"""Jobs: work on many nodes, accepted and tracked."""

from __future__ import annotations

from typing import Literal

from strata.control.texts import Out


class JobError(Out, frozen=True, kw_only=True):
    """What went wrong with one node of a job."""

    node: str
    detail: str


class JobView(Out, frozen=True, kw_only=True):
    """Work on many nodes: accepted, tracked, cancellable. ``errors`` holds the first 100."""

    id: str
    kind: str
    state: Literal["pending", "running", "done", "failed", "cancelled"]
    total: int
    done: int
    failed: int
    errors: tuple[JobError, ...]
    author: str
    created: float
    finished: float | None


class JobPage(Out, frozen=True, kw_only=True):
    """A part of all jobs, newest first."""

    items: tuple[JobView, ...]
    next: str | None
