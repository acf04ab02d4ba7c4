"""What is shown of jobs, and what a scheduler's words make of their tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from strata.jobs.submission.records import Job, JobLine, JobView, Task, TaskView
from strata.schedulers.jobs import JobSeen, Outcome, State

_WORST: tuple[Outcome, ...] = (
    "failed",
    "timed-out",
    "out-of-memory",
    "node-failed",
    "lost",
    "cancelled",
    "done",
)
_LIVELIEST: tuple[State, ...] = ("running", "ending", "starting", "suspended", "unknown", "waiting", "held", "ended")
_SHELL_SIGNAL = 128
_NODES_SHOWN = 20
_UNCAPPED_SHOWN = 3


def line(job: Job, told: tuple[str, float | None] = ("", None)) -> JobLine:
    """A job in a list. ``told``: why it waits, and until when, as its scheduler last said."""
    tasks = job.tasks
    if len(tasks) == 1:
        task = tasks[0]
        state, outcome, reason = task.state, task.outcome, task.reason
        status, signal, nodes, began, ended = task.status, task.signal, task.nodes, task.began, task.ended
        count_ended = int(state == "ended")
        failed = int(outcome is not None and outcome != "done")
    else:
        over = [task for task in tasks if task.state == "ended"]
        bad = [task for task in over if task.outcome != "done"]
        states = {task.state for task in tasks}
        state = next(one for one in _LIVELIEST if one in states)
        outcomes = {task.outcome for task in tasks}
        outcome = next((one for one in _WORST if one in outcomes), None) if state == "ended" else None
        status = next((task.status for task in bad if task.status), 0 if state == "ended" and not bad else None)
        signal = next((task.signal for task in bad if task.signal), None)
        reason = next((task.reason for task in (bad if state == "ended" else tasks) if task.reason), "")
        nodes = tuple(dict.fromkeys(node for task in tasks for node in task.nodes))[:_NODES_SHOWN]
        began = min((task.began for task in tasks if task.began is not None), default=None)
        ended = (
            max((task.ended for task in over if task.ended is not None), default=None)
            if len(over) == len(tasks)
            else None
        )
        count_ended, failed = len(over), len(bad)
    if state != "ended" and told[0]:
        reason = told[0]
    if job.cancelled and state in ("waiting", "held"):
        state = "ending"
        which = "ended it" if job.there else "said whether it has it"
        reason = f"cancelled by {job.cancelled}; {job.target} has not {which} yet"
    reason = reason or not_capped(job)
    return JobLine(
        id=job.id,
        name=job.document.name or "",
        owner=job.owner,
        account=job.account,
        target=job.target,
        queue=job.queue,
        state=state,
        outcome=outcome,
        status=status,
        signal=signal,
        reason=reason,
        tasks=len(tasks),
        tasks_ended=count_ended,
        tasks_failed=failed,
        nodes=nodes,
        submitted=job.submitted,
        began=began,
        ended=ended,
        expected=told[1] if state in ("waiting", "held") else None,
    )


def view(job: Job, short: JobLine) -> JobView:
    """A job with all that is known."""
    tasks = tuple(TaskView.of(task) for task in job.tasks) if job.document.array else ()
    return JobView.of(short, job, array=tasks)


def not_capped(job: Job) -> str:
    """Which of its nodes may draw more than it asked for, in words."""
    told = [f"{node} is not capped: {why}" for node, why in sorted(job.uncapped.items())]
    more = f"; and {len(told) - _UNCAPPED_SHOWN} more" if len(told) > _UNCAPPED_SHOWN else ""
    return "; ".join(told[:_UNCAPPED_SHOWN]) + more


def moved(task: Task, seen: JobSeen) -> Task:
    """The task as its scheduler sees it now. One that has ended stays as it ended."""
    if task.state == "ended":
        return task
    over = seen.state == "ended"
    same = (seen.state, seen.began, seen.id, seen.reason) == (task.state, task.began, task.there, task.reason)
    if same and not over and seen.nodes in ((), task.nodes):
        return task  # as most are, most of the time
    status, signal = both(seen.status, seen.signal)
    return msgspec.structs.replace(
        task,
        state=seen.state,
        outcome=seen.outcome if over else None,
        status=status if over else None,
        signal=signal if over else None,
        reason=seen.reason if seen.state != "unknown" else f"its scheduler says {seen.said!r}",
        nodes=seen.nodes or task.nodes,
        began=seen.began if seen.began is not None or seen.state in ("waiting", "held") else task.began,
        ended=seen.ended if over else None,
        there=seen.id,
    )


def both(status: int | None, signal: int | None) -> tuple[int | None, int | None]:
    """Status and signal, each made of the other where one is missing, as a shell does it: 137 is signal 9."""
    if not signal and status is not None and _SHELL_SIGNAL < status <= _SHELL_SIGNAL + 64:
        return status, status - _SHELL_SIGNAL
    if signal and not status:
        return _SHELL_SIGNAL + signal, signal
    return status, signal or None


def untold(task: Task) -> bool:
    """Whether it has ended, and its scheduler does not say how."""
    if task.state != "ended":
        return False
    return task.outcome is None or (task.outcome in ("done", "failed") and task.status is None)


def closed(task: Task, wrote: tuple[int, float, float] | None, *, cancelled: bool, now: float) -> Task:
    """A task that has ended, with what it wrote down itself (status, beginning, end) where its scheduler is silent."""
    if wrote is not None:
        status, signal = both(wrote[0], None)
        return msgspec.structs.replace(
            task,
            state="ended",
            outcome=task.outcome or ("done" if status == 0 else "failed"),
            status=status,
            signal=signal,
            began=task.began or wrote[1],
            ended=task.ended or wrote[2],
        )
    if task.outcome is not None:
        return msgspec.structs.replace(task, ended=task.ended or now)
    if task.status is not None:
        return msgspec.structs.replace(task, outcome="done" if task.status == 0 else "failed", ended=task.ended or now)
    if cancelled:
        return msgspec.structs.replace(task, state="ended", outcome="cancelled", ended=task.ended or now)
    told = "its scheduler no longer knows it, and how it ended was not recorded"
    return msgspec.structs.replace(task, state="ended", outcome="lost", reason=told, ended=task.ended or now)


def differ(before: Sequence[Task], after: Sequence[Task]) -> bool:
    """Whether anything changed that is worth keeping: not the words for which something waits."""
    return before != after and any(
        old is not new and _kept(old) != _kept(new) for old, new in zip(before, after, strict=True)
    )


def _kept(task: Task) -> Task:
    return task if task.state == "ended" else msgspec.structs.replace(task, reason="")


def waits_for(tasks: Iterable[JobSeen]) -> tuple[str, float | None]:
    """Why the first that waits does, and until when."""
    for seen in tasks:
        if seen.state in ("waiting", "held", "starting") and (seen.reason or seen.expected):
            return seen.reason, seen.expected
    return "", None
