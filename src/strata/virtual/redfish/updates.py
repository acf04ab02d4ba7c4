"""Firmware of a simulated server, and tasks that bring in another version as the model's time passes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

FIRMWARE = {"BIOS": "2.1.0", "BMC": "1.4.2", "NIC1": "28.36.1010", "CPLD": "0.9"}
"""Piece → the version that servers come with."""


class Task(msgspec.Struct, kw_only=True):
    """Work on firmware. ``begun`` None: it waits for a restart of the node."""

    id: str
    targets: tuple[str, ...]
    version: str
    begun: float | None
    lasts: float
    fails: bool = False
    applied: bool = False

    def percent(self, now: float) -> int:
        """How far it is."""
        if self.begun is None:
            return 0
        return 100 if now >= self.begun + self.lasts else int(100 * max(0.0, now - self.begun) / self.lasts)

    def state(self, now: float) -> str:
        """As Redfish calls it."""
        if self.begun is None:
            return "Pending"
        if self.percent(now) < 100:
            return "Running"
        return "Exception" if self.fails else "Completed"


class Updates:
    """The firmware of one node and its tasks."""

    def __init__(self, lasts: float, gpus: int) -> None:
        self.fail_next = False
        """The next update ends badly."""
        self.tasks: dict[str, Task] = {}
        self._lasts = lasts
        self._versions = FIRMWARE | {f"GPU{i + 1}": "96.00.5E.00.01" for i in range(gpus)}

    def versions(self, now: float) -> dict[str, str]:
        """Piece → version, with what has been finished by now."""
        for task in self.tasks.values():
            if not task.applied and task.state(now) == "Completed":
                task.applied = True
                self._versions |= dict.fromkeys(task.targets, task.version)
        return self._versions

    def begin(self, image: str, targets: Sequence[str], now: float, *, at_start: bool = False) -> Task:
        """Bring the image of that name in: at once, or when the node next starts."""
        found = re.search(r"\d+(?:\.\d+)+", image.rpartition("/")[2])
        task = Task(
            id=str(len(self.tasks) + 1),
            targets=tuple(targets) or ("BIOS",),
            version=found[0] if found else "9.9.9",
            begun=None if at_start else now,
            lasts=self._lasts,
            fails=self.fail_next,
        )
        self.fail_next = False
        self.tasks[task.id] = task
        return task

    def node_started(self, now: float) -> None:
        """The node starts: what waited for that begins."""
        for task in self.tasks.values():
            if task.begun is None:
                task.begun = now
