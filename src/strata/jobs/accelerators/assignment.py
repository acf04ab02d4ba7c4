"""Which accelerators and adapters a job gets, and what that means for its container: devices, files, variables. Pure.

Files of a driver go to ``/usr/local/nvidia``, where NVIDIA's own images have looked for them since there were GPUs in
containers. They are the host's files, found when the container starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from strata.core.errors import BadRequest, NotFound
from strata.jobs.accelerators.records import Accelerator, Adapter, Found

LIBRARIES = "/usr/local/nvidia/lib64"
PROGRAMS = "/usr/local/nvidia/bin"
"""Where a container finds what belongs to the host's drivers."""

_VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
_GIVEN = (
    ("SLURM_STEP_GPUS", ""),
    ("SLURM_JOB_GPUS", ""),
    ("STRATA_ACCELERATORS", ""),
    ("SGE_HGR_gpu", ""),
    ("CUDA_VISIBLE_DEVICES", "nvidia"),
    ("ROCR_VISIBLE_DEVICES", "amd"),
    ("ZE_AFFINITY_MASK", "intel"),
)
"""Variables by which a workload manager says what a job got; the first that is there counts. Slurm's own come before
CUDA's: within a device cgroup the latter counts anew from 0."""
NOTHING = ("", "none", "void", "-1", "NoDevFiles")


class Assigned(NamedTuple):
    """What a job gets."""

    accelerators: tuple[Accelerator, ...] = ()
    adapters: tuple[Adapter, ...] = ()

    @property
    def makes(self) -> tuple[str, ...]:
        """Whose they are, each once."""
        return tuple(dict.fromkeys([*(one.make for one in self.accelerators), *(one.kind for one in self.adapters)]))

    def devices(self, found: Found) -> tuple[str, ...]:
        """All device files that it needs."""
        own = [path for card in self.accelerators for path in card.devices]
        own += [path for adapter in self.adapters for path in adapter.devices]
        shared = [path for make in self.makes for path in found.supports(make).devices]
        return tuple(dict.fromkeys([*own, *shared]))

    def shown(self, found: Found) -> list[tuple[str, str]]:
        """The drivers' libraries and programs: files of the host, and where a container finds each."""
        supports = [found.supports(make) for make in self.makes]
        libraries = [(one.path, f"{LIBRARIES}/{one.name}") for has in supports for one in has.libraries]
        programs = [(path, f"{PROGRAMS}/{path.rpartition('/')[2]}") for has in supports for path in has.programs]
        return [*libraries, *programs]

    def variables(self, found: Found, *, hidden: bool) -> dict[str, str]:
        """What tells programs which accelerators they may use. ``hidden``: they see no others anyway, and count those
        that they see from 0."""
        told: dict[str, str] = {}
        for make in self.makes:
            name = found.supports(make).variable or _VARIABLES.get(make, "")
            mine = [one for one in self.accelerators if one.make == make]
            if not name or not mine:
                continue
            if all(one.id for one in mine) and make in ("nvidia", "amd"):
                told[name] = ",".join(one.id for one in mine)
            else:
                told[name] = ",".join(str(at if hidden else one.index) for at, one in enumerate(mine))
        for make in sorted({one.make for one in found.accelerators} - set(self.makes)):
            if name := found.supports(make).variable or _VARIABLES.get(make, ""):
                told[name] = "" if make == "intel" else "-1"
        return told


def choose(found: Found, wanted: Iterable[str]) -> Assigned:
    """Those that are named: ``nvidia.com/gpu=0``, ``nvidia.com/gpu=all``, the id of one, ``infiniband/hca=mlx5_0``, or
    ``all``. ``NotFound`` names those that are there."""
    accelerators: list[Accelerator] = []
    adapters: list[Adapter] = []
    for word in wanted:
        kind, _, name = word.rpartition("=")
        cards = [one for one in found.accelerators if word in ("all", one.id, one.cdi) or _all_of(one.cdi, kind, name)]
        nics = [one for one in found.fabric if word in ("all", one.cdi) or _all_of(one.cdi, kind, name)]
        if not cards and not nics and word != "all":
            there = ", ".join(one.cdi for one in found.devices) or "none"
            raise NotFound(f"there is no such accelerator; there are {there}", where=word[:120])
        for card in cards:
            if not card.devices:
                raise BadRequest(
                    "its driver does not run, so that no program could use it", where=card.cdi, hint="modprobe it"
                )
        accelerators += cards
        adapters += nics
    return Assigned(tuple(dict.fromkeys(accelerators)), tuple(dict.fromkeys(adapters)))


def given(found: Found, environment: Mapping[str, str]) -> Assigned:
    """What the workload manager gave to the job that runs in this environment; nothing where it says nothing. Adapters
    are everybody's: whoever runs on a node may use its network."""
    for name, make in _GIVEN:
        if name in environment:
            said = [word.strip() for word in environment[name].replace(" ", ",").split(",")]
            wanted = [word for word in said if word not in NOTHING]
            cards = [card for word in wanted for card in [_card(found, make, word, name)]]
            return Assigned(tuple(dict.fromkeys(cards)), found.fabric)
    return Assigned((), found.fabric)


def _card(found: Found, make: str, word: str, variable: str) -> Accelerator:
    cards: Sequence[Accelerator] = [one for one in found.accelerators if make in ("", one.make)]
    for card in cards:
        if word == card.id or word in card.devices or (word.isdecimal() and int(word) == card.index):
            return card
    raise NotFound(f"{variable} names {word[:60]!r}, which this machine does not have", where="accelerators")


def _all_of(cdi: str, kind: str, name: str) -> bool:
    return name == "all" and bool(kind) and cdi.startswith(f"{kind}=")
