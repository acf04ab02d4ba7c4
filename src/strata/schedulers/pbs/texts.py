"""What PBS's commands are asked, and what they print: pure.

``-F json`` prints everything that is asked for. Users' texts are in it unescaped, so it is read leniently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strata.core.errors import BadRequest
from strata.schedulers.dates import ZONE, duration, seconds
from strata.schedulers.jobs import Ability, After, JobSeen, Outcome, Queue, State, Work
from strata.schedulers.meanings import given, ids, mebibytes, read_reply, says
from strata.schedulers.options import check_key, check_single, fitting_name, plain
from strata.schedulers.scripts import redirected, whole

NAME = "PBS"
ABILITY = Ability(accelerator_type=False)
"""What kind of accelerator a host has is named differently at each site."""
ENV = ZONE
KEY = "STRATA_KEY"
"""The variable of a job of ours that has its key."""
QUEUES = (("qstat", "-Q", "-f", "-F", "json"), ("qstat", "-B", "-f", "-F", "json"), ("pbsnodes", "-a", "-F", "json"))
CANCEL, HOLD, RELEASE = ("qdel",), ("qhold", "-h", "u"), ("qrls", "-h", "u")

_AFTER: dict[After, str] = {"started": "after", "ended": "afterany", "done": "afterok", "failed": "afternotok"}
_ID = r"[0-9]+(\[[0-9]*\])?(\.[A-Za-z0-9_.-]+)?"
job_id = ids("PBS", re.compile(rf"{_ID}\Z"), "12.server, or 12[3].server for a task")
submitted = given("job", "qsub", re.compile(rf"(?m)^(?P<id>{_ID})\s*\Z"))
_OURS = ("-C", "-I", "-J", "-N", "-S", "-V", "-W", "-X", "-e", "-f", "-h", "-j", "-k", "-o", "-v", "-z", "--", "-G")
_VALUES = {**dict.fromkeys(("-A", "-M", "-P", "-R", "-a", "-c", "-l", "-m", "-p", "-q", "-r", "-u"), 1)}
is_away = says(
    re.compile(
        r"cannot connect|connection (refused|timed out)|no permission to contact|communication|timed out|"
        r"end of file|server (is )?(busy|shutting)|pbs_iff",
        re.IGNORECASE,
    )
)
is_denied = says(re.compile(r"unauthorized request", re.IGNORECASE))
is_gone = says(re.compile(r"unknown job id|job has finished|not configured to maintain job history", re.IGNORECASE))
_HOST = re.compile(r"([A-Za-z0-9_.-]+)/")
_STATES: dict[str, State] = {
    "Q": "waiting",
    "W": "waiting",
    "H": "held",
    "T": "starting",
    "B": "running",
    "R": "running",
    "S": "suspended",
    "U": "suspended",
    "E": "ending",
}
_ENDED = frozenset("FX")
_DELETED = "91"
"""Substate of a job that somebody ended. 92: it ended by itself; 93: badly."""
_SIGNALLED = 256
_LIMITS: dict[int, tuple[Outcome, str]] = {
    -29: ("timed-out", "its time was over"),
    -28: ("timed-out", "its processor time was over"),
    -27: ("out-of-memory", "it used more memory than it had"),
    -26: ("out-of-memory", "it used more virtual memory than it had"),
}
"""Exit status → which limit it came to (OpenPBS, JOB_EXEC_KILL_*)."""
_CLOSED = ("down", "offline", "unknown", "stale", "provisioning", "maintenance", "unresolvable", "resv-exclusive")


def build(work: Work) -> tuple[tuple[str, ...], str]:
    """The command that submits it, and what it reads."""
    check_key(work, "PBS")
    named = fitting_name(work)
    command = [
        *("qsub", "-C", "", "-S", "/bin/sh", "-j", "oe", "-o", "/dev/null", "-r", "n", "-v", f"{KEY}={work.key}"),
        *("-N", named if named[:1].isalpha() else f"_{named}", "-l", f"select={_select(work)}"),
    ]
    needs = work.resources
    if needs.nodes > 1:
        command += ["-l", "place=scatter"]
    if needs.time is not None:
        command += ["-l", f"walltime={needs.time}"]
    for name, count in sorted(needs.licences.items()):
        command += ["-l", f"{plain(work, 'resources.licences', name)}={count}"]
    if work.array is not None:
        if len(work.array.indices) < 2:
            raise BadRequest("an array of PBS must have at least two tasks", where="array")
        at_once = f"%{work.array.at_once}" if work.array.at_once is not None else ""
        command += ["-J", f"{work.array.first}-{work.array.last}:{work.array.step}{at_once}"]
    if work.after:
        command += ["-W", "depend=" + ",".join(f"{_AFTER[after]}:{job_id(one)}" for after, one in work.after)]
    if work.queue is not None and work.reservation is not None:
        raise BadRequest("a reservation of PBS is a queue of its own; name one of the two", where="reservation")
    for option, field in (("-q", "queue"), ("-q", "reservation"), ("-P", "project")):
        if getattr(work, field) is not None:
            command += [option, plain(work, field, getattr(work, field))]
    if work.held:
        command.append("-h")
    command += check_single(work.native, _OURS, _VALUES)
    return tuple(command), whole(work, "$PBS_ARRAY_INDEX", first=redirected(work))


def _select(work: Work) -> str:
    """Chunks: one for each node, those with a task more first."""
    needs = work.resources
    each, more = divmod(needs.tasks, needs.nodes)
    if not each:
        raise BadRequest("fewer tasks than nodes: PBS would leave nodes without one", where="resources.tasks")
    rest = f":mem={needs.memory}mb" if needs.memory is not None else ""
    rest += f":ngpus={needs.accelerators.count}" if needs.accelerators is not None else ""
    chunks = ((more, each + 1), (needs.nodes - more, each))
    return "+".join(f"{n}:ncpus={tasks * needs.cores}:mpiprocs={tasks}{rest}" for n, tasks in chunks if n)


def look(ended_since: float) -> tuple[tuple[str, ...], ...]:
    """All jobs with their tasks; ended ones where PBS keeps a history. (How long it does is the server's setting.)"""
    return (("qstat", "-f", "-t", "-F", "json"), ("qstat", "-x", "-f", "-t", "-F", "json"))


def jobs(replies: Sequence[str]) -> list[JobSeen]:
    """From the answers to ``look``. The second is newer."""
    found: dict[str, JobSeen] = {}
    for said in replies:
        for one, told in _read(said, "Jobs").items():
            if "[]" not in one:
                found[one] = _job(one, told)
    return list(found.values())


def _job(one: str, told: Mapping[str, Any]) -> JobSeen:
    letter, hold = str(told.get("job_state", "")), str(told.get("Hold_Types", ""))
    variables = told.get("Variable_List")
    key = variables.get(KEY, "") if isinstance(variables, dict) else _variable(str(variables or ""))
    index = str(told.get("array_index", ""))
    over = letter in _ENDED
    state: State = "ended" if over else _STATES.get(letter, "unknown")
    if state == "held" and hold == "s" and "depend" in told:
        state = "waiting"
    outcome, status, signal, why = _end(told) if over else (None, None, None, "")
    comment = str(told.get("comment", ""))
    return JobSeen(
        id=one,
        key=str(key),
        account=str(told.get("euser") or str(told.get("Job_Owner", "")).partition("@")[0]),
        index=int(index) if index.isdigit() else None,
        state=state,
        said=letter,
        outcome=outcome,
        status=status,
        signal=signal,
        reason=why or (comment if state in ("held", "waiting") or outcome not in (None, "done") else ""),
        queue=str(told.get("queue", "")),
        nodes=tuple(dict.fromkeys(_HOST.findall(str(told.get("exec_host", ""))))),
        submitted=_time(told, "ctime"),
        began=_time(told, "stime"),
        ended=(_time(told, "history_timestamp") or _time(told, "mtime")) if over else None,
        expected=_time(told, "estimated.start_time") if state == "waiting" else None,
    )


def _end(told: Mapping[str, Any]) -> tuple[Outcome | None, int | None, int | None, str]:
    code, deleted = str(told.get("Exit_status", "")), str(told.get("substate", "")) == _DELETED
    if not re.fullmatch(r"-?[0-9]+", code):
        return ("cancelled" if deleted else None), None, None, ("it was cancelled" if deleted else "")
    number, comment = int(code), str(told.get("comment", ""))
    if number in _LIMITS:
        outcome, words = _LIMITS[number]
        return outcome, None, None, words
    signal = number - _SIGNALLED if number > _SIGNALLED else None
    status = number if 0 <= number < _SIGNALLED else None
    if "walltime" in comment and "exceed" in comment:
        return "timed-out", None, signal, "its time was over"
    if deleted:
        return "cancelled", None, signal, "it was cancelled"
    if number == 0:
        return "done", 0, None, ""
    return "failed", status, signal, "" if signal is None else f"signal {signal} ended it"


def _variable(text: str) -> str:
    """The key in a list of variables of an older PBS: ``A=b,C=d``."""
    found = re.search(rf"(?:^|,){KEY}=([A-Za-z0-9_.-]+)", text)
    return found[1] if found else ""


def _time(told: Mapping[str, Any], name: str) -> float | None:
    value: Any = told
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else seconds(str(value))


def groups(replies: Sequence[str]) -> list[str]:
    """Groups that the access lists of queues name."""
    told = _read(replies[0], "Queue").values()
    return sorted({name for queue in told for name in _acl(queue, "group") or ()})


def queues(replies: Sequence[str], members: Mapping[str, frozenset[str]]) -> list[Queue]:
    """From the answers to ``QUEUES``: queues, the server, nodes."""
    servers = _read(replies[1], "Server").values()
    default = {str(server.get("default_queue", "")) for server in servers}
    nodes = list(_read(replies[2], "nodes").values())
    return [
        _queue(name, told, name in default, [node for node in nodes if _serves(node, name, told)], members)
        for name, told in _read(replies[0], "Queue").items()
        if told.get("queue_type") == "Execution"
    ]


def _serves(node: Mapping[str, Any], name: str, queue: Mapping[str, Any]) -> bool:
    """Whether a node is one of a queue's: by its own word, or by the list of queues that sites put on nodes."""
    if "state" not in node:
        return False  # one that PBS says nothing of but that it does not know it
    wanted = str(queue.get("default_chunk", {}).get("Qlist", ""))
    listed = str(node.get("resources_available", {}).get("Qlist", ""))
    return str(node.get("queue", name)) == name and (not wanted or wanted in listed.split(","))


def _queue(
    name: str,
    told: Mapping[str, Any],
    default: bool,
    nodes: Sequence[Mapping[str, Any]],
    members: Mapping[str, frozenset[str]],
) -> Queue:
    most = told.get("resources_max", {})
    users, named = _acl(told, "user"), _acl(told, "group")
    accounts = frozenset(user.lstrip("+").partition("@")[0] for user in users) if users is not None else None
    if named is not None:
        inside = frozenset(account for group in named for account in members.get(group, ()))
        accounts = inside if accounts is None else accounts & inside
    has = [node.get("resources_available", {}) for node in nodes]
    waits = re.search(r"Queued:([0-9]+)", str(told.get("state_count", "")))
    gpus = max((int(str(one.get("ngpus", 0)) or 0) for one in has), default=0)
    return Queue(
        name=name,
        open=told.get("enabled") == "True" and told.get("started") == "True",
        default=default,
        most_time=duration(str(most.get("walltime", ""))),
        most_nodes=int(most["nodect"]) if str(most.get("nodect", "")).isdigit() else None,
        node_cores=max((int(one["ncpus"]) for one in has if str(one.get("ncpus", "")).isdigit()), default=None),
        node_memory=max(filter(None, (mebibytes(str(one.get("mem", ""))) for one in has)), default=None),
        accelerators={"": gpus} if gpus else {},
        free_nodes=sum(node.get("state") == "free" for node in nodes),
        nodes=sum(not any(word in str(node.get("state", "")) for word in _CLOSED) for node in nodes),
        accounts=accounts,
        waiting=int(waits[1]) if waits else 0,
        priority=int(told["Priority"]) if str(told.get("Priority", "")).isdigit() else 0,
    )


def _acl(told: Mapping[str, Any], what: str) -> list[str] | None:
    """Whom an access list lets in; None: it is not in force. (What it shuts out begins with a minus.)"""
    if str(told.get(f"acl_{what}_enable")) != "True":
        return None
    named = str(told.get(f"acl_{what}s", "")).split(",")
    return [name for name in named if name and not name.startswith("-")]


def _read(said: str, what: str) -> dict[str, dict[str, Any]]:
    value = read_reply("qstat", said, {})
    found = value.get(what, {}) if isinstance(value, dict) else {}
    return dict(_entries(found))


def _entries(found: object) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, told in found.items() if isinstance(found, dict) else ():
        if isinstance(told, dict):
            yield str(name), told
