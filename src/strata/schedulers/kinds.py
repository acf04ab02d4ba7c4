"""The workload managers that Strata speaks to, a line each."""

from __future__ import annotations

import importlib
from typing import cast

from strata.core.errors import BadRequest
from strata.schedulers.protocol import Scheduler
from strata.schedulers.runner import Runner

KINDS = {
    "slurm": "strata.schedulers.slurm.slurm:Slurm",
    "gridengine": "strata.schedulers.gridengine.gridengine:GridEngine",
}
"""Kind → where its adapter is."""

SETTINGS = {
    "slurm": ("SLURM_CONF",),
    "gridengine": ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"),
}
"""Kind → what its commands find their cluster by. Nothing else of the environment can be set."""


def open_scheduler(kind: str, runner: Runner, mark: str) -> Scheduler:
    """The adapter of a kind, whose commands ``runner`` runs. ``mark``: how drains of ours are known."""
    if kind not in KINDS:
        raise BadRequest(f"no such workload manager: {kind[:40]}", where="kind", hint=f"one of {', '.join(KINDS)}")
    module, _, name = KINDS[kind].partition(":")
    return cast("Scheduler", getattr(importlib.import_module(module), name)(runner, mark))
