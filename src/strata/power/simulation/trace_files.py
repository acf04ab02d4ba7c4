"""Recorded traces: the Standard Workload Format, and what ``sacct`` prints.

    sacct -aXP -S 2026-01-01 -o Submit,ElapsedRaw,TimelimitRaw,NNodes,ConsumedEnergyRaw,Partition,State > trace.txt

What a recording does not say is drawn from a seed, as in generated traces: how sensitive a job is to caps, and what
it drew where no energy was recorded.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from strata.core.errors import BadRequest
from strata.power.simulation.trace import DRAW, SENSITIVITY, Trace

_LARGEST = 64 * 1024 * 1024
_NEEDED = ("submit", "elapsedraw", "nnodes")


class _Job(NamedTuple):
    submit: float
    nodes: int
    seconds: float
    limit: float
    watts: float
    """0: not recorded."""
    queue: str


def read(text: str, *, source: str, nodes: int, high: float, seed: int = 1, queues: Sequence[str] = ()) -> Trace:
    """The trace in ``text``, whichever of the two it is. Jobs that ran for no time are left out.

    Larger jobs than the machine has ``nodes`` are taken to use all of them. Raises ``BadRequest`` that names the line.
    """
    if len(text) > _LARGEST:
        raise BadRequest(f"{len(text)} characters; at most {_LARGEST} are read", where=source)
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    reader = _sacct if "|" in first or "," in first else _swf
    jobs = sorted(
        (job for job in reader(lines, source) if job.seconds > 0 and job.nodes > 0), key=lambda job: job.submit
    )
    if not jobs:
        raise BadRequest(
            "holds no job that ran", where=source, hint="SWF, or sacct -aXP -o Submit,ElapsedRaw,NNodes,..."
        )
    luck = np.random.default_rng(seed)
    count = len(jobs)
    submit = np.array([job.submit for job in jobs])
    spans = np.array([job.seconds for job in jobs])
    watts = np.array([job.watts for job in jobs])
    numbers = {name: at for at, name in enumerate(queues)}
    other = 0 if queues else -1
    return Trace(
        submit=submit - submit[0],
        nodes=np.array([min(job.nodes, nodes) for job in jobs], np.int64),
        seconds=spans,
        limit=np.maximum(np.array([job.limit for job in jobs]), spans),
        watts=np.clip(np.where(watts > 0, watts, high * luck.triangular(*DRAW, count)), 1.0, high),
        sensitivity=luck.uniform(*SENSITIVITY, count),
        upcap=np.full(count, np.inf),
        queue=np.array([numbers.get(job.queue, other) for job in jobs], np.int64),
    )


def _swf(lines: Sequence[str], source: str) -> Iterator[_Job]:
    """Feitelson's format: 18 numbers a line; comments begin with ``;`` and may say how large the machine was."""
    said = {key.lower(): int(value) for key, value in re.findall(r"; *(Max(?:Nodes|Procs)): *(\d+)", "\n".join(lines))}
    per_node = max(said.get("maxprocs", 0) // max(said.get("maxnodes", 0), 1), 1) if "maxnodes" in said else 1
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        try:
            fields = [float(field) for field in line.split()]
            _, submit, _, seconds, procs, _, _, wanted, limit = fields[:9]
            queue = fields[14] if len(fields) > 14 else -1
            processors = procs if procs > 0 else wanted
            size = -int(-processors // per_node) if processors > 0 else 0
            yield _Job(submit, size, seconds, limit, 0.0, f"{queue:g}")
        except (ValueError, OverflowError):
            raise BadRequest(
                f"found {line[:60]!r}; expected at least 9 numbers, as SWF has", where=f"{source}, line {number}"
            ) from None


def _sacct(lines: Sequence[str], source: str) -> Iterator[_Job]:
    """``sacct -P`` (fields between bars), or the same as CSV."""
    rows = csv.reader(lines, delimiter="|" if "|" in lines[0] else ",")
    names = [name.strip().lower() for name in next(rows)]
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise BadRequest(
            f"the heading has no column {missing[0]}; found {', '.join(names)[:120]}", where=f"{source}, line 1"
        )
    for number, row in enumerate(rows, 2):
        fields = dict(zip(names, row, strict=False))
        try:
            size, seconds = int(fields["nnodes"]), float(fields["elapsedraw"])
            energy = _number(fields.get("consumedenergyraw", ""))
            limit = _number(fields.get("timelimitraw", "")) * 60.0
            watts = energy / (size * seconds) if size > 0 and seconds > 0 else 0.0
            yield _Job(_moment(fields["submit"]), size, seconds, limit, watts, fields.get("partition", ""))
        except (KeyError, ValueError):
            raise BadRequest(
                f"found {'|'.join(row)[:60]!r}; expected a time, seconds and a number of nodes",
                where=f"{source}, line {number}",
            ) from None


def _number(text: str) -> float:
    """A number where there is one: ``Partition_Limit`` and ``UNLIMITED`` stand where sacct has none."""
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if np.isfinite(found) else 0.0


def _moment(text: str) -> float:
    if text.isdigit():
        return float(text)
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
