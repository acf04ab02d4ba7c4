"""How the tasks of a job are started over its nodes: by the scheduler's own launcher, or by Open MPI's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strata.core.errors import BadRequest
from strata.jobs.submission.records import JobDocument, Kind

_BY_SRUN: tuple[Kind, ...] = ("slurm",)
_BY_MPIEXEC: tuple[Kind, ...] = ("local", "gridengine", "pbs", "lsf")
# PMIx would have ranks read files of slurmd's folder, which is not in their image; it can send what is in them instead.
_PMIX = {"PMIX_MCA_gds": "hash"}


class Launcher(NamedTuple):
    """What stands before the program, and what the launcher is told by its environment."""

    words: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


def launcher(document: JobDocument, kind: Kind) -> Launcher:
    """What starts the tasks of a job at a scheduler of this kind. ``BadRequest``: it has nothing that could."""
    needs = document.needs
    if document.launch == "once":
        return Launcher()
    if document.launch == "mpi" and document.container is not None and document.container.clear_env:
        raise BadRequest(
            "MPI needs the job's environment, which clear_env takes away",
            where="container.clear_env",
            hint="leave it out",
        )
    if kind in _BY_SRUN:
        mpi = ("--mpi=pmix", "--kill-on-bad-exit=1") if document.launch == "mpi" else ("--mpi=none",)
        # Cores are said once more, as srun takes them over from sbatch in some versions of Slurm only.
        shape = (f"--nodes={needs.nodes}", f"--ntasks={needs.tasks}", f"--cpus-per-task={needs.cores}")
        return Launcher(("srun", *mpi, *shape, "--export=ALL"), _PMIX if document.launch == "mpi" else {})
    if kind not in _BY_MPIEXEC:
        raise BadRequest(f"{kind} cannot start the tasks of a job", where="launch", hint="launch: once")
    # Where tasks go is the scheduler's to say: its slots are cores, and other jobs have theirs on the same node.
    told = {
        "OMPI_MCA_rmaps_base_mapping_policy": f"ppr:{-(-needs.tasks // needs.nodes)}:node",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }
    return Launcher(("mpiexec", "-n", str(needs.tasks)), {**_PMIX, **told})
