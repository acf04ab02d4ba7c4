"""Control groups for the jobs of this machine: where they are made, and what the kernel can hold a job to in them.

Version 2 alone. As root they are in a group of our own below the hierarchy's top, beside systemd's: jobs outlive the
service, and a group of the service would go with it. Not as root they are in the service's own group, where somebody
delegated that. What the kernel cannot do here the supervisor does as well as it can, and ``told`` says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from strata.jobs.local.supervisor import attach_devices, kill_group

_SERVICE = "service"
_CONTROLLERS = ("memory", "cpu")


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Where groups of tasks are made, and what they can do."""

    folder: Path | None = None
    memory: bool = False
    cpu: bool = False
    why: str = ""
    """What is missing, where something is."""
    devices: bool = False
    """Whether jobs can open no accelerators but theirs."""
    open_devices: str = ""
    """Why they can, on a machine that gives jobs accelerators."""

    def of(self, ident: str, name: str) -> str:
        """The folder of a task's group; empty: there is none."""
        return str(self.folder / f"{ident}.{name}") if self.folder is not None else ""

    def close(self) -> None:
        """Leave nothing behind, unless jobs go on. May block."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def end(self, ident: str, name: str) -> None:
        """End whatever is left in a task's group that nobody looks after any more, and remove it. May block."""
        if path := self.of(ident, name):
            kill_group(path)

    def try_devices(self, program: bytes) -> str:
        """Whether the kernel takes a program about devices in a group of ours; why not. May block."""
        if self.folder is None:
            return self.why
        tried = self.folder / "tried"
        try:
            tried.mkdir(exist_ok=True)
            attach_devices(str(tried), program)
        except OSError as error:
            return f"the kernel takes no program about devices: {error.strerror}"
        finally:
            with contextlib.suppress(OSError):
                tried.rmdir()
        return ""

    @property
    def told(self) -> str:
        """How jobs are held to what they asked for, in words."""
        memory = "memory by the kernel" if self.memory else "memory by a look every half second"
        cores = "cores by the kernel" if self.cpu else "cores by affinity, which a program can change"
        told = f"{memory}; {cores}" + (f" ({self.why})" if self.why else "")
        if self.devices:
            return f"{told}; accelerators by the kernel"
        if self.open_devices:
            return f"{told}; accelerators by variables, which a program can change ({self.open_devices})"
        return told


def open_groups(
    owner: Path, mounts: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")
) -> Groups:
    """Make a place for groups, as far as this machine and our account allow. ``owner``: the folder of the jobs, whose
    groups are apart from those of another service."""
    top = _mounted(mounts)
    if top is None:
        return Groups(why="this machine has no cgroup v2")
    name = f"strata-jobs-{hashlib.sha256(bytes(owner.absolute())).hexdigest()[:12]}"
    try:
        return _opened(top, own, name)
    except OSError as error:
        return Groups(why=f"no group can be made below {top}: {error.strerror}")


def _opened(top: Path, own: Path, name: str) -> Groups:
    above = top
    if os.geteuid() != 0:
        above = top / _own(own).lstrip("/")
        _step_aside(above)
    folder = above / name
    for controller in _CONTROLLERS:
        _enable(above, controller)
    folder.mkdir(exist_ok=True)
    for controller in _CONTROLLERS:
        _enable(folder, controller)
    can = (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
    missing = [word for word in _CONTROLLERS if word not in can]
    why = f"cgroup v2 has no controller for {' and '.join(missing)} here" if missing else ""
    return Groups(folder=folder, memory="memory" in can, cpu="cpu" in can, why=why)


def _step_aside(above: Path) -> None:
    """Out of a group that was delegated to us, into one below it: a group with groups that are limited holds no
    processes itself."""
    (above / _SERVICE).mkdir(exist_ok=True)
    for pid in (above / "cgroup.procs").read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):
            (above / _SERVICE / "cgroup.procs").write_text(pid, encoding="ascii")


def _enable(group: Path, controller: str) -> None:
    with contextlib.suppress(OSError):  # what it can do is read afterwards
        (group / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def _mounted(mounts: Path) -> Path | None:
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return Path(before.split()[4])
    return None


def _own(path: Path) -> str:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"
