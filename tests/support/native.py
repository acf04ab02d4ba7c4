"""The native runner as its users have it: built, started by somebody who is not root, in small images."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strata.jobs.native import BUILT, program

USER = 65534
"""Somebody who is not root, and whom every Debian knows."""
APPLETS = ("sh", "true", "cat", "id", "ls", "env", "sleep", "pwd", "touch", "kill", "ps", "test", "readlink")
_CAUGHT: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "check": False}
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")


def built() -> Path:
    """The folder with the programs, made if their sources are newer; by one test process at a time."""
    with (Path(tempfile.gettempdir()) / f"strata-native-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", str(BUILT.parent)], check=True, timeout=300)
    return program("strata-run").parent


@contextmanager
def open_folder(prefix: str = "sn") -> Iterator[Path]:
    """A folder that everybody can look into, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix=prefix) as made:
        Path(made).chmod(0o755)
        yield Path(made)


def small_image(root: Path, programs: Iterable[Path] = ()) -> Path:
    """An image with a busybox in it, and with these programs and their libraries; root's, as unpacked ones are."""
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    copy_into(root, [Path("/bin/busybox"), *programs])
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    return root


def copy_into(root: Path, files: Iterable[Path]) -> None:
    """Files and the libraries that they need, where they are on this machine."""
    todo = [Path(os.path.abspath(path)) for path in files]  # noqa: PTH100 -- links are kept: their name is what is asked for
    asked = subprocess.run(["ldd", *map(str, todo)], capture_output=True, text=True, check=False).stdout
    todo += [Path(path) for path in re.findall(r"(?:=>|^)\s*(/\S+) \(0x", asked, re.MULTILINE)]
    for path in dict.fromkeys(todo):
        place = root / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy2(path, place)


def compiled(source: Path, to: Path, *options: str) -> Path:
    """A C program for a test."""
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", str(to), str(source), *options], check=True, timeout=300)
    return to


def as_user(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """A command, as somebody who is not root."""
    settings = {"user": USER, "group": USER, "extra_groups": [], "cwd": "/", **_CAUGHT, **more}
    done: subprocess.CompletedProcess[str] = subprocess.run(command, **settings)
    return done


def run_in(image: Path, command: Sequence[str], *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command in an image, as its user starts it."""
    return as_user(_line(image, command, options), **more)


def start_in(image: Path, command: Sequence[str], *options: str) -> subprocess.Popen[str]:
    """The same, without waiting for it."""
    who: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": [], "cwd": "/"}
    return subprocess.Popen(_line(image, command, options), stdout=subprocess.PIPE, text=True, **who)


def _line(image: Path, command: Sequence[str], options: Sequence[str]) -> list[str]:
    return [str(program("strata-run")), "--root", str(image), *options, "--", *command]


def give(path: Path) -> Path:
    """It is the user's from now on."""
    os.chown(path, USER, USER)
    return path
