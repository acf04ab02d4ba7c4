"""What Kubernetes says of Jobs and their pods: pure.

Of each object only what is needed is kept between looks. How a job has ended is the Job's to say, why and with which
status its last pod's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from strata.core.errors import DeviceError
from strata.core.input.foreign import one_line
from strata.schedulers.jobs import JobSeen, Outcome, State
from strata.schedulers.kubernetes.manifests import ACCOUNT, CONTAINER, FIRST, KEY, STEP

JOB_ID = re.compile(r"(?P<namespace>[a-z0-9-]{1,63})/(?P<name>[a-z0-9.-]{1,253}?)(\[(?P<index>[0-9]{1,8})\])?\Z")
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")
_MOST_INDICES = 100_000
_RANGE = re.compile(r"([0-9]{1,8})(?:-([0-9]{1,8}))?\Z")
_LOST_NODE = frozenset(("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "Preempting"))
_TIME_OVER = "DeadlineExceeded"
_OUT_OF_MEMORY = "OOMKilled"
_SHELL_SIGNAL = 128
_REASON = 300


class KubeJob(NamedTuple):
    """A Job of ours."""

    namespace: str
    name: str
    key: str
    account: str
    tasks: int
    """Tasks of an array; 0: it is none."""
    first: int
    step: int
    tries: int
    """How often a task is tried."""
    suspended: bool
    deleting: bool
    submitted: float | None
    ended: float | None
    over: str
    """``Complete`` or ``Failed``; empty: not yet."""
    reason: str
    message: str
    done: frozenset[int]
    failed: frozenset[int]
    """Tasks of an array, counted from 0, that have ended while the array has not."""

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


class KubePod(NamedTuple):
    """A pod of one."""

    name: str
    job: str
    """The id of its Job."""
    key: str
    account: str
    task: int | None
    """Counted from 0."""
    phase: str
    node: str
    created: float
    began: float | None
    ended: float | None
    status: int | None
    killed: int | None
    why: str
    """Kubernetes' word for how it ended."""
    waits: str
    """Why it has not begun, in words."""
    scheduled: bool
    deleting: bool
    disrupted: bool
    """Whether its node, and not its program, is why it ended."""


def read_job(told: Mapping[str, Any]) -> KubeJob:
    """From an object of ``batch/v1``."""
    about, spec, status = _parts(told)
    labels, notes = _dict(about, "labels"), _dict(about, "annotations")
    over = next(
        (
            one
            for one in _list(status, "conditions")
            if one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
        ),
        {},
    )
    indexed = spec.get("completionMode") == "Indexed"
    count = _number(spec.get("completions")) or 0
    limit = spec.get("backoffLimitPerIndex") if indexed else spec.get("backoffLimit")
    return KubeJob(
        namespace=str(about.get("namespace", "")),
        name=str(about.get("name", "")),
        key=str(labels.get(KEY, "")),
        account=str(labels.get(ACCOUNT, "")),
        tasks=min(count, _MOST_INDICES) if indexed else 0,
        first=_number(notes.get(FIRST)) or 0,
        step=_number(notes.get(STEP)) or 1,
        tries=(_number(limit) or 0) + 1,
        suspended=spec.get("suspend") is True,
        deleting="deletionTimestamp" in about,
        submitted=_time(about.get("creationTimestamp")),
        ended=_time(status.get("completionTime")) or _time(over.get("lastTransitionTime")),
        over=str(over.get("type", "")),
        reason=str(over.get("reason", "")),
        message=_words(over.get("message")),
        done=_indices(status.get("completedIndexes")),
        failed=_indices(status.get("failedIndexes")),
    )


