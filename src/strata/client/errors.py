"""What can go wrong.

StrataError
├── ServiceAway   it cannot be reached, or did not answer: whether something was done is not known
├── Denied        no good credential, or not the right one
├── NotFound      there is no such job (or it is somebody else's)
└── Failed        the job ended otherwise than well: carries it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strata.client.job import Job


class StrataError(Exception):
    """The service refused; ``status`` is its HTTP status, ``where`` the field or thing, ``hint`` what to do."""

    def __init__(self, detail: str, *, status: int = 0, where: str = "", hint: str = "") -> None:
        told = f"{where}: {detail}" if where else detail
        super().__init__(f"{told} ({hint})" if hint else told)
        self.detail, self.status, self.where, self.hint = detail, status, where, hint


class ServiceAway(StrataError):
    """No answer."""


class Denied(StrataError):
    """You may not."""


class NotFound(StrataError):
    """It is not there."""


class Failed(StrataError):
    """A job that was to end well did not."""

    def __init__(self, job: Job) -> None:
        why = f": {job.reason}" if job.reason else ""
        super().__init__(f"job {job.id} ended: {job.outcome}, status {job.status}{why}")
        self.job = job
