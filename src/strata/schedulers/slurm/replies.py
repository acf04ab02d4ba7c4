"""What Slurm's commands are asked, and what they print: pure.

``sinfo`` and ``squeue`` print a line for all nodes that are alike, in Slurm's hostlists, which our nodesets read and
write. ``--json`` prints kilobytes for every node, and its form changes with every release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from strata.core.errors import BadRequest, DeviceError
from strata.core.nodeset import expand
from strata.schedulers.protocol import UNSEEN_JOB, NodeSeen
from strata.schedulers.slurm.hostlists import hostlist

# A reason is what somebody typed, so columns and rows end with characters that nobody types.
_COLUMN, _ROW = "\x1f", "\x1e"
NODES = (
    *("sinfo", "--all", "--noheader", "--Format"),
    f"NodeList:{_COLUMN},StateComplete:{_COLUMN},User:{_COLUMN},Reason:{_ROW}",
)
"""Asks for all nodes: a row for those that are alike."""
JOBS = (
    *("squeue", "--all", "--states=all", "--noheader", "--Format"),
    f"JobArrayID:{_COLUMN},State:{_COLUMN},NodeList:{_ROW}",
)
"""Asks for all jobs, also those that have just ended: which states hold a node is ours to say."""

_STATES = frozenset(("idle", "allocated", "mixed", "down"))
_NONE = ("none", "(null)", "Unknown")
_HELD = frozenset(("allocated", "mixed", "completing"))
# Slurm gives such a node to nobody until it has switched it on, or it has come back, and slurmd reports a new start.
# A node that is only to be switched off (power_down), or that is coming up, may begin a job at any moment.
_BOOTS = frozenset(("powering_down", "powered_down", "reboot_issued"))
_ENDED = frozenset(
    ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")
)


def nodes(said: str, mark: str) -> dict[str, NodeSeen]:
    """Nodes by name, from the answer to ``NODES``; without the jobs on them. ``mark``: begins the reason of drains that
    are ours."""
    found: dict[str, NodeSeen] = {}
    for named, state, by, reason in _rows(said, 4, "sinfo"):
        base, *flags = state.lower().split("+")
        seen = NodeSeen(
            state=state,
            understood=base in _STATES,
            drained="drain" in flags,
            down=base == "down",
            boots_first=bool(_BOOTS & set(flags)),
            reason="" if reason in _NONE else reason,
            ours="drain" in flags and reason.startswith(f"{mark}:"),
            by="" if by in _NONE else by,
            jobs=(UNSEEN_JOB,) if _HELD & {base, *flags} else (),
        )
        # A node of several partitions is told of once for each.
        found.update(dict.fromkeys(names(named), seen))
    return found


def jobs(said: str) -> dict[str, tuple[str, ...]]:
    """Jobs by the node that they hold, from the answer to ``JOBS``. A state that nobody knows holds its nodes."""
    found: dict[str, list[str]] = {}
    for job, state, named in _rows(said, 3, "squeue"):
        if state not in _ENDED:
            for name in names(named):
                found.setdefault(name, []).append(job)
    return {name: tuple(ids) for name, ids in found.items()}


def together(seen: Mapping[str, NodeSeen], held: Mapping[str, tuple[str, ...]]) -> dict[str, NodeSeen]:
    """Nodes with the jobs on them. A node that has one and is in no partition any more is there too."""
    nowhere = NodeSeen(state="in no partition", understood=True, drained=False)
    return {**seen, **{name: msgspec.structs.replace(seen.get(name, nowhere), jobs=ids) for name, ids in held.items()}}


def drain(those: Sequence[str], mark: str, reason: str) -> tuple[str, ...]:
    """The command that has no more jobs started on nodes."""
    return ("scontrol", "update", f"NodeName={hostlist(those)}", "State=DRAIN", f"Reason={mark}: {reason}")


def resume(those: Sequence[str]) -> tuple[str, ...]:
    """The command that has jobs started there again."""
    return ("scontrol", "update", f"NodeName={hostlist(those)}", "State=RESUME")


@lru_cache(maxsize=1024)
def names(named: str) -> tuple[str, ...]:
    """A hostlist as names. The same ones come again with every look."""
    if named in ("", *_NONE):
        return ()
    try:
        return tuple(expand(named))
    except BadRequest as error:
        raise DeviceError(f"not a hostlist: {error.detail}", node="slurm", reply=named[:200]) from None


def _rows(said: str, width: int, command: str) -> list[list[str]]:
    rows = [row.strip("\n").split(_COLUMN) for row in said.split(_ROW)]
    if rows.pop() != [""]:
        raise DeviceError("its answer is cut off", node=command, reply=said[-200:])
    for row in rows:
        if len(row) != width:
            raise DeviceError(f"{len(row)} columns where {width} were asked for", node=command, reply=str(row)[:200])
    return [[field.strip() for field in row] for row in rows]
