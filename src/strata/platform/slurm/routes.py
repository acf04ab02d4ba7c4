"""Slurm clusters that Strata writes the configuration of."""

from __future__ import annotations

from strata.api.named import Named
from strata.api.routing import Routes
from strata.platform.slurm.service import SlurmService

_TAG = "workload"
_CLUSTERS = Named("/v1/slurm", SlurmService, "slurm", tag=_TAG, kind="workload", plural="slurm")


_SLURM_FILES = Routes(SlurmService, "slurm-files", tag=_TAG)
_POWER = Routes(SlurmService, "power", tag=_TAG)
_CLUSTERS.list(SlurmService.all)
_CLUSTERS.show(SlurmService.one)
_CLUSTERS.put(SlurmService.put, statuses=())
_CLUSTERS.delete(SlurmService.delete, statuses=(404,))
_SLURM_FILES.get("show_slurm_files", "/v1/slurm/{name:str}/files", SlurmService.files, 404)
_POWER.post("power_slurm", "/v1/slurm/{name:str}/power", SlurmService.power, "change", 404, 502)
