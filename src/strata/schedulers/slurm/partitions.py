"""Partitions of Slurm as queues: what is asked, and what the answers say. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from strata.core.errors import DeviceError
from strata.schedulers.dates import duration
from strata.schedulers.jobs import Queue

PARTITIONS = ("scontrol", "--all", "--oneliner", "show", "partition")
"""Asks for all partitions with what they allow."""
NODES = ("sinfo", "--all", "--noheader", "--Format", "Partition:|,CPUs:|,Memory:|,Gres:|,StateComplete:|,Nodes:")
"""Asks what their nodes have, and how many are free: a row for those that are alike."""
WAITING = ("squeue", "--all", "--array", "--states=PENDING", "--noheader", "--format=%P")
"""Asks in which partitions jobs wait: a line for each."""

_ALL = ("ALL", "(null)", "")
_GRES = re.compile(
    r"gpu(?::(?P<type>[A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*))?(?::(?P<count>[0-9]+)(?P<kilo>K?))?(?=[,(:]|\Z)"
)
_NUMBER = re.compile(r"[0-9]+")


def groups(said: str) -> list[str]:
    """Groups that are named in the answer to ``PARTITIONS``, once each."""
    named = (told.get("AllowGroups", "") for told in _partitions(said))
    return sorted({group for names in named if names not in _ALL for group in names.split(",")})


def queues(partitions: str, nodes: str, waiting: str, members: Mapping[str, Iterable[str]]) -> list[Queue]:
    """From the answers. ``members``: group → the accounts in it."""
    rows: dict[str, list[list[str]]] = {}
    for line in nodes.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != _COLUMNS:
            raise DeviceError(f"{len(fields)} columns where {_COLUMNS} were asked for", node="sinfo", reply=line[:200])
        rows.setdefault(fields[0].rstrip("*"), []).append(fields)
    # A job that may run in several waits in each of them.
    waits = Counter(name for line in waiting.splitlines() for name in line.strip().split(","))
    return [
        _queue(told, rows.get(told["PartitionName"], []), waits[told["PartitionName"]], members)
        for told in _partitions(partitions)
    ]


_COLUMNS = 6


def _partitions(said: str) -> list[dict[str, str]]:
    found = [dict(word.partition("=")[::2] for word in line.split()) for line in said.splitlines() if line.strip()]
    for told in found:
        if "PartitionName" not in told:
            raise DeviceError("not a partition", node="scontrol", reply=str(told)[:200])
    return found


def _queue(told: Mapping[str, str], rows: list[list[str]], waiting: int, members: Mapping[str, Iterable[str]]) -> Queue:
    allowed, projects = told.get("AllowGroups", ""), told.get("AllowAccounts", "")
    accounts = None
    if told.get("RootOnly") == "YES":
        accounts = frozenset[str]()
    elif allowed not in _ALL:
        accounts = frozenset(account for group in allowed.split(",") for account in members.get(group, ()))
    accelerators: dict[str, int] = {}
    for row in rows:
        for found in _GRES.finditer(row[3]):
            kind, count = found["type"] or "", int(found["count"] or 1) * (1024 if found["kilo"] else 1)
            accelerators[kind] = max(accelerators.get(kind, 0), count)
    return Queue(
        name=told["PartitionName"],
        open=told.get("State") == "UP",
        default=told.get("Default") == "YES",
        most_time=_seconds(told.get("MaxTime", "")),
        most_nodes=_count(told.get("MaxNodes", "")),
        node_cores=_most(rows, 1),
        node_memory=_most(rows, 2),
        accelerators=accelerators,
        free_nodes=sum(_count(row[5]) or 0 for row in rows if row[4] == "idle"),
        nodes=_count(told.get("TotalNodes", "")) or 0,
        accounts=accounts,
        projects=None if projects in _ALL else frozenset(projects.split(",")),
        not_projects=frozenset(name for name in told.get("DenyAccounts", "").split(",") if name not in _ALL),
        waiting=waiting,
        priority=_count(told.get("PriorityTier", "")) or 0,
    )


def _most(rows: list[list[str]], column: int) -> int | None:
    return max((count for row in rows if (count := _count(row[column])) is not None), default=None)


def _count(told: str) -> int | None:
    found = _NUMBER.match(told)
    return int(found[0]) if found else None


def _seconds(told: str) -> int | None:
    """``1-12:00:00``, ``30:00`` or ``UNLIMITED``."""
    days, _, rest = told.rpartition("-")
    seconds = duration(rest)
    if seconds is None or not (days or "0").isdigit():
        return None
    return int(days or 0) * 86_400 + seconds
