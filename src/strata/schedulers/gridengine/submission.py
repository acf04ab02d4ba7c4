"""A job as ``qsub`` takes it, and what it answers: pure.

Grid Engine reads host names and variables into paths, counts tasks from 1, and refuses spaces in names. So the script
goes to its folder and opens its files itself, the tasks of an array are numbered one higher than its indices, and a
name gets underscores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from strata.core.errors import BadRequest, StrataError
from strata.schedulers.abilities import check
from strata.schedulers.jobs import Ability, Work
from strata.schedulers.meanings import given, ids, refused, says
from strata.schedulers.options import check_key, check_single, fitting_name, plain
from strata.schedulers.scripts import redirected, whole

ABILITY = Ability(after=frozenset(("ended",)), accelerator_type=False)
"""A job begins after others have ended, however they ended. What kind of accelerator a host has is named differently at
each site."""
KEY = "strata."
"""Begins the account string of a job of ours, which accounting keeps too; its key follows."""
ENVIRONMENTS = ("qconf", "-spl")
"""Asks for the names of all parallel environments."""

_ID = re.compile(r"[0-9]+(\.[0-9]+)?\Z")
job_id = ids("Grid Engine", _ID, "12, or 12.3 for a task of an array")
submitted = given("job", "qsub", re.compile(r"(?m)^\s*(?P<id>[0-9]+)(\.[0-9:-]+)?\s*\Z"))
_OURS = (
    *("-A", "-C", "-N", "-S", "-V", "-ac", "-b", "-clear", "-cwd", "-dc", "-e", "-h", "-help", "-i", "-j", "-o", "-sc"),
    *("-shell", "-sync", "-t", "-terse", "-v", "-verify", "-wd", "-@"),
)
_VALUES = {
    **dict.fromkeys(("-R", "-a", "-binding", "-ckpt", "-dl", "-js", "-l", "-m", "-M", "-masterq", "-now", "-p"), 1),
    **dict.fromkeys(("-r", "-tc", "-w", "-q", "-P", "-hold_jid_ad", "-jc"), 1),
    **dict.fromkeys(("-hard", "-soft", "-notify"), 0),
    "-pe": 2,
}
is_away = says(
    re.compile(
        r"commlib|got (send|receive|read|select) error|unable to (send|contact)|answer list|qmaster|timed? ?out|gdi",
        re.IGNORECASE,
    )
)
"""What its commands say when qmaster could not be asked, or did not answer."""
is_denied = says(re.compile(r"privileges|must be at least owner|must be (manager|operator)"))
is_gone = says(re.compile(r"does not exist|already in deletion|not found"))


class Environment(NamedTuple):
    """A parallel environment: how slots are spread over hosts."""

    name: str
    rule: str
    """``$pe_slots``: all on one host. A number: so many on each."""
    slots: int


def environment(said: str) -> Environment:
    """From the answer to ``qconf -sp NAME``."""
    told = {name: value for name, _, value in (line.partition(" ") for line in said.splitlines())}
    slots = told.get("slots", "").strip()
    return Environment(
        told.get("pe_name", "").strip(), told.get("allocation_rule", "").strip(), int(slots) if slots.isdigit() else 0
    )


def slots_of(nodes: int, slots: int, environments: list[Environment]) -> tuple[str, ...]:
    """The option for so many slots over so many nodes, from the parallel environments that there are."""
    if slots == 1 and nodes == 1:
        return ()
    each, left = divmod(slots, nodes)
    rules = {str(each)} if not left else set[str]()
    if nodes == 1:
        rules.add("$pe_slots")
    for one in sorted(environments):
        if one.rule in rules and one.slots >= slots:
            return ("-pe", one.name, str(slots))
    wanted = f"{each} slots on each of {nodes} hosts" if nodes > 1 else f"{slots} slots on one host"
    found = ", ".join(f"{one.name} ({one.rule})" for one in environments) or "none"
    raise BadRequest(
        f"no parallel environment of this Grid Engine gives {wanted}",
        where="resources",
        hint=f"there are: {found}; an administrator adds one with allocation_rule {' or '.join(sorted(rules)) or each}",
    )


def build(work: Work, environments: list[Environment]) -> tuple[tuple[str, ...], str]:
    """The command that submits it, and what it reads."""
    check(ABILITY, work, "Grid Engine")
    check_key(work, "Grid Engine")
    named = fitting_name(work)
    command = [
        *("qsub", "-terse", "-S", "/bin/sh", "-C", "", "-wd", "/", "-o", "/dev/null", "-j", "y", "-r", "n"),
        *("-A", f"{KEY}{work.key}", "-N", named if named[:1].isalpha() else f"_{named}"),
        *slots_of(work.resources.nodes, work.resources.tasks * work.resources.cores, environments),
    ]
    for name, value in _requests(work).items():
        command += ["-l", f"{name}={value}"]
    if work.array is not None:
        command += ["-t", f"{work.array.first + 1}-{work.array.last + 1}:{work.array.step}"]
        if work.array.at_once is not None:
            command += ["-tc", str(work.array.at_once)]
    if work.after:
        command += ["-hold_jid", ",".join(_whole(job_id(one)) for _, one in work.after)]
    for option, field in (("-q", "queue"), ("-P", "project"), ("-ar", "reservation")):
        if getattr(work, field) is not None:
            command += [option, plain(work, field, getattr(work, field))]
    if work.held:
        command.append("-h")
    if work.own_image:
        command += ["-v", "STRATA_IMAGE=none"]
    command += check_single(work.native, _OURS, _VALUES)
    return tuple(command), whole(work, "$((SGE_TASK_ID - 1))", first=redirected(work))


def _requests(work: Work) -> Mapping[str, str]:
    needs = work.resources
    found = {}
    if needs.time is not None:
        found["h_rt"] = str(needs.time)
    if needs.memory is not None:
        # Counted for each slot, and given for each node.
        found["h_vmem"] = f"{-(-needs.memory * needs.nodes // (needs.tasks * needs.cores))}M"
    if needs.accelerators is not None:
        found["gpu"] = str(needs.accelerators.count)
    for name, count in sorted(needs.licences.items()):
        found[plain(work, "resources.licences", name)] = str(count)
    return found


def _whole(one: str) -> str:
    if "." in one:
        raise BadRequest(f"Grid Engine waits for whole jobs, not for the task {one}", where="after")
    return one


def refusal(said: str) -> StrataError:
    """What is raised where ``qsub`` failed and said this."""
    words = said.replace("Unable to run job: ", "").removesuffix("Exiting.").strip()
    return refused("Grid Engine", "qsub", words, is_away)
