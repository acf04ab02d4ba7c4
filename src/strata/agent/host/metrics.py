"""Figures that the machine gives about itself: load, memory, energy counters, accelerators."""

from __future__ import annotations

import os

from ..files import read_number, read_text
from ..paths import Paths
from .nvml import Nvml, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_DOMAINS = 64


def meminfo(paths: Paths) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    values = {}
    for line in read_text(paths.proc("meminfo"), 16384).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[name] = int(words[0]) * 1024
    return values


class Metrics:
    """Reads the figures of one instant; what the machine does not have is left out, never made up."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._nvml = Nvml(load(paths))
        self._domains = self._energy_domains()

    def read(self) -> dict[str, Any]:
        """The figures now."""
        memory = meminfo(self._paths)
        values: dict[str, Any] = {
            "load1": float((read_text(self._paths.proc("loadavg"), 128).split() or ["0"])[0]),
            "memory_total": memory.get("MemTotal", 0),
            "memory_free": memory.get("MemAvailable", memory.get("MemFree", 0)),
        }
        energy = {}
        for name, path in self._domains:
            microjoules = read_number(path + "/energy_uj")
            if microjoules is not None:
                energy[name] = microjoules / 1e6
        if energy:
            values["energy_j"] = energy
            values["energy_range_j"] = {
                name: (read_number(path + "/max_energy_range_uj") or 0) / 1e6 for name, path in self._domains
            }
        gpus = self._nvml.figures()
        if gpus:
            values["gpus"] = gpus
        return values

    def _energy_domains(self) -> list[tuple[str, str]]:
        """RAPL's domains by name: package-0, dram-0 (a child carries its package's number), psys."""
        top = self._paths.sys("class/powercap")
        found: list[tuple[str, str]] = []
        try:
            entries = sorted(os.listdir(top))  # noqa: PTH208 - pathlib sorts Paths, slower, and we want names
        except OSError:
            return []
        for entry in entries:
            name = read_text(top / entry / "name", 64)
            pieces = entry.split(":")
            if not name or pieces[0] not in ("intel-rapl", "amd-rapl") or len(pieces) < 2:
                continue
            if len(pieces) == 3:
                name = f"{name}-{pieces[1]}"
            found.append((name, str(top / entry)))
        return found[:_MOST_DOMAINS]
