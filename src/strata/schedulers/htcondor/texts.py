"""What HTCondor's commands are asked, and what they print: pure.

A submission is a text of lines, read from standard input. The script is in it as a variable in base64, so that nothing
of it can end a line or begin a macro.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from strata.core.errors import BadRequest, DeviceError
from strata.schedulers.dates import ZONE
from strata.schedulers.jobs import Ability, JobSeen, Outcome, Queue, State, Work
from strata.schedulers.meanings import given, ids, read_reply, says
from strata.schedulers.options import check_key, plain
from strata.schedulers.scripts import INDEX, redirected, whole

NAME = "HTCondor"
ABILITY = Ability(nodes=False, after=frozenset(), accelerator_type=False, reservation=False, queues=False)
"""Jobs that wait for others are DAGMan's; it has no queues and no reservations by name."""
ENV = ZONE
QUEUES: tuple[tuple[str, ...], ...] = ()
CANCEL, HOLD, RELEASE = ("condor_rm",), ("condor_hold",), ("condor_release",)

_ID = re.compile(r"[0-9]+(\.[0-9]+)?\Z")
job_id = ids("HTCondor", _ID, "12, or 12.3 for a task of an array")
submitted = given("job", "condor_submit", re.compile(r"(?P<id>[0-9]+)\.[0-9]+ - [0-9]+\.[0-9]+"))
_UNFIT = re.compile(r"[^A-Za-z0-9_. -]")
_NATIVE = re.compile(r"(?P<name>[+A-Za-z_][A-Za-z0-9_.]*)\s*=\s*[^\x00-\x1f]+\Z")
_OURS = frozenset((
    *("arguments", "batch_name", "environment", "error", "executable", "getenv", "hold", "initialdir", "input", "log"),
    *("output", "periodic_remove", "periodic_remove_reason", "should_transfer_files", "transfer_executable"),
    *("universe", "+stratakey", "+strataindex", "my.stratakey", "my.strataindex", "allowed_job_duration"),
))  # fmt: skip
_MOST_SCRIPT = 90_000
"""Bytes: what Linux takes as one variable, in base64."""
_TIME_OVER = "strata: its time was over"
_OUT_OF_MEMORY = 34
"""Hold reason code: it used more memory than it had."""
_SH = """-c 'eval ""`printf %s $STRATA_SCRIPT | base64 -d`""'"""
is_away = says(
    re.compile(r"failed to connect|can't (find|connect)|cannot (find|connect)|timeout|timed out|communication", re.I)
)
is_denied = says(re.compile(r"permission denied|not authori[sz]ed|denied", re.IGNORECASE))
is_gone = says(re.compile(r"couldn't find|not found|no such|not matched|all jobs .* have been", re.IGNORECASE))
_ATTRIBUTES = (
    "ClusterId,ProcId,JobStatus,Owner,StrataKey,StrataIndex,QDate,JobStartDate,JobCurrentStartDate,CompletionDate,EnteredCurrentStatus,"
    "ExitCode,ExitBySignal,ExitSignal,HoldReason,HoldReasonCode,LastHoldReasonCode,RemoveReason,RemoteHost,LastRemoteHost"
)
_STATES: dict[int, State] = {1: "waiting", 2: "running", 5: "held", 6: "ending", 7: "suspended"}
_WORDS = {1: "Idle", 2: "Running", 3: "Removed", 4: "Completed", 5: "Held", 6: "Transferring Output", 7: "Suspended"}
_REMOVED, _COMPLETED = 3, 4


def build(work: Work) -> tuple[tuple[str, ...], str]:
    """The command that submits it, and what it reads."""
    check_key(work, "HTCondor")
    text = "unset STRATA_SCRIPT\n" + whole(work, f"${INDEX}", first=redirected(work))
    if len(text.encode()) > _MOST_SCRIPT:
        raise BadRequest(f"HTCondor takes scripts of {_MOST_SCRIPT} bytes at most", where="script")
    script = base64.b64encode(text.encode()).decode()
    needs = work.resources
    index = f" {INDEX}=$(StrataIndex)" if work.array is not None else ""
    lines = [
        "universe = vanilla",
        "executable = /bin/sh",
        f'arguments = "{_SH}"',
        f'environment = "STRATA_SCRIPT={script}{index}"',
        *("transfer_executable = false", "should_transfer_files = NO", "getenv = false", "initialdir = /"),
        *("input = /dev/null", "output = /dev/null", "error = /dev/null"),
        f"batch_name = {_UNFIT.sub('_', work.name).strip()[:200] or '_'}",
        f'+StrataKey = "{work.key}"',
        f"request_cpus = {needs.tasks * needs.cores}",
    ]
    if needs.memory is not None:
        lines.append(f"request_memory = {needs.memory}MB")
    if needs.accelerators is not None:
        lines.append(f"request_gpus = {needs.accelerators.count}")
    over = [f"(JobStatus == 5 && HoldReasonCode == {_OUT_OF_MEMORY})"]
    if needs.time is not None:
        over.append(f"(JobStatus == 2 && time() - JobCurrentStartDate > {needs.time})")
        lines.append(f'periodic_remove_reason = ifThenElse(JobStatus == 2, "{_TIME_OVER}", "strata: out of memory")')
    lines.append(f"periodic_remove = {' || '.join(over)}")
    if needs.licences:
        limits = (
            f"{plain(work, 'resources.licences', name)}:{count}" for name, count in sorted(needs.licences.items())
        )
        lines.append(f"concurrency_limits = {','.join(limits)}")
    if work.project is not None:
        lines.append(f"accounting_group = {plain(work, 'project', work.project)}")
    if work.held:
        lines.append("hold = true")
    if work.array is not None and work.array.at_once is not None:
        lines.append(f"max_materialize = {work.array.at_once}")
    lines += map(_native, work.native)
    if work.array is None:
        lines.append("queue")
    else:
        indices = " ".join(map(str, work.array.indices))
        lines += ["+StrataIndex = $(StrataIndex)", f"queue StrataIndex in ({indices})"]
    return ("condor_submit", "-terse", "-"), "\n".join((*lines, ""))


