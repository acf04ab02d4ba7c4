"""Specifications for the Container Device Interface, which podman, containerd and others read. Pure."""

from __future__ import annotations

from typing import Any

from strata.jobs.accelerators.assignment import LIBRARIES, PROGRAMS, Assigned
from strata.jobs.accelerators.records import Accelerator, Adapter, Found

VERSION = "0.5.0"
"""The least that has all that is said here: names of devices that begin with a digit. Debian 12's podman reads none
that is newer."""
_OPTIONS = ["ro", "nosuid", "nodev", "bind"]


def specifications(found: Found) -> list[dict[str, Any]]:
    """One for each kind of device (``nvidia.com/gpu``): every one by number and by id, and ``all`` of them."""
    kinds: dict[str, list[Accelerator | Adapter]] = {}
    for one in found.devices:
        if one.devices:
            kinds.setdefault(one.cdi.partition("=")[0], []).append(one)
    return [_specification(kind, devices, found) for kind, devices in kinds.items()]


def file_name(specification: dict[str, Any]) -> str:
    """What its file is called, in ``/etc/cdi`` or ``/var/run/cdi``."""
    return f"{specification['kind'].replace('/', '-')}.json"


def _specification(kind: str, devices: list[Accelerator | Adapter], found: Found) -> dict[str, Any]:
    named = []
    for one in devices:
        edits = {"deviceNodes": _nodes(one.devices)}
        named.append({"name": one.cdi.partition("=")[2], "containerEdits": edits})
        if isinstance(one, Accelerator) and one.id:
            named.append({"name": one.id, "containerEdits": edits})
    every = [path for one in devices for path in one.devices]
    named.append({"name": "all", "containerEdits": {"deviceNodes": _nodes(every)}})
    both = Assigned(
        tuple(one for one in devices if isinstance(one, Accelerator)),
        tuple(one for one in devices if isinstance(one, Adapter)),
    )
    shown = both.shown(found)
    shared: dict[str, Any] = {
        "deviceNodes": _nodes([path for path in both.devices(found) if path not in every]),
        "mounts": [
            {"hostPath": source, "containerPath": _found(target), "options": _OPTIONS} for source, target in shown
        ],
        "env": [f"LD_LIBRARY_PATH={LIBRARIES}"] if any(target.startswith(LIBRARIES) for _, target in shown) else [],
    }
    return {
        "cdiVersion": VERSION,
        "kind": kind,
        "devices": named,
        "containerEdits": {name: value for name, value in shared.items() if value},
    }


def _nodes(paths: list[str] | tuple[str, ...]) -> list[dict[str, str]]:
    return [{"path": path} for path in paths]


def _found(target: str) -> str:
    """Where a container is to have a file: a program where every image looks for one, as a specification has no way to
    add to an image's search path."""
    return target.replace(PROGRAMS, "/usr/bin")
