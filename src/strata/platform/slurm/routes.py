"""Slurm clusters that Strata writes the configuration of."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.platform.slurm.records import SlurmFiles, SlurmPower, SlurmPowered
from strata.platform.slurm.service import SlurmService

_TAG = "workload"
_CLUSTERS = Named("/v1/slurm", SlurmService, "slurm", tag=_TAG, kind="workload", plural="slurm")
_CLUSTERS.list(SlurmService.all, "All Slurm clusters that are described here.")
_CLUSTERS.show(SlurmService.one, "One of them, as its site describes it.")
_CLUSTERS.put(
    SlurmService.put,
    "Describe a Slurm cluster, or describe it otherwise. Nothing is written anywhere by that: its files are made "
    "when they are asked for.",
    statuses=(),
)
_CLUSTERS.delete(
    SlurmService.delete, "Forget the description. Files that were written stay where they are.", statuses=(404,)
)


@get("/v1/slurm/{name:str}/files", tags=[_TAG], **needs("read", "slurm-files", 404))
async def show_slurm_files(ask: Asked, name: NamePath) -> SlurmFiles:
    """Its configuration, made from what is known now: slurm.conf, topology.conf, gres.conf, cgroup.conf."""
    return await ask.of(SlurmService).files(ask.who, name)


@post("/v1/slurm/{name:str}/power", tags=[_TAG], status_code=200, **needs("change", "power", 404, 502, body=True))
async def power_slurm(ask: Asked, name: NamePath, data: JSONBody[SlurmPower]) -> SlurmPowered:
    """What Slurm's power saving wants: nodes on, or off, or started anew. `name` is the connected workload manager.
    Only what Slurm itself says is off, or rebooted, and has no job, is. Doing it twice is the same as once."""
    return await ask.of(SlurmService).power(ask.who, name, data)
