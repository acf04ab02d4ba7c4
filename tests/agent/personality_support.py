"""What the tests of personalities share: members, sets of them, and images that they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_process import make_image
from fake_controller import Controller

SERVICE = 'echo "$GREETING from $0"; touch /run/up; while :; do sleep 1; done\n'


def member(name: str, release: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A member that is ready when it says so by a file."""
    ready = {"kind": "file", "path": "/run/up", "within": 60}
    restart = {"most": 3, "backoff": 0.2}
    return {"name": name, "release": release, "mode": "ram", "ready": ready, "restart": restart, **changes}


def personality(name: str, digest: str, *members: dict[str, Any]) -> dict[str, Any]:
    """A set of these members."""
    return {"name": name, "digest": "sha256:" + digest * 64, "members": list(members)}


def release_of(site: Controller, folder: Path, service: str = SERVICE, **changes: Any) -> dict[str, Any]:
    """An image that runs ``service``, as the controller offers it."""
    folder.mkdir(parents=True, exist_ok=True)
    return site.site.release(make_image(folder, service), **changes)
