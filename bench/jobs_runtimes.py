"""What it costs to start a program in a container, by each runtime that is here, as a user who is not root.

Util-linux's ``unshare`` with a user and a mount namespace and the image as its root is the least that a container can
be: what a runtime takes (``RUNTIME_start_ms``) is told as a ratio to it. The native one has a part of its own. A shell
that is the user starts ``true`` ten times in a row (podman, runc and udocker: once); medians of such rows, in turns
with ``unshare``, so that a machine that is busy for a while slows all of them down.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from measure import Figures

from strata.core.errors import Unavailable
from strata.jobs.containers.execution import adopt_orphans, end_orphans, write_files
from strata.jobs.containers.records import Container, Ready
from strata.jobs.containers.runtimes import RUNTIMES, require

_USER = 70_003
_AS_USER = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups") if os.geteuid() == 0 else ()
_ROW = 'i=0; while [ $i -lt "$0" ]; do i=$((i+1)); "$@" || exit 1; done'
_SLOW = ("podman", "udocker", "runc")


class Start(NamedTuple):
    """What is started, and what it is told."""

    command: Sequence[str]
    variables: Mapping[str, str] = {}


def ratios(directory: Path, starts: int) -> Figures:
    """``RUNTIME_ratio_to_unshare`` and ``RUNTIME_start_ms`` of every runtime that is here and works."""
    root = _image(directory / "root")
    found: Figures = {}
    bare = Start(["unshare", "--user", "--map-root-user", "--mount", f"--root={root}", "/bin/true"])
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    adopt_orphans()
    for name, one in RUNTIMES.items():
        if name == "native":
            continue
        try:
            program = require(one)
        except Unavailable:
            continue
        folder = directory / name[:6]
        folder.mkdir()
        uid = _USER if os.geteuid() == 0 else os.getuid()
        asked = Container(image=f"oci:{root}")
        ready = Ready(asked=asked, root=str(root), uid=uid, gid=uid, user=str(uid), env={"PATH": "/bin"}, home_path="/")
        write_files(folder, one.files(ready, ["/bin/true"]))
        _give(folder)
        command = [program, *one.command(ready, ["/bin/true"], str(folder))[1:]]
        start = Start(command, {"HOME": str(folder), **one.variables(str(folder))})
        try:
            taken, beside = _in_turns(start, bare, max(3, starts // 10), each=1 if name in _SLOW else 10)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
            print(f"{name} does not work here: {said[-1] if said else error}", file=sys.stderr)
            continue
        finally:
            end_orphans()
        found[f"{name}_start_ms"] = taken
        found[f"{name}_ratio_to_unshare"] = taken / beside
    return found


def _in_turns(one: Start, other: Start, rows: int, *, each: int) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rows):
        for taken, start in zip(times, (one, other), strict=True):
            taken.append(_row(start, each))
    return statistics.median(times[0]), statistics.median(times[1])


def _row(start: Start, each: int) -> float:
    """Milliseconds that one of so many starts takes."""
    told = {"PATH": os.environ["PATH"], "HOME": "/", "USER": "somebody", **start.variables}
    begun = time.perf_counter()
    subprocess.run(
        [*_AS_USER, "sh", "-c", _ROW, str(each), *start.command],
        env=told,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
    return (time.perf_counter() - begun) * 1e3 / each


def _image(root: Path) -> Path:
    for place in ("bin", "dev", "proc", "sys", "tmp", "run", "home", "mnt", "etc"):
        (root / place).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox, "apt-get install busybox-static"
    shutil.copy(busybox, root / "bin/busybox")
    (root / "bin/true").symlink_to("busybox")
    root.parent.chmod(0o755)
    _give(root)
    return root


def _give(path: Path) -> None:
    if os.geteuid() == 0:
        for name, folders, files in os.walk(path):
            for one in (name, *(f"{name}/{entry}" for entry in (*folders, *files))):
                os.chown(one, _USER, _USER, follow_symlinks=False)
