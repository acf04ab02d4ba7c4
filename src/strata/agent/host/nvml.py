"""NVIDIA's management library by ctypes, where the machine has it; absent otherwise."""

from __future__ import annotations

from pathlib import Path

from ..paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Any

_MOST_GPUS = 64
_TEXT = 96
_SLOWED = {0x08: "hardware slowdown", 0x20: "too hot", 0x40: "too hot (hardware)", 0x80: "power brake"}
"""Reasons for low clocks that are trouble. Being idle, a cap and a setting are none."""


def load(paths: Paths) -> Any:
    """The library of this machine, started; None: there is none, or `paths` are not those of this machine."""
    if paths.root != Path("/") or not paths.proc("driver/nvidia/version").exists():
        return None
    import ctypes

    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


class Nvml:
    """What the library says of its GPUs. What it does not say is left out, never made up."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def figures(self) -> list[dict[str, float]]:
        """Power, energy and temperature of each GPU now."""
        found = []
        for index, card in self._handles():
            values: dict[str, float] = {"index": index}
            if (power := self._whole("nvmlDeviceGetPowerUsage", card)) is not None:
                values["power_w"] = power / 1e3
            if (energy := self._long("nvmlDeviceGetTotalEnergyConsumption", card)) is not None:
                values["energy_j"] = energy / 1e3
            if (heat := self._whole("nvmlDeviceGetTemperature", card, 0)) is not None:
                values["temperature_c"] = heat
            found.append(values)
        return found

    def cards(self) -> dict[str, dict[str, Any]]:
        """Name, id, memory and device number of each GPU, by its PCI address (`0000:17:00.0`)."""
        import ctypes

        class Memory(ctypes.Structure):
            _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

        found = {}
        for _, card in self._handles():
            if not (address := self._address(card)):
                continue
            entry: dict[str, Any] = {"name": self._text("Name", card), "id": self._text("UUID", card)}
            memory = Memory()
            if self._library.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) == 0:
                entry["memory_bytes"] = memory.total
            entry["minor"] = self._whole("nvmlDeviceGetMinorNumber", card)
            found[address] = {name: value for name, value in entry.items() if value not in (None, "")}
        return found

    def problems(self) -> dict[str, list[str]]:
        """What is wrong with each GPU, by its PCI address."""
        found = {}
        for _, card in self._handles():
            if address := self._address(card):
                found[address] = self._wrong(card)
        return found

    def _wrong(self, card: ctypes.c_void_p) -> list[str]:
        import ctypes

        wrong = []
        if lost := self._long("nvmlDeviceGetTotalEccErrors", card, 1, 0):
            wrong.append(f"{lost} uncorrectable memory errors since its driver started")
        rows = [ctypes.c_uint() for _ in range(4)]
        if self._library.nvmlDeviceGetRemappedRows(card, *(ctypes.byref(row) for row in rows)) == 0:
            _, _, pending, failed = (row.value for row in rows)
            if failed:
                wrong.append("has no spare memory rows left")
            elif pending:
                wrong.append("needs a reset: a memory row is to be replaced")
        reasons = self._long("nvmlDeviceGetCurrentClocksThrottleReasons", card) or 0
        if slowed := [word for bit, word in _SLOWED.items() if reasons & bit]:
            wrong.append(f"is slowed down: {', '.join(slowed)}")
        return wrong

    def _handles(self) -> list[tuple[int, ctypes.c_void_p]]:
        if self._library is None:
            return []
        import ctypes

        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        found = []
        for index in range(min(count.value, _MOST_GPUS)):
            card = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(card)) == 0:
                found.append((index, card))
        return found

    def _address(self, card: ctypes.c_void_p) -> str:
        import ctypes

        class Pci(ctypes.Structure):
            _fields_ = [
                ("legacy", ctypes.c_char * 16),
                *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "subsystem")),
                ("address", ctypes.c_char * 32),
            ]

        pci = Pci()
        if self._library.nvmlDeviceGetPciInfo_v3(card, ctypes.byref(pci)):
            return ""
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def _text(self, what: str, card: ctypes.c_void_p) -> str:
        import ctypes

        text = ctypes.create_string_buffer(_TEXT)
        if getattr(self._library, f"nvmlDeviceGet{what}")(card, text, _TEXT):
            return ""
        return "".join(c if c.isprintable() else " " for c in text.value.decode("utf-8", "replace")).strip()

    def _whole(self, call: str, card: ctypes.c_void_p, *more: int) -> int | None:
        import ctypes

        value = ctypes.c_uint()
        return value.value if getattr(self._library, call)(card, *more, ctypes.byref(value)) == 0 else None

    def _long(self, call: str, card: ctypes.c_void_p, *more: int) -> int | None:
        import ctypes

        value = ctypes.c_ulonglong()
        return value.value if getattr(self._library, call)(card, *more, ctypes.byref(value)) == 0 else None
