"""What LSF's commands are asked, and what they print: pure."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from strata.core.errors import BadRequest, DeviceError
from strata.schedulers.dates import LONG, ZONE, seconds, this_year
from strata.schedulers.jobs import Ability, After, JobSeen, Outcome, Queue, State, Work
from strata.schedulers.meanings import given, ids, key_in, read_reply, says
from strata.schedulers.options import check_key, check_single, fitting_name, plain
from strata.schedulers.scripts import redirected, whole

NAME = "LSF"
ABILITY = Ability(accelerator_memory=True)
ENV = {**ZONE, "LSB_DISPLAY_YEAR": "y"}
"""With seconds and years in times."""
KEY = "strata:"
"""Begins the description of a job of ours; its key follows."""
QUEUES = (("bqueues", "-l"),)
CANCEL, HOLD, RELEASE = ("bkill",), ("bstop",), ("bresume",)

_AFTER: dict[After, str] = {"started": "started", "ended": "ended", "done": "done", "failed": "exit"}
_ID = re.compile(r"[0-9]+(\[[0-9]+\])?\Z")
job_id = ids("LSF", _ID, "12, or 12[3] for a task of an array")
submitted = given("job", "bsub", re.compile(r"Job <(?P<id>[0-9]+)> is submitted"))
_FIELDS = (
    "jobid jobindex stat user queue job_description exit_code exit_reason pend_reason submit_time start_time "
    "finish_time exec_host"
)
_OURS = ("-I", "-Ip", "-Is", "-J", "-Jd", "-K", "-H", "-L", "-cwd", "-e", "-eo", "-env", "-f", "-i", "-is", "-o", "-oo")
_VALUES = {
    **dict.fromkeys(("-D", "-G", "-M", "-P", "-R", "-U", "-W", "-app", "-b", "-c", "-g", "-gpu", "-m", "-n", "-q"), 1),
    **dict.fromkeys(("-sla", "-sp", "-t", "-u", "-v"), 1),
    **dict.fromkeys(("-B", "-N", "-x", "-r", "-rn"), 0),
}
is_away = says(
    re.compile(
        r"cannot (connect|contact)|LSF (is|daemon).*(down|not responding)|batch daemon not|lsbatch|timeout|"
        r"failed in an LSF library call|communication",
        re.IGNORECASE,
    )
)
is_denied = says(re.compile(r"user permission denied|not the owner|permission denied", re.IGNORECASE))
is_gone = says(re.compile(r"no (matching |unfinished )?job found|is not found|job has already finished", re.IGNORECASE))
_STATES: dict[str, State] = {
    "PEND": "waiting",
    "WAIT": "waiting",
    "PSUSP": "held",
    "PROV": "starting",
    "RUN": "running",
    "USUSP": "suspended",
    "SSUSP": "suspended",
}
_OUTCOMES: dict[str, tuple[Outcome, str]] = {
    "TERM_OWNER": ("cancelled", "it was cancelled"),
    "TERM_FORCE_OWNER": ("cancelled", "it was cancelled"),
    "TERM_ADMIN": ("cancelled", "an administrator cancelled it"),
    "TERM_FORCE_ADMIN": ("cancelled", "an administrator cancelled it"),
    "TERM_ORPHAN_SYSTEM": ("cancelled", "the job that it waits for did not end as it had to"),
    "TERM_PREEMPT": ("cancelled", "a job of higher priority took its place"),
    "TERM_RUNLIMIT": ("timed-out", "its time was over"),
    "TERM_CPULIMIT": ("timed-out", "its processor time was over"),
    "TERM_DEADLINE": ("timed-out", "its deadline had come"),
    "TERM_MEMLIMIT": ("out-of-memory", "it used more memory than it had"),
    "TERM_SWAP": ("out-of-memory", "it used more swap than it had"),
    "TERM_RMS": ("node-failed", "the nodes' resource manager ended it"),
    "TERM_REMOVE_HUNG_JOB": ("node-failed", "its node did not answer any more"),
}
_SIGNALLED = 128
_DATES = ("%b %d %H:%M:%S %Y", LONG, "%b %d %H:%M %Y")
_HOST = re.compile(r"(?:[0-9]+\*)?([A-Za-z0-9][A-Za-z0-9_.-]*)")


def build(work: Work) -> tuple[tuple[str, ...], str]:
    """The command that submits it, and what it reads."""
    check_key(work, "LSF")
    needs, named = work.resources, fitting_name(work) or "_"
    if work.array is not None:
        # Indices of LSF begin with 1.
        at_once = f"%{work.array.at_once}" if work.array.at_once is not None else ""
        named += f"[{work.array.first + 1}-{work.array.last + 1}:{work.array.step}]{at_once}"
    command = [
        *("bsub", "-J", named, "-Jd", f"{KEY}{work.key}", "-L", "/bin/sh", "-cwd", "/", "-o", "/dev/null", "-rn"),
        *("-n", str(needs.tasks * needs.cores), "-R", _spread(work)),
    ]
    if needs.memory is not None:
        command += ["-M", f"{needs.memory}MB", "-R", f"rusage[mem={needs.memory}MB]"]
    if needs.time is not None:
        command += ["-W", str(-(-needs.time // 60))]
    if needs.accelerators is not None:
        wanted = needs.accelerators
        kind = f":gmodel={plain(work, 'resources.accelerators.type', wanted.type)}" if wanted.type else ""
        command += ["-gpu", f"num={wanted.count}{kind}" + (f":gmem={wanted.memory}M" if wanted.memory else "")]
    if needs.licences:
        asked = ":".join(f"{plain(work, 'resources.licences', name)}={n}" for name, n in sorted(needs.licences.items()))
        command += ["-R", f"rusage[{asked}]"]
    if work.after:
        # A job whose condition can never be met any more would wait for ever.
        command += ["-w", " && ".join(f"{_AFTER[after]}({job_id(one)})" for after, one in work.after), "-ti"]
    for option, field in (("-q", "queue"), ("-P", "project"), ("-U", "reservation")):
        if getattr(work, field) is not None:
            command += [option, plain(work, field, getattr(work, field))]
    if work.held:
        command.append("-H")
    command += check_single(work.native, _OURS, _VALUES)
    script = whole(work, "$((LSB_JOBINDEX - 1))", first=redirected(work))
    # bsub takes such lines for options wherever in the script they are.
    return tuple(command), re.sub(r"(?m)^#BSUB", "# BSUB", script)


def _spread(work: Work) -> str:
    needs = work.resources
    if needs.nodes == 1:
        return "span[hosts=1]"
    each, left = divmod(needs.tasks, needs.nodes)
    if left or not each:
        raise BadRequest(
            f"LSF gives each node equally many tasks; {needs.tasks} cannot be divided by {needs.nodes} nodes",
            where="resources.tasks",
        )
    return f"span[ptile={each * needs.cores}]"


def look(ended_since: float) -> tuple[tuple[str, ...], ...]:
    """All jobs, and those that have ended as long as LSF remembers them (CLEAN_PERIOD)."""
    return (("bjobs", "-u", "all", "-a", "-json", "-o", _FIELDS),)


def jobs(replies: Sequence[str]) -> list[JobSeen]:
    """From the answer to ``look``."""
    value = read_reply("bjobs", replies[0], {"RECORDS": []})
    records = value.get("RECORDS") if isinstance(value, dict) else None
    if not isinstance(records, list):
        raise DeviceError("no records", node="bjobs", reply=replies[0][:200])
    # What is wrong with one job stands in its own record.
    return [_job(one) for one in records if isinstance(one, dict) and "ERROR" not in one]


def _job(record: Mapping[str, Any]) -> JobSeen:
    told = {str(name): str(value).strip() for name, value in record.items()}
    number, task, word = told.get("JOBID", ""), told.get("JOBINDEX", ""), told.get("STAT", "")
    key = key_in(told.get("JOB_DESCRIPTION", ""), KEY)
    array = task.isdigit() and task != "0"
    outcome, status, signal, why = _end(told) if word in ("DONE", "EXIT") else (None, None, None, "")
    state: State = "ended" if word in ("DONE", "EXIT") else _STATES.get(word, "unknown")
    return JobSeen(
        id=f"{number}[{task}]" if array else number,
        key=key,
        account=told.get("USER", ""),
        index=int(task) - bool(key) if array else None,
        state=state,
        said=word,
        outcome=outcome,
        status=status,
        signal=signal,
        reason=why or (told.get("PEND_REASON", "") if state in ("held", "waiting") else ""),
        queue=told.get("QUEUE", ""),
        nodes=tuple(dict.fromkeys(_HOST.findall(told.get("EXEC_HOST", "").replace(":", " ")))),
        submitted=_time(told.get("SUBMIT_TIME", "")),
        began=_time(told.get("START_TIME", "")) if state not in ("held", "waiting") else None,
        ended=_time(told.get("FINISH_TIME", "")) if state == "ended" else None,
    )


def _end(told: Mapping[str, str]) -> tuple[Outcome, int | None, int | None, str]:
    if told["STAT"] == "DONE":
        return "done", 0, None, ""
    code, reason = told.get("EXIT_CODE", ""), told.get("EXIT_REASON", "")
    number = int(code) if code.isdigit() else None
    signal = number - _SIGNALLED if number is not None and number > _SIGNALLED else None
    outcome, words = _OUTCOMES.get(reason.partition(":")[0].strip(), ("failed", reason))
    if outcome != "failed":
        return outcome, None, signal, words
    return outcome, number if signal is None else None, signal, words or (f"signal {signal} ended it" if signal else "")


def _time(told: str) -> float | None:
    """Behind it stands how sure LSF is (``L``, ``E``, ``X``). The year is there only where the site has LSF say it."""
    plain_time = re.sub(r" [A-Z]\Z", "", told)
    found = seconds(plain_time, *_DATES)
    return this_year(plain_time, "%b %d %H:%M", time.time()) if found is None and plain_time else found


def groups(replies: Sequence[str]) -> list[str]:
    """Groups that queues name; a slash stands behind them."""
    return sorted(
        {user[:-1].lstrip("~") for queue in _queues(replies[0]) for user in _users(queue) if user[-1:] == "/"}
    )


def queues(replies: Sequence[str], members: Mapping[str, frozenset[str]]) -> list[Queue]:
    """From the answer to ``QUEUES``. LSF does not say here what nodes a queue has."""
    return [_queue(text, members) for text in _queues(replies[0])]


def _queues(said: str) -> list[str]:
    return re.split(r"(?m)^QUEUE:\s*", said)[1:]


def _users(text: str) -> list[str]:
    found = re.search(r"(?m)^USERS:\s*(.+)$", text)
    return found[1].split() if found else []


def _queue(text: str, members: Mapping[str, frozenset[str]]) -> Queue:
    users = _users(text)
    allowed = [user for user in users if not user.startswith("~") and user != "all"]
    heads = re.search(r"(?m)^PRIO\s.*$", text)
    values = text[heads.end() :].strip().splitlines()[0].split() if heads else []
    told = dict(zip(heads[0].split(), values, strict=False)) if heads else {}
    limit = re.search(r"(?m)^\s*RUNLIMIT\s*\n\s*(?P<minutes>[0-9.]+) min", text)
    priority, waiting = told.get("PRIO", ""), told.get("PEND", "")
    return Queue(
        name=text.split(None, 1)[0],
        open=told.get("STATUS") == "Open:Active",
        most_time=int(float(limit["minutes"]) * 60) if limit else None,
        accounts=_accounts(allowed, members) if allowed else None,
        not_accounts=_accounts([user[1:] for user in users if user.startswith("~")], members),
        waiting=int(waiting) if waiting.isdigit() else 0,
        priority=int(priority) if priority.isdigit() else 0,
    )


def _accounts(named: Sequence[str], members: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset(one for name in named for one in (members.get(name[:-1], ()) if name[-1:] == "/" else (name,)))
