"""What is stored of a job, and what work on one looks like. The running of it is in ``strata.control.jobs``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from strata.control.fleet_views.jobs import JobError, JobView

PREFIX = "job/"
MOST_ERRORS = 100
"""Failures that are kept by name; the rest are only counted."""

JobState = Literal["pending", "running", "done", "failed", "cancelled"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one chunk of work did. Yielded after it is done."""

    position: Any
    """Where to go on from after a restart: anything that MessagePack holds."""
    done: int = 0
    """Nodes that went well."""
    failed: Sequence[tuple[str, str]] = ()
    """(node, why) of those that did not."""
    durable: bool = False
    """Write it down before the work goes on: for what must not be done twice."""


Work = Callable[[Mapping[str, Any], Any], AsyncIterator[Step]]
"""``work(arguments, position)``: does a job chunk by chunk, from ``position`` on (None: the beginning). After a crash
the last chunks may be done again, so doing one twice must be the same as once."""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it stands in the store."""

    id: str
    kind: str
    author: str
    created: float
    arguments: Mapping[str, Any] = {}
    total: int = 0
    """How many nodes it is about."""
    state: JobState = "pending"
    done: int = 0
    failed: int = 0
    errors: tuple[tuple[str, str], ...] = ()
    position: Any = None
    finished: float | None = None
    owner: str = ""
    """The controller that works on it, and which start of it."""
    instance: str = ""
    cancel: bool = False
    """Somebody asked for it to stop."""

    @property
    def over(self) -> bool:
        """Nothing will happen to it any more."""
        return self.state in ("done", "failed", "cancelled")

    def after(self, step: Step) -> Job:
        """The job with a chunk counted in."""
        return msgspec.structs.replace(
            self,
            done=self.done + step.done,
            failed=self.failed + len(step.failed),
            errors=(*self.errors, *step.failed)[:MOST_ERRORS],
            position=step.position,
        )

    def ended(self, state: JobState, now: float, why: str = "") -> Job:
        """The job when it is over."""
        errors = (*self.errors[: MOST_ERRORS - 1], ("", why)) if why else self.errors
        return msgspec.structs.replace(self, state=state, finished=now, errors=errors)

    def view(self) -> JobView:
        """What people see of it."""
        return JobView(
            id=self.id,
            kind=self.kind,
            state=self.state,
            total=self.total,
            done=self.done,
            failed=self.failed,
            errors=tuple(JobError(node=node, detail=detail) for node, detail in self.errors),
            author=self.author,
            created=self.created,
            finished=self.finished,
        )


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Job).decode
