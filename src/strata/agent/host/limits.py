"""Frequency and sleep-state limits, through the kernel's own cpufreq and cpuidle files.

A key that the command does not name stays as it is; one that is null goes back to what the hardware allows. A virtual
machine has neither subsystem: there a tree of the same files stands in, which does what the kernel does when they are
written, and the answer says so.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from ..errors import CommandFailed
from ..files import read_number, read_text
from ..paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GOVERNORS = "performance powersave schedutil ondemand conservative userspace"
_STAND_IN_KHZ = (1_000_000, 1_400_000, 1_800_000, 2_000_000, 2_200_000, 2_600_000, 3_000_000)
_STAND_IN_STATES = ("POLL", "C1", "C1E", "C6")


class Limits:
    """The limits of this machine's processors."""

    def __init__(self, paths: Paths) -> None:
        self._cpu = paths.sys("devices/system/cpu")
        self._stand_in = False
        if not self._policies():
            if not _virtual(paths):
                raise CommandFailed("this machine's kernel offers no frequency control (no cpufreq policies in sysfs)")
            self._cpu = paths.run / "cpu"
            self._stand_in = True
            if not self._policies():
                _build_stand_in(self._cpu)

    def apply(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Set what the command names, on every processor; the answer holds what is in force afterwards."""
        for key in ("min_khz", "max_khz", "cstate_max"):
            value = wanted.get(key)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise CommandFailed(f"limits: {key} must be a whole number of at least 0 or null, not {value!r}")
        self._check_range(wanted)
        self._check_sleep(wanted.get("cstate_max"))
        for policy in self._policies():
            self._frequency(policy, wanted)
            if self._stand_in and wanted:
                _run_clock(policy)
        if "cstate_max" in wanted:
            self._sleep_states(wanted["cstate_max"])
        return {"output": base64.b64encode(json.dumps(self.in_force()).encode()).decode()}

    def in_force(self) -> dict[str, Any]:
        """What the kernel says now: the widest range that any processor may use, so that no limit is overstated."""
        policies = self._policies()
        governors = sorted({read_text(policy / "scaling_governor", 64) for policy in policies})
        enabled = [_depth(state) for state in self._states() if (read_number(state / "disable") or 0) == 0]
        clocks = [clock for policy in policies if (clock := read_number(policy / "scaling_cur_freq"))]
        offered = [read_text(policy / "scaling_available_frequencies", 4096).split() for policy in policies]
        return {
            "governor": governors[0] if len(governors) == 1 else ",".join(governors),
            "min_khz": min(read_number(policy / "scaling_min_freq") or 0 for policy in policies),
            "max_khz": max(read_number(policy / "scaling_max_freq") or 0 for policy in policies),
            "hardware_khz": [
                min(read_number(policy / "cpuinfo_min_freq") or 0 for policy in policies),
                max(read_number(policy / "cpuinfo_max_freq") or 0 for policy in policies),
            ],
            "cstate_max": max(enabled, default=0),
            "cstates": max(map(_depth, self._states()), default=-1) + 1,
            **({"khz": max(clocks)} if clocks else {}),
            # Drivers that take any value in between (intel_pstate) list none.
            **({"available_khz": sorted({int(khz) for words in offered for khz in words})} if all(offered) else {}),
            "stand_in": self._stand_in,
        }

    def _policies(self) -> list[Path]:
        return sorted(self._cpu.glob("cpufreq/policy[0-9]*"))

    def _states(self) -> list[Path]:
        return sorted(self._cpu.glob("cpu[0-9]*/cpuidle/state[0-9]*"))

    def _check_sleep(self, deepest: int | None) -> None:
        there = max(map(_depth, self._states()), default=-1)
        if deepest is not None and deepest > there:
            choice = f"choose from 0 to {there}" if there >= 0 else "its kernel has no cpuidle states in sysfs"
            raise CommandFailed(f"limits: cstate_max {deepest} is no sleep state of this machine: {choice}")

    def _check_range(self, wanted: dict[str, Any]) -> None:
        low, high = wanted.get("min_khz"), wanted.get("max_khz")
        if low is not None and high is not None and low > high:
            raise CommandFailed(f"limits: min_khz {low} is above max_khz {high}")
        for policy in self._policies():
            least, most = read_number(policy / "cpuinfo_min_freq") or 0, read_number(policy / "cpuinfo_max_freq") or 0
            if high is not None and "min_khz" not in wanted and high < (read_number(policy / "scaling_min_freq") or 0):
                raise CommandFailed(f"limits: max_khz {high} is below the minimum in force: give min_khz too")
            if low is not None and "max_khz" not in wanted and low > (read_number(policy / "scaling_max_freq") or 0):
                raise CommandFailed(f"limits: min_khz {low} is above the maximum in force: give max_khz too")
            for key, value in (("min_khz", low), ("max_khz", high)):
                if value is not None and not least <= value <= most:
                    raise CommandFailed(f"limits: {key} {value} is outside {least} to {most} of {policy.name}")
            governor = wanted.get("governor")
            offered = read_text(policy / "scaling_available_governors", 256).split()
            if governor is not None and governor not in offered:
                raise CommandFailed(f"limits: governor {governor!r} is not offered: choose from {', '.join(offered)}")

    def _frequency(self, policy: Path, wanted: dict[str, Any]) -> None:
        if "governor" in wanted:
            offered = read_text(policy / "scaling_available_governors", 256).split()
            usual = next((name for name in ("schedutil", "ondemand", "powersave") if name in offered), None)
            governor = wanted["governor"] or usual
            if governor:
                _write(policy / "scaling_governor", governor)
        low = high = None
        if "min_khz" in wanted:
            low = wanted["min_khz"] if wanted["min_khz"] is not None else read_number(policy / "cpuinfo_min_freq")
        if "max_khz" in wanted:
            high = wanted["max_khz"] if wanted["max_khz"] is not None else read_number(policy / "cpuinfo_max_freq")
        changes = [("scaling_min_freq", low), ("scaling_max_freq", high)]
        if high is not None and high >= (read_number(policy / "scaling_min_freq") or 0):
            changes.reverse()  # the kernel refuses a minimum above the maximum, even for an instant
        for name, value in changes:
            if value is not None:
                _write(policy / name, str(value))

    def _sleep_states(self, deepest: int | None) -> None:
        for state in self._states():
            off = deepest is not None and _depth(state) > deepest
            _write(state / "disable", "1" if off else "0")


def _depth(state: Path) -> int:
    return int(state.name[5:])


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise CommandFailed(f"limits: the kernel refused {value} for {path}: {error.strerror or error}") from None


def _virtual(paths: Paths) -> bool:
    with paths.proc("cpuinfo").open("rb") as source:
        return b" hypervisor" in source.read(65536)


def _build_stand_in(cpu: Path) -> None:
    """The files that cpufreq and cpuidle would show for one processor."""
    policy = cpu / "cpufreq/policy0"
    policy.mkdir(parents=True, exist_ok=True)
    least, most = _STAND_IN_KHZ[0], _STAND_IN_KHZ[-1]
    values = {
        "cpuinfo_min_freq": least, "cpuinfo_max_freq": most, "scaling_min_freq": least, "scaling_max_freq": most,
        "scaling_available_frequencies": " ".join(map(str, reversed(_STAND_IN_KHZ))), "scaling_cur_freq": most,
        "scaling_governor": "schedutil", "scaling_available_governors": _GOVERNORS,
    }  # fmt: skip
    for name, value in values.items():
        (policy / name).write_text(str(value))
    for number, word in enumerate(_STAND_IN_STATES):
        state = cpu / f"cpu0/cpuidle/state{number}"
        state.mkdir(parents=True, exist_ok=True)
        (state / "name").write_text(word)
        (state / "disable").write_text("0")


def _run_clock(policy: Path) -> None:
    """The clock of the stand-in: one of those that it has, as fast as its limits allow; for ``powersave`` as slow."""
    low, high = read_number(policy / "scaling_min_freq") or 0, read_number(policy / "scaling_max_freq") or 0
    within = [khz for khz in _STAND_IN_KHZ if low <= khz <= high] or [high]
    saves = read_text(policy / "scaling_governor", 64) == "powersave"
    _write(policy / "scaling_cur_freq", str(min(within) if saves else max(within)))
