"""A small image on a disk, a cache that somebody who is not root owns, and containers that such a user starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.image_support import file, folder, image_blobs, layer, symlink

USER = 70_001
"""Nobody on any machine."""
APPLETS = (
    "cat",
    "echo",
    "env",
    "exit",
    "false",
    "id",
    "kill",
    "ls",
    "pwd",
    "sh",
    "sleep",
    "test",
    "touch",
    "tr",
    "true",
)


def layout(into: Path, *layers: bytes, config: dict[str, Any] | None = None) -> Path:
    """An OCI layout with one image."""
    blobs, manifest = image_blobs(*layers, config=config)
    place = into / "blobs/sha256"
    place.mkdir(parents=True)
    for name, data in blobs.items():
        (place / name.removeprefix("sha256:")).write_bytes(data)
    (into / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": manifest,
        "size": len(blobs[manifest]),
        "annotations": {"org.opencontainers.image.ref.name": "small:1"},
    }
    (into / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return into


def small_image(into: Path) -> Path:
    """busybox, in a layout."""
    busybox = shutil.which("busybox")
    assert busybox, "apt-get install busybox-static"
    programs = [symlink(f"bin/{name}", "busybox") for name in APPLETS]
    system = layer(
        folder("bin"),
        file("bin/busybox", Path(busybox).read_bytes(), mode=0o755),
        *programs,
        folder("data"),
        folder("etc"),
    )
    said = {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "WorkingDir": "/etc", "Cmd": ["/bin/echo", "by itself"]}
    return layout(into, system, config=said)


def becoming(user: int) -> tuple[str, ...]:
    """What stands before a command to run it as somebody else, for good."""
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs")


def give(path: Path, user: int = USER) -> Path:
    """Let it be the user's, with all that is in it."""
    for name, folders, files in os.walk(path):
        for one in (name, *(f"{name}/{entry}" for entry in (*folders, *files))):
            os.chown(one, user, user, follow_symlinks=False)
    return path


def strata(
    home: Path, *words: str, env: Mapping[str, str] | None = None, user: int = USER
) -> subprocess.CompletedProcess[str]:
    """The command, as that user."""
    told = {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "USER": "somebody",
        "TMPDIR": str(home),
        "STRATA_CONTAINERS": str(home / "containers"),
        **(env or {}),
    }
    return subprocess.run(
        [*becoming(user), sys.executable, "-m", "strata.cli", *words],
        env=told,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
