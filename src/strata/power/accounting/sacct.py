"""Slurm's accounting as runs of jobs: ``sacct --json``, or ``sacct -P`` with a heading. Knows nothing of the service.

Jobs that have not begun, or ran nowhere, are left out. Steps are applications of their job.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from strata.core.errors import BadRequest
from strata.power.queue.squeue import slurm_number

FIELDS = "JobIDRaw,User,JobName,NodeList,Start,End,Suspended,State"
"""What ``sacct -P -o`` must print; others are ignored."""

_NEEDED = ("NodeList", "Start", "End")
_NOWHERE = ("", "None assigned", "None", "Unknown")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.(\d+))?\Z")
_STEPS = ("batch", "extern", "interactive")


def read(text: str) -> list[dict[str, Any]]:
    """The runs in it, as ``POST /v1/power/jobs`` takes them. Raises ``BadRequest``."""
    found = _from_json(text) if text.lstrip()[:1] in ("{", "[") else _from_text(text)
    return list(found)


def _from_text(text: str) -> Iterator[dict[str, Any]]:
    rows = csv.reader(text.splitlines(), delimiter="|", quoting=csv.QUOTE_NONE)
    heading = next(rows, [])
    ident = next((name for name in ("JobIDRaw", "JobID") if name in heading), "")
    missing = [name for name in _NEEDED if name not in heading]
    if not ident or missing:
        raise BadRequest(
            f"the heading lacks {', '.join(missing or ['JobIDRaw'])}",
            where="accounting",
            hint=f"sacct -P -a -o {FIELDS}",
        )
    user = ""
    for number, cells in enumerate(rows, 2):
        if not cells:
            continue
        if len(cells) != len(heading):
            raise BadRequest(f"{len(cells)} fields, not {len(heading)}", where=f"accounting, line {number}")
        row = dict(zip(heading, cells, strict=True))
        job, _, step = row[ident].partition(".")
        if not step:
            user = row.get("User", "")
        run = _run(
            job,
            step,
            user,
            row.get("JobName", ""),
            row["NodeList"],
            _time(row["Start"], number),
            _time(row["End"], number),
            _seconds(row.get("Suspended", "")),
        )
        if run is not None:
            yield run


def _from_json(text: str) -> Iterator[dict[str, Any]]:
    try:
        jobs = json.loads(text)["jobs"]
        for job in jobs:
            # What it does not know it leaves out, or says null.
            user = job.get("user") or (job.get("association") or {}).get("user") or ""
            number = str(job["job_id"])
            yield from _of_json(number, "", user, job.get("name") or "", job.get("nodes") or "", job["time"] or {})
            for step in job.get("steps") or ():
                told = step.get("step") or {}
                ident = told.get("id") or ""
                name = str(ident.get("step_id", "")) if isinstance(ident, dict) else str(ident).partition(".")[2]
                nodes = step.get("nodes")
                where = nodes.get("range") or ",".join(nodes.get("list") or ()) if isinstance(nodes, dict) else nodes
                yield from _of_json(number, name, user, told.get("name") or "", where or "", step["time"] or {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRequest(
            f"not what sacct --json prints: {type(error).__name__} {str(error)[:80]}", where="accounting"
        ) from None


def _of_json(job: str, step: str, user: str, name: str, nodes: str, time: Any) -> Iterator[dict[str, Any]]:
    suspended = float(slurm_number(time.get("suspended")) or 0)
    run = _run(job, step, user, name, nodes, slurm_number(time.get("start")), slurm_number(time.get("end")), suspended)
    if run is not None:
        yield run


def _run(
    job: str, step: str, user: str, name: str, nodes: str, start: float | None, end: float | None, suspended: float
) -> dict[str, Any] | None:
    if start is None or nodes in _NOWHERE or step in _STEPS:
        return None
    run = {"job": job, "user": user, "name": name[:200], "nodes": nodes, "start": start, "suspended": suspended}
    if step:
        run["apid"] = f"{job}.{step}"
    if end is not None:
        run["end"] = end
    return run


def _time(text: str, number: int) -> float | None:
    """Local time without a zone as sacct writes it, or Unix seconds (``SLURM_TIME_FORMAT=%s``)."""
    if text in ("", "Unknown", "None"):
        return None
    try:
        return float(text) if text.isdigit() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(f"{text[:40]!r} is not a time", where=f"accounting, line {number}") from None


def _seconds(text: str) -> float:
    found = _DURATION.match(text)
    if not found:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