def read_pod(told: Mapping[str, Any]) -> KubePod:
    """From an object of ``v1``."""
    about, spec, status = _parts(told)
    labels, notes = _dict(about, "labels"), _dict(about, "annotations")
    container: Mapping[str, Any] = next(
        (one for one in _list(status, "containerStatuses") if one.get("name") == CONTAINER), {}
    )
    state = _dict(container, "state")
    ended, running, waiting = (_dict(state, name) for name in ("terminated", "running", "waiting"))
    conditions = {str(one.get("type")): one for one in _list(status, "conditions")}
    placed = conditions.get("PodScheduled", {})
    scheduled = bool(spec.get("nodeName")) or placed.get("status") == "True"
    code, signal = _number(ended.get("exitCode")), _number(ended.get("signal"))
    index = notes.get(_INDEX, labels.get(_INDEX))
    named = next((str(labels[label]) for label in _JOB_NAMES if label in labels), "")
    return KubePod(
        name=str(about.get("name", "")),
        job=f"{about.get('namespace', '')}/{named}",
        key=str(labels.get(KEY, "")),
        account=str(labels.get(ACCOUNT, "")),
        task=_number(index),
        phase=str(status.get("phase", "")),
        node=str(spec.get("nodeName", "")),
        created=_time(about.get("creationTimestamp")) or 0.0,
        began=_time(running.get("startedAt")) or _time(ended.get("startedAt")),
        ended=_time(ended.get("finishedAt")),
        status=code if not signal else None,
        killed=signal
        or (code - _SHELL_SIGNAL if code is not None and _SHELL_SIGNAL < code <= _SHELL_SIGNAL + 64 else None),
        why=str(status.get("reason") or ended.get("reason") or ""),
        waits=_waits(waiting, placed, scheduled),
        scheduled=scheduled,
        deleting="deletionTimestamp" in about,
        disrupted=conditions.get("DisruptionTarget", {}).get("status") == "True",
    )


def _waits(waiting: Mapping[str, Any], placed: Mapping[str, Any], scheduled: bool) -> str:
    if not scheduled:
        return _words(placed.get("message")) or "no node was chosen yet"
    reason = str(waiting.get("reason", ""))
    if reason in ("", "ContainerCreating", "PodInitializing"):
        return ""
    return f"{reason}: {told}" if (told := _words(waiting.get("message"))) else reason


def seen(jobs: Iterable[KubeJob], pods: Iterable[KubePod]) -> list[JobSeen]:
    """All jobs and tasks, from what is known of both."""
    newest: dict[tuple[str, int | None], KubePod] = {}
    tries: dict[tuple[str, int | None], int] = {}
    for pod in sorted(pods, key=lambda one: (one.created, one.name)):
        newest[pod.job, pod.task] = pod
        tries[pod.job, pod.task] = tries.get((pod.job, pod.task), 0) + 1
    found: list[JobSeen] = []
    known = set()
    for job in jobs:
        known.add(job.id)
        for task in range(job.tasks) if job.tasks else (None,):
            found.append(_task(job, task, newest.get((job.id, task)), tries.get((job.id, task), 0)))
    for (one, task), pod in newest.items():
        if one not in known and pod.key and pod.phase in ("Pending", "Running"):
            # The Job is gone, and its last pod is on its way.
            ident = one if task is None else f"{one}[{task}]"
            found.append(JobSeen(id=ident, key=pod.key, account=pod.account, state="ending", said="Terminating"))
    return found


def _task(job: KubeJob, task: int | None, pod: KubePod | None, tried: int) -> JobSeen:
    over = job.over
    if task is not None and not over:
        over = "Complete" if task in job.done else "Failed" if task in job.failed else ""
    elif task is not None and over == "Failed" and task in job.done:
        over = "Complete"
    if over == "Failed" and pod is not None and pod.phase in ("Pending", "Running") and not pod.deleting:
        over = ""  # what is known of the pod is older than that: the next look tells why it failed
    outcome, why = _outcome(job, pod, over)
    state: State = "ended"
    reason = why
    if not over:
        state, reason = _state(job, pod, tried)
    told = pod is not None and outcome in ("done", "failed")
    return JobSeen(
        id=job.id if task is None else f"{job.id}[{task}]",
        key=job.key,
        account=job.account,
        index=None if task is None else job.first + task * job.step,
        state=state,
        said=over or (pod.phase if pod else "Suspended" if job.suspended else "Pending"),
        outcome=outcome,
        status=0 if outcome == "done" else pod.status if pod and told else None,
        signal=pod.killed if pod and outcome == "failed" else None,
        reason=reason[:_REASON],
        nodes=(pod.node,) if pod and pod.node else (),
        submitted=job.submitted,
        began=pod.began if pod else None,
        ended=((pod.ended if pod else None) or job.ended) if over else None,
    )


