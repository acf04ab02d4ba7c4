"""What Slurm's commands are asked about jobs, and what they print: pure.

Columns, because ``--json`` prints kilobytes for every job, and its form changes with every release. Users write texts
into their jobs, so columns and rows end with letters that nobody knows beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strata.core.errors import DeviceError
from strata.schedulers.jobs import JobSeen, Outcome, State
from strata.schedulers.meanings import key_in
from strata.schedulers.slurm import reasons
from strata.schedulers.slurm.replies import names
from strata.schedulers.slurm.submission import KEY

TIMES = {"SLURM_TIME_FORMAT": "%s"}
"""Environment in which times are seconds since 1970, and not in the zone of whoever answers."""
CONFIG = ("scontrol", "show", "config")
"""Asks how long ended jobs are remembered, and whether there is accounting."""

_SQUEUE = (
    *("ArrayJobID", "ArrayTaskID", "JobArrayID", "State", "UserName", "exit_code", "Partition", "SubmitTime"),
    *("StartTime", "EndTime", "NodeList", "Reason", "Comment"),
)
_SACCT = "JobID,State,User,ExitCode,Partition,Submit,Start,End,NodeList,Reason,Comment"
_SACCT_ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,RV,TO"
_MOST_SIGNAL = 64
_STATES: dict[str, State] = {
    "PENDING": "waiting",
    "REQUEUED": "waiting",
    "REQUEUE_FED": "waiting",
    "REQUEUE_HOLD": "held",
    "RESV_DEL_HOLD": "held",
    "SPECIAL_EXIT": "held",
    "CONFIGURING": "starting",
    "POWER_UP_NODE": "starting",
    "RUNNING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "SUSPENDED": "suspended",
    "STOPPED": "suspended",
    "COMPLETING": "ending",
    "STAGE_OUT": "ending",
}
_ENDED: dict[str, Outcome] = {
    "COMPLETED": "done",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "cancelled",
    "FAILED": "failed",
    "LAUNCH_FAILED": "node-failed",
    "RECONFIG_FAIL": "node-failed",
    "NODE_FAIL": "node-failed",
    "BOOT_FAIL": "node-failed",
    "TIMEOUT": "timed-out",
    "DEADLINE": "timed-out",
    "OUT_OF_MEMORY": "out-of-memory",
}
_HELD = frozenset(("JobHeldAdmin", "JobHeldUser", "JobHoldMaxRequeue"))
_TOLD = {
    "PREEMPTED": "a job of higher priority took its place",
    "TIMEOUT": "its time was over",
    "DEADLINE": "its deadline had come",
    "NODE_FAIL": "a node that it ran on failed",
    "BOOT_FAIL": "a node that it was to run on did not start",
    "OUT_OF_MEMORY": "it used more memory than it had",
    "LAUNCH_FAILED": "it could not be launched",
}


class Memory(NamedTuple):
    """What a Slurm remembers of jobs that have ended."""

    seconds: float
    """For how long at least ``squeue`` tells of them."""
    accounting: bool
    """Whether ``sacct`` does."""


def memory(said: str) -> Memory:
    """From the answer to ``CONFIG``."""
    told = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in said.splitlines())}
    age = told.get("MinJobAge", "").partition(" ")[0]
    return Memory(float(age) if age.isdigit() else 0.0, told.get("AccountingStorageType", "").endswith("slurmdbd"))


def live(mark: str) -> tuple[str, ...]:
    """Asks for all jobs that have not ended, and those that ended just now. ``mark``: letters that nobody knows."""
    columns = ",".join(f"{name}:{mark}" for name in _SQUEUE[:-1])
    asked = f"{columns},{_SQUEUE[-1]}:{_row(mark)}"
    return ("squeue", "--all", "--array", "--states=all", "--noheader", "--Format", asked)


def past(mark: str, ago: float) -> tuple[str, ...]:
    """Asks the accounting for jobs that ended within the last ``ago`` seconds."""
    return (
        *("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", f"--delimiter={mark}"),
        *(f"--starttime=now-{ago:.0f}seconds", "--endtime=now", f"--state={_SACCT_ENDED}", f"--format={_SACCT}"),
    )


def jobs(said: str, mark: str) -> list[JobSeen]:
    """From the answer to ``live``."""
    rows = said.split(_row(mark))
    if rows.pop().strip():
        raise DeviceError("its answer is cut off", node="squeue", reply=said[-200:])
    return [_job(_fields(row, mark, "squeue", len(_SQUEUE))) for row in rows]


def past_jobs(said: str, mark: str) -> list[JobSeen]:
    """From the answer to ``past``."""
    rows: list[str] = []
    for line in said.splitlines():
        # A comment may have several lines; no other has our mark.
        if mark in line:
            rows.append(line)
    found = []
    for row in rows:
        one, *others = _fields(row, mark, "sacct", _SACCT.count(",") + 1)
        whole, _, task = one.partition("_")
        found.append(_job([whole, task, one, *others]))
    return found


def together(present: Iterable[JobSeen], past: Iterable[JobSeen]) -> list[JobSeen]:
    """Each job once. What slurmctld still knows is newer than what is in the accounting."""
    return list({job.id: job for job in (*past, *present)}.values())


def ended_with(told: str) -> tuple[int | None, int | None]:
    """Exit status and signal: from ``3:0`` and ``0:9``, or from a status as wait(2) gives it."""
    status, colon, signal = told.partition(":")
    if not status.isdigit() or (colon and not signal.isdigit()):
        return None, None
    exited, killed = (int(status), int(signal)) if colon else (int(status) >> 8, int(status) & 0x7F)
    # 125 is no signal: Slurm's own code for a job that was out of memory.
    return (None, killed if killed <= _MOST_SIGNAL else None) if killed else (exited, None)


def _fields(row: str, mark: str, command: str, width: int) -> list[str]:
    fields = [field.strip() for field in row.split(mark)]
    if len(fields) != width:
        raise DeviceError(f"{len(fields)} columns where {width} were asked for", node=command, reply=row[:200])
    return fields


def _job(fields: list[str]) -> JobSeen:
    whole, task, one, said, account, status, queue, submitted, start, end, named, why, comment = fields
    word = said.partition(" ")[0].partition("+")[0]
    outcome = _ENDED.get(word)
    state: State = "ended" if outcome else _STATES.get(word, "unknown")
    if state == "waiting" and why.strip("()") in _HELD:
        state = "held"
    waits = state in ("held", "waiting")
    nodes = names("" if named == "None assigned" else named)
    # Of one that never began, Slurm calls the time of its end its start.
    ran = bool(nodes) and not waits
    exited, signal = ended_with(status) if outcome and ran else (None, None)
    if exited == 0 and outcome != "done":
        exited = None  # the accounting says 0:0 of what was ended before it exited
    told = outcome not in (None, "done") or waits
    return JobSeen(
        id=one if task.isdigit() else whole,
        key=key_in(comment, KEY),
        account=account,
        index=int(task) if task.isdigit() else None,
        state=state,
        said=said,
        outcome=outcome,
        status=exited,
        signal=signal,
        reason=_TOLD.get(word) or (reasons.words(why) if told else ""),
        queue=queue,
        nodes=nodes,
        submitted=_time(submitted),
        began=_time(start) if ran else None,
        ended=_time(end) if outcome else None,
        expected=_time(start) if waits else None,
    )


def _time(told: str) -> float | None:
    return float(told) if told.isdigit() and told != "0" else None


def _row(mark: str) -> str:
    return f"{mark}row{mark}"
