"""A job as ``sbatch`` takes it, and what it answers: pure.

Every value is in one word with its option, so that none can be an option itself.
"""

from __future__ import annotations

import re

from strata.core.errors import BadRequest, StrataError
from strata.schedulers.jobs import Ability, After, Work
from strata.schedulers.meanings import given, ids, refused, says
from strata.schedulers.options import check_long, plain
from strata.schedulers.scripts import whole

NO_IMAGE = {"STRATA_CONTAINER_IMAGE": "none"}
"""What tells the site's plugin, where there is one, that a job brings its own image."""
ABILITY = Ability(whole_nodes=True)
"""Power for each job is not in Slurm's commands, nor are accelerators by their memory."""
KEY = "strata:"
"""Begins the comment of a job of ours; its key follows."""

_AFTER: dict[After, str] = {"started": "after", "ended": "afterany", "done": "afterok", "failed": "afternotok"}
_ID = re.compile(r"[0-9]+(_[0-9]+)?\Z")
job_id = ids("Slurm", _ID, "12, or 12_3 for a task of an array")
submitted = given("job", "sbatch", re.compile(r"\A\s*(?P<id>[0-9]+(_[0-9]+)?)(;[\s\S]*)?\s*\Z"))
_OURS = (
    *(
        "array",
        "chdir",
        "clusters",
        "comment",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "gid",
        "help",
        "input",
    ),
    *("output", "parsable", "quiet", "test-only", "uid", "usage", "verbose", "version", "wait", "wrap"),
)
_OURS_SHORT = "aDMeioQhVvW"
_FLAGS = "HIkOsX"
is_away = says(
    re.compile(
        r"unable to contact slurm|socket timed out|connection (refused|timed out|reset)|unexpected message|zero bytes|"
        r"communication (shutdown|connection) failure|transport endpoint|resource temporarily unavailable|"
        r"not responding|unable to establish|in standby mode|resolve|authentication|munge|protocol",
        re.IGNORECASE,
    )
)
"""What its commands say when slurmctld could not be asked, or did not answer."""
_STARTS = re.compile(r"\bto start at (?P<at>[0-9]+)\b")
_FAR = 20 * 366 * 86_400
"""Seconds. Behind a job without a time limit, Slurm says some thousand years."""


def build(work: Work) -> tuple[tuple[str, ...], str]:
    """The command that submits it, and what it reads."""
    return ("sbatch", "--parsable", *options(work)), whole(work, "$SLURM_ARRAY_TASK_ID")


def options(work: Work) -> tuple[str, ...]:
    """What it asks for, as options of ``sbatch``."""
    needs = work.resources
    found = [
        f"--comment={KEY}{work.key}",
        f"--job-name={work.name}",
        f"--chdir={work.workdir}",
        f"--output={path(work, work.stdout)}",
        f"--input={path(work, work.stdin or '/dev/null')}",
        # Of the environment of sbatch, which is nothing but what a login of the account has.
        "--export=ALL",
        # What becomes of it when a node fails is for whoever submitted it.
        "--no-requeue",
        f"--nodes={needs.nodes}",
        f"--ntasks={needs.tasks}",
        f"--cpus-per-task={needs.cores}",
    ]
    if work.stderr is not None:
        found.append(f"--error={path(work, work.stderr)}")
    if needs.memory is not None:
        found.append(f"--mem={needs.memory}M")
    if needs.time is not None:
        found.append(f"--time={-(-needs.time // 60)}")
    if needs.accelerators is not None:
        kind = f":{needs.accelerators.type}" if needs.accelerators.type else ""
        found.append(f"--gres=gpu{kind}:{needs.accelerators.count}")
    if needs.licences:
        found.append(f"--licenses={','.join(f'{name}:{count}' for name, count in sorted(needs.licences.items()))}")
    if work.array is not None:
        at_once = f"%{work.array.at_once}" if work.array.at_once else ""
        found.append(f"--array={work.array.first}-{work.array.last}:{work.array.step}{at_once}")
    if work.after:
        # A job whose condition can never be met any more would wait for ever.
        found.append(f"--dependency={','.join(f'{_AFTER[after]}:{job_id(one)}' for after, one in work.after)}")
        found.append("--kill-on-invalid-dep=yes")
    for option, field in (("partition", "queue"), ("account", "project"), ("reservation", "reservation")):
        value = getattr(work, field)
        if value is not None:
            found.append(f"--{option}={plain(work, field, value)}")
    if work.held:
        found.append("--hold")
    found += check_long(work.native, _OURS, _OURS_SHORT, _FLAGS)
    if work.whole_nodes:
        found.append("--exclusive")  # the last one counts, whatever the job's own options say of sharing
    return tuple(found)


def path(work: Work, value: str) -> str:
    """A path in which nothing but ``%a`` is replaced."""
    if "\\" in value:
        raise BadRequest("Slurm cannot use a path that has a backslash in it", where=value[:60])
    parts = value.split("%a") if work.array is not None else [value]
    return "%a".join(part.replace("%", "%%") for part in parts)


def starts(said: str, now: float) -> float | None:
    """When it would begin, from what ``sbatch --test-only`` says; None: Slurm cannot tell."""
    found = _STARTS.search(said)
    at = float(found["at"]) if found else None
    return at if at is not None and at < now + _FAR else None


def refusal(said: str) -> StrataError:
    """What is raised where ``sbatch`` failed and said this."""
    return refused("Slurm", "sbatch", said.replace("sbatch: error: ", "").replace("sbatch: ", "").strip(), is_away)


def is_denied(said: str) -> bool:
    """Whether it says that the job is somebody else's."""
    return "ermission denied" in said or "Invalid user id" in said
