"""Slurm's queue as a snapshot: what ``squeue --json`` prints (22.05 and later). Knows nothing of the service.

Jobs that would not start with all nodes and power in the world (held, or waiting for another job or a date) are left
out. Those of the highest priority come first, as Slurm would start them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from strata.core.errors import BadRequest

MOST_WAITING, MOST_RUNNING = 10_000, 20_000
_NOT_YET = frozenset(
    ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime", "JobArrayTaskLimit")
)
_LIVE = ("RUNNING", "SUSPENDED", "COMPLETING")


class Queue(NamedTuple):
    """What was found: a body for ``POST /v1/power/queue``, how many jobs were not wanted, and how many too many."""

    body: dict[str, Any]
    not_yet: int
    too_many: int


def read(text: str) -> Queue:
    """The queue in it. Raises ``BadRequest``."""
    waiting: list[tuple[float, dict[str, Any]]] = []
    running: list[dict[str, Any]] = []
    not_yet = 0
    try:
        for job in json.loads(text)["jobs"]:
            states = _words(job["job_state"])
            if "PENDING" in states:
                if job.get("state_reason") in _NOT_YET or job.get("hold"):
                    not_yet += 1
                else:
                    waiting.append((slurm_number(job.get("priority")) or 0.0, _waiting(job)))
            elif any(state in states for state in _LIVE):
                running.append({"job": str(job["job_id"]), "ends": slurm_number(job.get("end_time"))})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRequest(
            f"not what squeue --json prints: {type(error).__name__} {str(error)[:80]}", where="queue"
        ) from None
    waiting.sort(key=lambda one: -one[0])
    body = {"waiting": [one for _, one in waiting[:MOST_WAITING]], "running": running[:MOST_RUNNING]}
    return Queue(body, not_yet, max(len(waiting) - MOST_WAITING, 0) + max(len(running) - MOST_RUNNING, 0))


def _waiting(job: dict[str, Any]) -> dict[str, Any]:
    minutes = slurm_number(job.get("time_limit"))
    return {
        "job": str(job["job_id"]),
        "nodes": max(int(slurm_number(job.get("node_count")) or 1), 1),
        # A job may be sent to several partitions; the first is as good as any.
        "queue": str(job.get("partition") or "").partition(",")[0][:64],
        "user": str(job.get("user_name") or "")[:64],
        "time_limit": None if minutes is None else minutes * 60,
    }


def _words(told: Any) -> list[str]:
    """A state; newer versions list several."""
    return [told] if isinstance(told, str) else [str(one) for one in told]


def slurm_number(told: Any) -> float | None:
    """A number as Slurm tells it: 0 is none yet, and newer versions wrap it. None: there is none."""
    if isinstance(told, dict):
        told = told.get("number") if told.get("set", True) and not told.get("infinite") else None
    return float(told) if isinstance(told, int | float) and told > 0 else None
