"""The workload managers that Strata speaks to, a line each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from strata.core.errors import BadRequest
from strata.schedulers.by_commands import ByCommands, Texts
from strata.schedulers.jobs import JobScheduler
from strata.schedulers.protocol import Scheduler
from strata.schedulers.reservations import Reservations
from strata.schedulers.reservations import Texts as ReservationTexts
from strata.schedulers.runner import Runner

KINDS = {
    "slurm": "strata.schedulers.slurm.slurm:Slurm",
    "gridengine": "strata.schedulers.gridengine.gridengine:GridEngine",
}
"""Kind → where its adapter is."""

SETTINGS = {
    "slurm": ("SLURM_CONF",),
    "gridengine": ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"),
    "pbs": ("PBS_CONF_FILE", "PBS_SERVER"),
    "lsf": ("LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR"),
    "htcondor": ("CONDOR_CONFIG",),
}
"""Kind → what its commands find their cluster by. Nothing else of the environment can be set."""


def check_settings(kind: str, env: Mapping[str, str]) -> None:
    """Refuse what commands of a kind find no cluster by. Raises ``BadRequest``."""
    for wrong in sorted(set(env) - set(SETTINGS[kind])):
        hint = f"{kind} is found by {', '.join(SETTINGS[kind])}"
        raise BadRequest(f"{wrong} cannot be set", where="env", hint=hint)


def open_scheduler(kind: str, runner: Runner, mark: str) -> Scheduler:
    """The adapter of a kind, whose commands ``runner`` runs. ``mark``: how drains of ours are known."""
    return cast("Scheduler", _adapter(KINDS, kind)(runner, mark))


JOB_KINDS = {
    "slurm": "strata.schedulers.slurm.jobs:SlurmJobs",
    "gridengine": "strata.schedulers.gridengine.jobs:GridEngineJobs",
    "pbs": "strata.schedulers.pbs.texts",
    "lsf": "strata.schedulers.lsf.texts",
    "htcondor": "strata.schedulers.htcondor.texts",
}
"""Kind → where its adapter for jobs is, or the texts that it speaks by."""


def open_job_scheduler(kind: str, runner: Runner) -> JobScheduler:
    """The adapter for jobs of a kind, whose commands ``runner`` runs: what is done for somebody, as their account."""
    if ":" not in JOB_KINDS.get(kind, ":"):
        return ByCommands(runner, cast("Texts", importlib.import_module(JOB_KINDS[kind])))
    return cast("JobScheduler", _adapter(JOB_KINDS, kind)(runner))


RESERVATION_KINDS = {
    "slurm": "strata.schedulers.slurm.reservations",
    "gridengine": "strata.schedulers.gridengine.reservations",
    "pbs": "strata.schedulers.pbs.reservations",
    "lsf": "strata.schedulers.lsf.reservations",
}
"""Kind → the texts by which its reservations are made. The others have none."""


def open_reservations(kind: str, runner: Runner) -> Reservations:
    """Reservations of a kind. ``BadRequest``: it has none."""
    if kind not in RESERVATION_KINDS:
        hint = f"it is one of {', '.join(RESERVATION_KINDS)}"
        raise BadRequest(f"{kind} has no reservations", where="target", hint=hint)
    texts = cast("ReservationTexts", importlib.import_module(RESERVATION_KINDS[kind]))
    if kind != "gridengine":
        return Reservations(runner, texts)
    from strata.schedulers.gridengine.jobs import environments

    return Reservations(runner, texts, environments)


def _adapter(kinds: Mapping[str, str], kind: str) -> Callable[..., object]:
    if kind not in kinds:
        raise BadRequest(f"no such workload manager: {kind[:40]}", where="kind", hint=f"one of {', '.join(kinds)}")
    module, _, name = kinds[kind].partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), name))
