"""A member as an OCI container: its configuration, and crun to run it.

Members share the node's network. A single service gets the capabilities that container engines give by default; a
full init (systemd) gets all of them and a cgroup tree of its own to divide. Neither sees the minimal OS's files or
processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from ..errors import CommandFailed
from ..files import inside, read_text
from ..paths import Paths
from .member import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SERVICE_CAPABILITIES = """
    CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE
    SETFCAP
"""
_CAPABILITIES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
    SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
    MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""  # in the kernel's order
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MASKED = ["/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"]


def runtime_config(member: Member, root: Path, hostname: str) -> dict[str, Any]:
    """The OCI runtime configuration of one member."""
    names = (_CAPABILITIES if member.init else _SERVICE_CAPABILITIES).split()
    capabilities = [f"CAP_{name}" for name in _held_capabilities() if name in names]
    environment = list(member.release.env)
    if not any(entry.startswith("PATH=") for entry in environment):
        environment.append(_PATH)
    if member.init:
        environment.append("container=oci")
    environment += [f"{name}={value}" for name, value in member.env.items()]
    namespaces = ["pid", "ipc", "uts", "mount", "cgroup"]
    linux: dict[str, Any] = {
        "namespaces": [{"type": kind} for kind in namespaces],
        "cgroupsPath": f"/strata/{member.identifier}",
        "resources": {"devices": [{"allow": True, "access": "rwm"}]},
    }
    if not member.init:
        linux["maskedPaths"] = _MASKED
        linux["readonlyPaths"] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
        linux["resources"] = {"devices": _service_devices()}
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": False},
        "hostname": hostname,
        "process": {
            "terminal": False,
            "user": user_of(member.release.user, root),
            "args": member.argv,
            "env": environment,
            "cwd": member.release.cwd,
            "noNewPrivileges": False,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "mounts": _mounts(member),
        "linux": linux,
    }


def _held_capabilities() -> list[str]:
    """Those that we can give: an older kernel knows fewer, and crun fails over one that we were not given ourselves."""
    status = read_text("/proc/self/status", 16384).splitlines()
    mask = int(next(line.split()[1] for line in status if line.startswith("CapBnd:")), 16)
    return [name for bit, name in enumerate(_CAPABILITIES.split()) if mask >> bit & 1]


def _service_devices() -> list[dict[str, Any]]:
    """The harmless devices only; what a member needs beyond them its personality mounts and init=true allows."""
    numbers = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (136, -1)]
    allowed = [{"allow": True, "type": "c", "access": "rwm", "major": a, "minor": b} for a, b in numbers if b >= 0]
    allowed.append({"allow": True, "type": "c", "access": "rwm", "major": 136})
    return [{"allow": False, "access": "rwm"}, *allowed]


def _mounts(member: Member) -> list[dict[str, Any]]:
    def mount(target: str, kind: str, source: str, *options: str) -> dict[str, Any]:
        return {"destination": target, "type": kind, "source": source, "options": list(options)}

    safe = ("nosuid", "nodev", "noexec")
    mounts = [
        mount("/proc", "proc", "proc", *safe),
        mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
        mount("/dev/shm", "tmpfs", "shm", *safe, "mode=1777"),
        mount("/dev/mqueue", "mqueue", "mqueue", *safe),
        mount("/sys", "sysfs", "sysfs", *safe, "rw" if member.init else "ro"),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", *safe, "relatime", "rw" if member.init else "ro"),
    ]
    if member.init:
        mounts += [
            mount("/run", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=755"),
            mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
        ]
    for own in member.mounts:
        source, target = str(own.get("source") or ""), str(own.get("target") or "")
        if not source.startswith("/") or not target.startswith("/"):
            raise CommandFailed(f"member {member.name}: a mount needs an absolute source and target")
        Path(source).mkdir(parents=True, exist_ok=True)
        options = ["rbind", "ro"] if own.get("readonly") else ["rbind", "rw"]
        mounts.append({"destination": target, "type": "bind", "source": source, "options": options})
    return mounts


def user_of(text: str, root: Path) -> dict[str, int]:
    """The numeric user of an image's `USER`, looked up in the image's own files."""
    if not text:
        return {"uid": 0, "gid": 0}
    name, _, group = text.partition(":")
    uid, gid = _look_up(root, "etc/passwd", name, (2, 3))
    if group:
        gid = _look_up(root, "etc/group", group, (2, 2))[0]
    return {"uid": uid, "gid": gid}


def _look_up(root: Path, table: str, name: str, fields: tuple[int, int]) -> tuple[int, int]:
    if name.isdigit():
        return int(name), int(name) if fields == (2, 2) else 0
    for line in read_text(inside(root, table), 1 << 20).splitlines():
        columns = line.split(":")
        if columns[0] == name and len(columns) > max(fields) and all(columns[field].isdigit() for field in fields):
            return int(columns[fields[0]]), int(columns[fields[1]])
    raise CommandFailed(f"the image's user {name!r} is not in its /{table}")


def check_program(member: Member, image: Path) -> None:
    """Raise CommandFailed where the image alone shows that the member cannot start: its program or user is not there.

    For a change of personality: what is certain to fail must not cost the personality that runs.
    """
    brought = {inside(image, str(entry.get("path") or "")) for entry in member.files}
    brought |= {inside(image, str(mount.get("target") or "")) for mount in member.mounts}
    program = inside(image, member.argv[0])
    if (
        member.argv[0].startswith("/")
        and not os.path.lexists(program)
        and brought.isdisjoint((program, *program.parents))
    ):
        raise CommandFailed(f"member {member.name}: there is no {member.argv[0]} in its image")
    if brought.isdisjoint((image / "etc/passwd", image / "etc/group")):
        user_of(member.release.user, image)


class Crun:
    """The OCI runtime's command line."""

    def __init__(self, paths: Paths, command: tuple[str, ...]) -> None:
        self._command = [*command, "--root", str(paths.crun)]

    def start(self, identifier: str, bundle: Path, output: int) -> subprocess.Popen[bytes]:
        """Run a container; crun stays as its parent, in a session of its own, and ends with its exit status."""
        allow_many_files()
        (bundle / "pid").unlink(missing_ok=True)
        command = [*self._command, "run", "--bundle", str(bundle), "--pid-file", str(bundle / "pid"), identifier]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)

    def running(self) -> dict[str, int]:
        """The containers that run, and the process that each has first."""
        done = subprocess.run([*self._command, "list", "--format", "json"], capture_output=True, timeout=60)
        try:
            entries = json.loads(done.stdout or b"[]") or []
        except ValueError:
            return {}
        return {str(entry["id"]): int(entry["pid"]) for entry in entries if entry.get("status") == "running"}

    def kill(self, identifier: str, number: int) -> None:
        """Send a signal to a container's first process."""
        self._quietly("kill", identifier, str(number))

    def delete(self, identifier: str) -> None:
        """Remove a container whatever state it is in."""
        self._quietly("delete", "--force", identifier)

    def exec_command(self, identifier: str, argv: list[str], pid_file: Path) -> list[str]:
        """How to run a further command in a container."""
        return [*self._command, "exec", "--pid-file", str(pid_file), identifier, *argv]

    def _quietly(self, *arguments: str) -> None:
        try:
            subprocess.run([*self._command, *arguments], capture_output=True, timeout=30)
        except subprocess.TimeoutExpired:
            return


def allow_many_files() -> None:
    """Raise the limit that members inherit: the kernel's own 4096 is too little for a full system."""
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 524288))
    except (OSError, ValueError):
        return  # not allowed to: members live with what we have


def end_process(pid_file: Path) -> None:
    """Kill a process that runs in a container, and its group; for a command that took too long."""
    try:
        pid = int(pid_file.read_text())
        group = os.getpgid(pid)  # not the pid: crun starts it through a process that has ended since
        if group > 1 and group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return


def hears(pid: int, number: int) -> bool:
    """Whether a process takes a signal: the first process of a container is not touched by one that it does not.

    systemd blocks its signals and reads them from a descriptor; others have a handler.
    """
    taken = 0
    for line in read_text(f"/proc/{pid}/status", 16384).splitlines():
        if line.startswith(("SigCgt:", "SigBlk:")):
            taken |= int(line.split()[1], 16)
    return bool(taken >> (number - 1) & 1)