def _native(line: str) -> str:
    found = _NATIVE.match(line)
    if found is None:
        raise BadRequest(f"not a line of a submission: {line[:60]!r}", where="native", hint="write name = value")
    if found["name"].lower() in _OURS:
        raise BadRequest(f"{found['name']} is set by Strata", where="native", hint="leave it out")
    return line


def look(ended_since: float) -> tuple[tuple[str, ...], ...]:
    """All jobs, and those that have ended since: the history is read backwards, and no further."""
    since = f"EnteredCurrentStatus < {ended_since:.0f}"
    return (
        ("condor_q", "-allusers", "-json", "-attributes", _ATTRIBUTES),
        ("condor_history", "-json", "-attributes", _ATTRIBUTES, "-since", since),
    )


def jobs(replies: Sequence[str]) -> list[JobSeen]:
    """From the answers to ``look``. What is in the history has ended, whatever the queue said a moment before."""
    found: dict[str, JobSeen] = {}
    for said in replies:
        for ad in _read(said):
            job = _job(ad)
            found[job.id] = job
    return list(found.values())


def _read(said: str) -> list[dict[str, Any]]:
    value = read_reply("condor_q", said, [])
    if not isinstance(value, list):
        raise DeviceError("not a list of jobs", node="condor_q", reply=said[:200])
    return [ad for ad in value if isinstance(ad, dict)]


def _job(ad: Mapping[str, Any]) -> JobSeen:
    code, key, index = ad.get("JobStatus"), str(ad.get("StrataKey", "")), ad.get("StrataIndex")
    whole_job = bool(key) and index is None
    over = code in (_REMOVED, _COMPLETED)
    outcome, status, signal, why = _end(ad) if over else (None, None, None, "")
    state: State = "ended" if over else _STATES.get(code, "unknown") if isinstance(code, int) else "unknown"
    host = str(ad.get("RemoteHost") or ad.get("LastRemoteHost") or "").rpartition("@")[2]
    return JobSeen(
        id=str(ad.get("ClusterId", "")) if whole_job else f"{ad.get('ClusterId', '')}.{ad.get('ProcId', '')}",
        key=key,
        account=str(ad.get("Owner", "")),
        index=index if isinstance(index, int) else None,
        state=state,
        said=_WORDS.get(code, str(code)) if isinstance(code, int) else str(code),
        outcome=outcome,
        status=status,
        signal=signal,
        reason=why or (str(ad.get("HoldReason", "")) if state == "held" else ""),
        nodes=(host,) if host else (),
        submitted=_time(ad.get("QDate")),
        # Of one that was begun several times, the last: what came before was lost.
        began=_time(ad.get("JobCurrentStartDate")) or _time(ad.get("JobStartDate")),
        ended=(_time(ad.get("CompletionDate")) or _time(ad.get("EnteredCurrentStatus"))) if over else None,
    )


def _end(ad: Mapping[str, Any]) -> tuple[Outcome, int | None, int | None, str]:
    if ad.get("JobStatus") == _REMOVED:
        reason = str(ad.get("RemoveReason", ""))
        if _TIME_OVER in reason:
            return "timed-out", None, None, "its time was over"
        if _OUT_OF_MEMORY in (ad.get("HoldReasonCode"), ad.get("LastHoldReasonCode")):
            return "out-of-memory", None, None, "it used more memory than it had"
        return "cancelled", None, None, reason or "it was cancelled"
    if ad.get("ExitBySignal") is True:
        signal = ad.get("ExitSignal")
        return "failed", None, signal if isinstance(signal, int) else None, f"signal {signal} ended it"
    status = ad.get("ExitCode")
    code = status if isinstance(status, int) else None
    return ("done", 0, None, "") if code == 0 else ("failed", code, None, f"its script ended with status {code}")


def _time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def groups(replies: Sequence[str]) -> list[str]:
    """It has no queues."""
    return []


def queues(replies: Sequence[str], members: Mapping[str, frozenset[str]]) -> list[Queue]:
    """It has no queues."""
    return []
