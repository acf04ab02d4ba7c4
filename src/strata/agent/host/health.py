"""Whether the machine is fit for work, as far as it can tell from within."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from ..files import read_number, read_text
from ..paths import Paths
from .metrics import meminfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LEAST_MEMORY = 0.02
_LEAST_ROOM = 0.02
_MOST_MOUNTS = 64
_READ_ONLY = ("squashfs", "iso9660", "erofs", "cramfs")  # full by nature
_CLOCK_TOLERANCE = 5.0
_MOST_PROBLEMS = 20
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def full(what: str, place: str, least: float) -> str:
    """Of what a file system has less than this share left; empty: of nothing. Raises `OSError`."""
    seen = os.statvfs(place)
    if seen.f_blocks and seen.f_bavail < seen.f_blocks * least:
        left, total = seen.f_bavail * seen.f_frsize >> 20, seen.f_blocks * seen.f_frsize >> 20
        return f"{what} is full: {left} of {total} MiB left"
    if seen.f_files and seen.f_favail < seen.f_files * least:
        return f"{what} is full: {seen.f_favail} of {seen.f_files} files left"
    return ""


def memory_errors(paths: Paths, most: int) -> list[str]:
    """What memory controllers count: errors that were not corrected, or more than `most` that were."""
    found = []
    for controller in sorted(paths.sys("devices/system/edac/mc").glob("mc[0-9]*")):
        lost, corrected = (read_number(controller / name) or 0 for name in ("ue_count", "ce_count"))
        if lost:
            found.append(f"memory controller {controller.name}: {lost} uncorrectable errors")
        elif corrected > most:
            found.append(f"memory controller {controller.name}: {corrected} corrected errors")
    return found


class Health:
    """Looks for what an administrator would want to know; every problem is one sentence."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.clock_off = 0.0
        """Seconds that our clock is ahead of the controller's, as far as that is known."""

    def clock(self, date: str) -> None:
        """Compare with the controller's clock, as the Date of its answer tells it (to the second)."""
        import calendar

        try:
            _, day, month, year, moment, zone = date.split()
            hour, minute, second = (int(part) for part in moment.split(":"))
            if zone == "GMT":
                at = (int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second)
                self.clock_off = time.time() - calendar.timegm(at)
        except ValueError:
            return

    def read(self) -> dict[str, Any]:
        """The problems now."""
        problems = [*self._memory(), *self._room(), *memory_errors(self._paths, 1000), *self._disks(), *self._kernel()]
        if abs(self.clock_off) > _CLOCK_TOLERANCE:
            problems.append(f"the clock is {self.clock_off:+.0f} s off the controller's")
        return {"ok": not problems, "problems": problems[:_MOST_PROBLEMS]}

    def _memory(self) -> list[str]:
        values = meminfo(self._paths)
        total, free = values.get("MemTotal", 0), values.get("MemAvailable", 0)
        if total and free < total * _LEAST_MEMORY:
            return [f"memory is nearly full: {free >> 20} of {total >> 20} MiB left"]
        return []

    def _room(self) -> list[str]:
        """File systems that are full: the memory for images, what members may write, and disks."""
        found = []
        for what, place in self._places():
            with contextlib.suppress(OSError):
                found.append(full(what, place, _LEAST_ROOM))
        return [problem for problem in found if problem]

    def _places(self) -> Iterator[tuple[str, str]]:
        yield "the memory for images", str(self._paths.images)
        for home in sorted(self._paths.members.glob("*/memory")):
            yield f"the root of member {home.parent.name.rpartition('-')[0]}", str(home)
        disks: dict[str, str] = {}
        for line in read_text(self._paths.proc("mounts"), 1 << 18).splitlines():
            # Disks alone: a server of files that is away would keep us waiting, and with us our controller.
            source, target, kind, options, *_ = [*line.split(" "), "", "", "", ""]
            if source.startswith("/dev/") and kind not in _READ_ONLY and "ro" not in options.split(","):
                disks.setdefault(source, target)
        for source, target in list(disks.items())[:_MOST_MOUNTS]:
            place = target.replace("\\040", " ")
            yield f"{source.removeprefix('/dev/')} ({place})", str(self._paths.root / place.lstrip("/"))

    def _disks(self) -> list[str]:
        found = []
        for disk in sorted(self._paths.sys("block").glob("sd*")) + sorted(self._paths.sys("block").glob("nvme*")):
            state = read_text(disk / "device/state", 64)
            if state in ("offline", "dead", "blocked"):
                found.append(f"disk {disk.name} is {state}")
            try:
                errors = int(read_text(disk / "device/ioerr_cnt", 64) or "0", 16)
            except ValueError:
                errors = 0
            if errors > 10:
                found.append(f"disk {disk.name}: {errors} failed requests")
        return found

    def _kernel(self) -> list[str]:
        tainted = read_number(self._paths.proc("sys/kernel/tainted")) or 0
        found = []
        if tainted & (1 << 4):
            found.append("the processor reported a machine check")
        if tainted & (1 << 7):
            found.append("the kernel had an oops")
        if tainted & (1 << 14):
            found.append("the kernel had a soft lock-up")
        return found
