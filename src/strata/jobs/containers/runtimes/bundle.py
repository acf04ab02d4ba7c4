"""runc and crun, by an OCI bundle: the runtimes below most others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from strata.jobs.containers.records import Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Content

_NAMESPACES = ("user", "mount", "ipc", "uts")


class Bundle:
    """``runc run`` or ``crun run``."""

    abilities = Abilities(
        user="root", writable="it would write to the image itself, which all jobs share", makes_places=False
    )

    def __init__(self, program: str) -> None:
        self.name = self.program = program
        self.install = f"apt-get install {program}"

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """All that is asked for is in the bundle's configuration; its name is that of the folder."""
        name = folder.rstrip("/").rpartition("/")[2] or "bundle"
        return [self.program, "--root", f"{folder}/state", "run", "--bundle", folder, f"strata-{name}"]

    def files(self, ready: Ready, argv: Sequence[str]) -> Mapping[str, Content]:
        """The configuration, with the environment in it: only the user reads it."""
        return {"config.json": json.dumps(configuration(ready, argv)).encode(), "state/": b""}

    def variables(self, folder: str) -> Mapping[str, str]:
        """Where it looks for what it is itself."""
        return {"XDG_RUNTIME_DIR": f"{folder}/state"}


def configuration(ready: Ready, argv: Sequence[str]) -> dict[str, Any]:
    """The bundle's ``config.json``."""
    inherited = {} if ready.asked.clear_env else ready.inherited
    namespaces = [*_NAMESPACES, *(("pid",) if ready.asked.own_pids else ())]
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"}
        if ready.asked.own_pids
        else {"destination": "/proc", "type": "none", "source": "/proc", "options": ["rbind"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro", "nosuid", "nodev"]},
        _memory("/tmp", "1777"),
    ]
    if ready.asked.home == "user":
        mounts.append(_bind(ready.home_path, ready.home_path, read_only=False))
    elif ready.asked.home == "tmp":
        mounts.append(_memory(ready.home_path, "700"))
    mounts += [_bind(bind.source, bind.place, read_only=bind.read_only) for bind in ready.binds]
    mounts += [_bind(device, device, read_only=False, device=True) for device in ready.devices]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(argv),
            "env": [f"{name}={value}" for name, value in {**inherited, **ready.env}.items()],
            "cwd": ready.workdir,
            "noNewPrivileges": True,
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "ambient")},
        },
        "root": {"path": ready.root, "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in namespaces],
            "uidMappings": [{"containerID": 0, "hostID": ready.uid, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": ready.gid, "size": 1}],
        },
    }


def _bind(source: str, place: str, *, read_only: bool, device: bool = False) -> dict[str, Any]:
    options = ["rbind", "nosuid", *(() if device else ("nodev",)), "ro" if read_only else "rw"]
    return {"destination": place, "type": "none", "source": source, "options": options}


def _memory(place: str, mode: str) -> dict[str, Any]:
    return {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", f"mode={mode}"]}
