"""Slurm clusters that Strata writes the configuration of."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post, put
from litestar.params import JSONBody, PathParameter

from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.texts import NAME, Out
from strata.platform.slurm.records import SlurmFiles, SlurmPower, SlurmPowered, SlurmSpec, SlurmView
from strata.platform.slurm.service import SlurmService

_TAG = "workload"

SlurmPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]


class SlurmClusters(Out, frozen=True, kw_only=True):
    """All of them, by name."""

    items: tuple[SlurmView, ...]


@get("/v1/slurm", tags=[_TAG], **needs("read", "workload"))
async def list_slurm(ask: Asked) -> SlurmClusters:
    """All Slurm clusters that are described here."""
    return SlurmClusters(items=tuple(ask.of(SlurmService).all()))


@get("/v1/slurm/{name:str}", tags=[_TAG], **needs("read", "workload", 404))
async def show_slurm(ask: Asked, name: SlurmPath) -> SlurmView:
    """One of them, as its site describes it."""
    return ask.of(SlurmService).one(name)


@put("/v1/slurm/{name:str}", tags=[_TAG], **needs("change", "workload", body=True))
async def put_slurm(ask: Asked, name: SlurmPath, data: JSONBody[SlurmSpec]) -> SlurmView:
    """Describe a Slurm cluster, or describe it otherwise. Nothing is written anywhere by that: its files are made when
    they are asked for."""
    return await ask.of(SlurmService).put(ask.who, name, data)


@delete("/v1/slurm/{name:str}", tags=[_TAG], **needs("delete", "workload", 404))
async def delete_slurm(ask: Asked, name: SlurmPath) -> None:
    """Forget the description. Files that were written stay where they are."""
    await ask.of(SlurmService).delete(ask.who, name)


@get("/v1/slurm/{name:str}/files", tags=[_TAG], **needs("read", "slurm-files", 404))
async def show_slurm_files(ask: Asked, name: SlurmPath) -> SlurmFiles:
    """Its configuration, made from what is known now: slurm.conf, topology.conf, gres.conf, cgroup.conf."""
    return await ask.of(SlurmService).files(ask.who, name)


@post("/v1/slurm/{name:str}/power", tags=[_TAG], status_code=200, **needs("change", "power", 404, 502, body=True))
async def power_slurm(ask: Asked, name: SlurmPath, data: JSONBody[SlurmPower]) -> SlurmPowered:
    """What Slurm's power saving wants: nodes on, or off, or started anew. `name` is the connected workload manager.
    Only what Slurm itself says is off, or rebooted, and has no job, is. Doing it twice is the same as once."""
    return await ask.of(SlurmService).power(ask.who, name, data)


HANDLERS = [list_slurm, show_slurm, put_slurm, delete_slurm, show_slurm_files, power_slurm]
