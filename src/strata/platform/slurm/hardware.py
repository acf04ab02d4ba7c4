"""What nodes have that Slurm gives to jobs: as their kernels told, and where those said nothing, their BMCs. Pure.

A kernel sees what slurmd will see. A BMC tells of memory that firmware and kernel keep for themselves, so that some of
it is left out. Memory is rounded down a little: nodes that are alike differ by some kilobytes, and are one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from strata.hardware.inventory.records import Component
from strata.provisioning.agents.records import HostCard, HostHardware
from strata.schedulers.slurm.conf import Gpus, Hardware
from strata.schedulers.slurm.hostlists import in_order

KINDS = frozenset(("processor", "memory", "accelerator"))
"""Parts that count."""

_KEPT = 0.95
"""Of the memory in its slots, how much a node's kernel has at least."""
_NVIDIA = "0x10de"
_DEVICES = {"nvidia": ("/dev/nvidia", 0), "amd": ("/dev/dri/renderD", 128)}
"""Make → where its devices are, and the number of the first."""
_NOT_A_WORD = re.compile(r"[^a-z0-9_.]+")


def of_host(told: HostHardware) -> Hardware | None:
    """From what the node's kernel sees; None: it said nothing of use."""
    sockets, cores, threads = told.cpu.sockets, told.cpu.cores, told.cpu.threads
    memory = told.memory_bytes >> 20
    if not (sockets and cores >= sockets and threads >= cores and memory):
        return None
    shape = {"sockets": sockets, "cores": cores // sockets, "threads": threads // cores}
    if cores % sockets or threads % cores:  # cores that differ: so many of one thread each
        shape = {"sockets": 1, "cores": threads, "threads": 1}
    return Hardware(**shape, memory=rounded(memory), gpus=_told(told.accelerators))


def of_parts(parts: Iterable[Component]) -> Hardware | None:
    """From the parts that its BMC told of; None: no processor or no memory among them."""
    sockets = memory = 0
    shapes: set[tuple[int, int]] = set()
    cards: dict[tuple[str, str], int] = {}
    for part in parts:
        if part.kind == "processor" and part.facts.get("type", "CPU") == "CPU":
            cores = _whole(part, "cores")
            sockets += 1
            shapes.add((cores, max(1, _whole(part, "threads") // max(1, cores))))
        elif part.kind == "memory":
            memory += _whole(part, "capacity_mib")
        elif part.kind == "accelerator" and part.facts.get("type", "GPU") == "GPU":
            vendor = next((word for word in _DEVICES if word in f"{part.vendor} {part.model}".lower()), "")
            key = vendor, _word(part.model)
            cards[key] = cards.get(key, 0) + 1
    if len(shapes) != 1 or not memory or (0, 1) in shapes:
        return None
    ((cores, threads),) = shapes
    usable = rounded(int(memory * _KEPT))
    return Hardware(sockets=sockets, cores=cores, threads=threads, memory=usable, gpus=_gpus(cards))


def together(host: Hardware | None, parts: Hardware | None) -> Hardware | None:
    """The kernel's word counts; a BMC knows what accelerators are called whose driver does not run."""
    if host is None or parts is None or not parts.gpus or any(gpus.type for gpus in host.gpus):
        return host or parts
    return Hardware(sockets=host.sockets, cores=host.cores, threads=host.threads, memory=host.memory, gpus=parts.gpus)


def rounded(memory: int) -> int:
    """MiB, down by less than a 64th."""
    step = max(1, 1 << memory.bit_length() - 1 >> 6) if memory > 0 else 1
    return memory // step * step


def _gpus(cards: Mapping[tuple[str, str], int]) -> tuple[Gpus, ...]:
    """By make. Which device is which of two models of one make nobody told, so that they are just GPUs then."""
    makes: dict[str, dict[str, int]] = {}
    for (make, model), count in sorted(cards.items()):
        if count:
            makes.setdefault(make, {})[model] = count
    found = []
    for make, models in makes.items():
        count = sum(models.values())
        found.append(
            Gpus(count=count, type=next(iter(models)) if len(models) == 1 else "", files=_devices(make, count))
        )
    return tuple(found)


def _devices(make: str, count: int) -> str:
    if make not in _DEVICES:
        return ""
    path, first = _DEVICES[make]
    return f"{path}{first}" if count == 1 else f"{path}[{first}-{first + count - 1}]"


def _told(cards: Iterable[HostCard]) -> tuple[Gpus, ...]:
    """What the node's drivers say: each model with its devices. Until they run, NVIDIA's are counted."""
    running = tuple((card.make, card.name, card.devices[0]) for card in cards if card.make and card.devices)
    return _running(running) or _gpus({("nvidia", ""): sum(card.vendor == _NVIDIA for card in cards)})


@lru_cache(maxsize=256)  # nodes of one kind tell the same
def _running(cards: tuple[tuple[str, str, str], ...]) -> tuple[Gpus, ...]:
    models: dict[tuple[str, str], list[str]] = {}
    for make, name, device in cards:
        models.setdefault((make, _word(name)), []).append(device)
    return tuple(Gpus(count=len(files), type=model, files=in_order(files)) for (_, model), files in models.items())


def _whole(part: Component, name: str) -> int:
    value = part.facts.get(name, 0)
    return int(value) if isinstance(value, int | float) and 0 < value < 1 << 40 else 0


def _word(model: str) -> str:
    """A model as Slurm can say it: ``NVIDIA A100-SXM4`` is ``nvidia_a100_sxm4``."""
    return _NOT_A_WORD.sub("_", model.lower()).strip("_.")[:40]