def _outcome(job: KubeJob, pod: KubePod | None, over: str) -> tuple[Outcome | None, str]:
    if over != "Failed":
        return ("done", "") if over else (None, "")
    if _TIME_OVER in (job.reason, pod.why if pod else ""):
        return "timed-out", "its time was over"
    if pod is None:
        return "failed", job.message or job.reason
    if pod.why == _OUT_OF_MEMORY:
        return "out-of-memory", "it used more memory than it had"
    if pod.why in _LOST_NODE or pod.disrupted:
        return "node-failed", f"its node gave it up: {pod.why or 'it was disrupted'}"
    if pod.killed:
        return "failed", f"signal {pod.killed} ended it"
    return "failed", "" if pod.status is not None else pod.why or job.message


def _state(job: KubeJob, pod: KubePod | None, tried: int) -> tuple[State, str]:
    if job.deleting or (pod is not None and pod.deleting):
        return "ending", ""
    if job.suspended:
        return "held", "it is held"
    if pod is None:
        return "waiting", "Kubernetes has made no pod for it yet"
    if pod.phase == "Pending":
        return ("starting", pod.waits) if pod.scheduled else ("waiting", pod.waits)
    if pod.phase == "Running":
        return "running", ""
    if pod.phase == "Failed" and tried < job.tries:
        return "waiting", f"try {tried} of {job.tries} failed, the next follows"
    return ("ending", "") if pod.phase in ("Succeeded", "Failed") else ("unknown", "")


def items(told: object, what: str) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    found = told.get("items") if isinstance(told, dict) else None
    if not isinstance(found, list):
        raise DeviceError(f"no list of {what}", node=what, reply=str(told)[:200])
    return [one for one in found if isinstance(one, dict)]


def version(told: object) -> str:
    """The version of a list, or of an object."""
    return str(_dict(told, "metadata").get("resourceVersion", ""))


def more(told: object) -> str:
    """What brings the next part of a list; empty: this was the last."""
    return str(_dict(told, "metadata").get("continue") or "")


def key_of(told: Mapping[str, Any]) -> str:
    """What an object is known by in the cluster."""
    about = _dict(told, "metadata")
    return f"{about.get('namespace', '')}/{about.get('name', '')}"


def _parts(told: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    return _dict(told, "metadata"), _dict(told, "spec"), _dict(told, "status")


def _dict(told: object, name: str) -> Mapping[str, Any]:
    found = told.get(name) if isinstance(told, dict) else None
    return found if isinstance(found, dict) else {}


def _list(told: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = told.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 10 else None


def _words(value: object) -> str:
    return one_line(str(value)).strip()[:_REASON] if value else ""


def _time(value: object) -> float | None:
    """``2026-11-16T15:45:31Z``."""
    try:
        return datetime.fromisoformat(str(value)).timestamp() if value else None
    except ValueError:
        return None


def _indices(value: object) -> frozenset[int]:
    """``1,3-5,7``."""
    found: set[int] = set()
    for part in str(value or "").split(","):
        said = _RANGE.match(part)
        if said is not None:
            first, last = int(said[1]), int(said[2] or said[1])
            found.update(range(first, min(last, first + _MOST_INDICES) + 1))
    return frozenset(found)
