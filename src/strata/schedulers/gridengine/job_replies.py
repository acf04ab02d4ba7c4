"""What Grid Engine's commands are asked about jobs, and what they print: pure.

``qstat`` knows jobs until they end; the accounting knows them some seconds after that, unless they never began. Keys
are told job by job only (``qstat -j``), so that what is known already is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree

from strata.core.errors import DeviceError
from strata.schedulers.dates import seconds
from strata.schedulers.gridengine.replies import tree
from strata.schedulers.gridengine.submission import KEY
from strata.schedulers.jobs import JobSeen, Outcome, State
from strata.schedulers.meanings import key_in

JOBS = ("qstat", "-xml", "-g", "d", "-u", "*", "-s", "prs")
"""Asks for all jobs that have not ended: each task of an array by itself."""
MOST_DETAILS = 5000
"""Ids in one question; for more, all jobs are asked about."""

_LETTERS = frozenset("acdEhqrRsStTwzP")
_LIMITED = "37"
_NO_STATUS = "19"
_KILLED = ("37", "100")
_SIGNALLED = 128
_MOST_REASONS = 3
_NOT_YET = "it has not been looked at yet"
_NOTHING = "There are no messages available"


class Detail(NamedTuple):
    """What only ``qstat -j`` tells of a job."""

    key: str
    submitted: float | None
    waits: bool
    """For other jobs."""
    reason: str


def details_of(ids: Iterable[str]) -> tuple[str, ...]:
    """Asks for keys and reasons of some jobs."""
    some = sorted({one.partition(".")[0] for one in ids}, key=int)
    return ("qstat", "-xml", "-j", ",".join(some) if len(some) <= MOST_DETAILS else "*")


def past(began: float) -> tuple[str, ...]:
    """Asks the accounting for jobs that began since then."""
    return ("qacct", "-j", "*", "-b", f"{datetime.fromtimestamp(max(began, 0.0), UTC):%Y%m%d%H%M}")


def jobs(said: str, details: Mapping[str, Detail]) -> list[JobSeen]:
    """From the answer to ``JOBS``. ``details``: by the number of the job."""
    return [_job(element, details) for element in tree("qstat", said).iter("job_list")]


def _job(element: ElementTree.Element, details: Mapping[str, Detail]) -> JobSeen:
    told = {child.tag: (child.text or "").strip() for child in element}
    number, task, letters = told.get("JB_job_number", ""), told.get("tasks", ""), told.get("state", "")
    if not number.isdigit():
        raise DeviceError("it listed a job without its number", node="qstat", reply=str(told)[:200])
    detail = details.get(number, Detail("", None, False, ""))
    queue, _, host = told.get("queue_name", "").partition("@")
    state = _state(letters, detail)
    return JobSeen(
        id=f"{number}.{task}" if task.isdigit() else number,
        key=detail.key,
        account=told.get("JB_owner", ""),
        index=_index(task, detail.key),
        state=state,
        said=letters,
        reason=_waits(letters, state, detail),
        queue=queue,
        nodes=(host,) if host else (),
        submitted=detail.submitted or _iso(told.get("JB_submission_time", "")),
        began=_iso(told.get("JAT_start_time", "")),
    )


def _waits(letters: str, state: State, detail: Detail) -> str:
    if "E" in letters or (state == "waiting" and "h" not in letters):
        return detail.reason
    return {"held": "it is held", "waiting": "it waits for another job"}.get(state, "")


def _state(letters: str, detail: Detail) -> State:
    if not letters or not set(letters) <= _LETTERS:
        return "unknown"
    if "d" in letters:
        return "ending"
    if "E" in letters:
        return "held"
    if set(letters) & set("sST"):
        return "suspended"
    if "t" in letters:
        return "starting"
    if "q" in letters:
        return "held" if "h" in letters and not detail.waits else "waiting"
    return "running" if "r" in letters else "unknown"


def details(said: str) -> dict[str, Detail]:
    """By number, from the answer to ``details_of``. Jobs that have ended since are not among them."""
    whole = tree("qstat -j", said)
    reasons = _reasons(whole)
    found = {}
    for element in whole.findall("./djob_info/element"):
        number = _text(element, "JB_job_number")
        account = _text(element, "JB_account")
        told = _text(element, "JB_submission_time")
        # Newer Grid Engines tell milliseconds.
        submitted = float(told) / (1000 if len(told) > 10 else 1) if told.isdigit() else None
        errors = [one.text or "" for one in element.iter("QIM_message")]
        found[number] = Detail(
            key_in(account, KEY),
            submitted,
            element.find("JB_jid_predecessor_list") is not None,
            "; ".join(errors[:_MOST_REASONS]) or reasons.get(number, reasons[""]),
        )
    return found


def _reasons(whole: ElementTree.Element) -> dict[str, str]:
    """Why jobs wait, by number; under no number what concerns all."""
    found = {}
    for message in whole.iter("SME_message_list"):
        for element in message.findall("element"):
            found.update({one.text or "": _text(element, "MES_message") for one in element.iter("ULNG_value")})
    everybody = [
        _text(element, "MES_message")
        for all_ in whole.iter("SME_global_message_list")
        for element in all_.findall("element")
    ]
    return {"": "; ".join(one for one in everybody[:_MOST_REASONS] if one != _NOTHING) or _NOT_YET, **found}


def ended(said: str) -> Iterator[JobSeen]:
    """From the answer to ``past``, in the order in which they ended."""
    for block in said.split("=" * 62 + "\n")[1:]:
        told = {name: value for name, _, value in (line.partition(" ") for line in block.splitlines())}
        number = told.get("jobnumber", "").strip()
        if not number.isdigit():
            raise DeviceError("it listed a job without its number", node="qacct", reply=block[:200])
        yield _ended({name: value.strip() for name, value in told.items()}, number)


def _ended(told: Mapping[str, str], number: str) -> JobSeen:
    task, account = told.get("taskid", ""), told.get("account", "")
    key = key_in(account, KEY)
    failed, _, why = told.get("failed", "").partition(" ")
    words = why.strip(" :")
    code = told.get("exit_status", "").partition(" ")[0]
    status = int(code) if code.isdigit() else None
    began, end = seconds(told.get("start_time", "")), seconds(told.get("end_time", ""))
    outcome: Outcome = "done" if (failed, status) == ("0", 0) else "failed"
    signal = status - _SIGNALLED if status is not None and status > _SIGNALLED and failed in _KILLED else None
    if signal is not None or failed not in ("0", *_KILLED):
        status = None
    if failed == _LIMITED:
        outcome, words = _limit(told, began, end)
    elif failed == _NO_STATUS:
        outcome = "node-failed"
    return JobSeen(
        id=f"{number}.{task}" if task.isdigit() else number,
        key=key,
        account=told.get("owner", ""),
        index=_index(task, key),
        state="ended",
        said=f"failed {told['failed']}" if failed != "0" else "ended",
        outcome=outcome,
        status=status,
        signal=signal,
        reason="" if outcome == "done" else _reason(failed, words, status, signal),
        queue=told.get("qname", ""),
        nodes=(told["hostname"],) if told.get("hostname", "UNKNOWN") != "UNKNOWN" else (),
        submitted=seconds(told.get("qsub_time", "")),
        began=began,
        ended=end,
    )


def _limit(told: Mapping[str, str], began: float | None, end: float | None) -> tuple[Outcome, str]:
    """Which of its limits it had come to."""
    asked = dict(word.partition("=")[::2] for word in told.get("category", "").replace(",", " ").split())
    time = asked.get("h_rt", "")
    over = time.isdigit() and began is not None and end is not None and end - began >= int(time)
    if "h_vmem" in asked and not over:
        return "out-of-memory", "it used more memory than it had"
    return "timed-out", "its time was over"


def _reason(failed: str, words: str, status: int | None, signal: int | None) -> str:
    if signal is not None and failed != _LIMITED:
        return f"signal {signal} ended it"
    return words or f"its script ended with status {status}"


def _index(task: str, key: str) -> int | None:
    """Of a job of ours: tasks are numbered one higher than indices."""
    return int(task) - bool(key) if task.isdigit() else None


def _text(element: ElementTree.Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _iso(told: str) -> float | None:
    try:
        return datetime.fromisoformat(told).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
