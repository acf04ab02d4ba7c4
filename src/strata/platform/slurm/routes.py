"""Slurm clusters that Strata writes the configuration of."""

from __future__ import annotations

from litestar import delete, get, post, put
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.platform.slurm.records import SlurmFiles, SlurmPower, SlurmPowered, SlurmSpec, SlurmView
from strata.platform.slurm.service import SlurmService

_TAG = "workload"


@get("/v1/slurm", tags=[_TAG], **needs("read", "workload"))
async def list_slurm(ask: Asked) -> ListOf[SlurmView]:
    """All Slurm clusters that are described here."""
    return ListOf(items=tuple(ask.of(SlurmService).all()))


@get("/v1/slurm/{name:str}", tags=[_TAG], **needs("read", "workload", 404))
async def show_slurm(ask: Asked, name: NamePath) -> SlurmView:
    """One of them, as its site describes it."""
    return ask.of(SlurmService).one(name)


@put("/v1/slurm/{name:str}", tags=[_TAG], **needs("change", "workload", body=True))
async def put_slurm(ask: Asked, name: NamePath, data: JSONBody[SlurmSpec]) -> SlurmView:
    """Describe a Slurm cluster, or describe it otherwise. Nothing is written anywhere by that: its files are made when
    they are asked for."""
    return await ask.of(SlurmService).put(ask.who, name, data)


@delete("/v1/slurm/{name:str}", tags=[_TAG], **needs("delete", "workload", 404))
async def delete_slurm(ask: Asked, name: NamePath) -> None:
    """Forget the description. Files that were written stay where they are."""
    await ask.of(SlurmService).delete(ask.who, name)


@get("/v1/slurm/{name:str}/files", tags=[_TAG], **needs("read", "slurm-files", 404))
async def show_slurm_files(ask: Asked, name: NamePath) -> SlurmFiles:
    """Its configuration, made from what is known now: slurm.conf, topology.conf, gres.conf, cgroup.conf."""
    return await ask.of(SlurmService).files(ask.who, name)


@post("/v1/slurm/{name:str}/power", tags=[_TAG], status_code=200, **needs("change", "power", 404, 502, body=True))
async def power_slurm(ask: Asked, name: NamePath, data: JSONBody[SlurmPower]) -> SlurmPowered:
    """What Slurm's power saving wants: nodes on, or off, or started anew. `name` is the connected workload manager.
    Only what Slurm itself says is off, or rebooted, and has no job, is. Doing it twice is the same as once."""
    return await ask.of(SlurmService).power(ask.who, name, data)


HANDLERS = [list_slurm, show_slurm, put_slurm, delete_slurm, show_slurm_files, power_slurm]
