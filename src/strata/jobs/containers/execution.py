"""Starts a container on this machine, in place of this process where nothing has to be tidied up afterwards."""

from __future__ import annotations

import ctypes
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from strata.core.errors import NotFound, Refused
from strata.jobs.accelerators.detection import detect
from strata.jobs.containers.cache import Cache, Image
from strata.jobs.containers.preparation import User, start
from strata.jobs.containers.records import Container
from strata.jobs.containers.runtimes import check_abilities, require, runtime
from strata.jobs.containers.runtimes.runtime import Content, Copy

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_TRIES = 3
_LONGEST = 30
_SUBREAPER = 36


def execute(
    container: Container,
    words: Sequence[str],
    cache: Cache,
    bring: Callable[[Cache], Image],
    *,
    show: bool = False,
) -> NoReturn:
    """Run it, and end with its status. ``bring`` has the image unpacked."""
    if os.geteuid() == 0 and not show:
        raise Refused("no container is started as root", by="user", where=container.image, hint="start it as its user")
    one = runtime(container.runtime)
    check_abilities(one, container)
    program = require(one)
    found = detect() if container.devices else None
    image, held = _held(cache, bring) if one.abilities.image == "folder" else (None, -1)
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="strata-", dir=_short_folder()) as folder:
        begun = start(container, image, words, _user(), environment, found=found, folder=folder)
        begun = begun._replace(ready=msgspec.structs.replace(begun.ready, held=held))
        command = one.command(begun.ready, begun.argv, folder)
        if show:
            print(shlex.join(command))
            sys.exit(0)
        files = {**one.files(begun.ready, begun.argv), **dict.fromkeys(begun.places, b"")}
        told = {**environment, **one.variables(folder)}
        if files:
            write_files(Path(folder), files)
            sys.exit(_attended(program, command, told, held))
    os.execve(program, command, told)


def _short_folder() -> str:
    """Where folders of starts are made. podman and sockets take no long paths."""
    told = tempfile.gettempdir()
    return told if len(told) <= _LONGEST else "/tmp"


def _held(cache: Cache, bring: Callable[[Cache], Image]) -> tuple[Image, int]:
    """The image, and a descriptor that keeps it here. One that is removed at this very moment is brought again."""
    for _ in range(_TRIES - 1):
        image = bring(cache)
        try:
            return image, _passed_on(cache.hold(image))
        except NotFound:
            continue
    image = bring(cache)
    return image, _passed_on(cache.hold(image))


def _passed_on(held: int) -> int:
    os.set_inheritable(held, True)
    return held


def write_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Put what a runtime needs into the folder of a start."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if isinstance(content, Copy):
            shutil.copytree(content.source, place, symlinks=True)
        elif name.endswith("/"):
            place.mkdir(mode=0o700, exist_ok=True)
        else:
            place.write_bytes(content)


def _attended(program: str, command: Sequence[str], environment: Mapping[str, str], held: int) -> int:
    """Run it as a child, hand signals on to it, and wait; its status, as a shell has it."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    for number in _PASSED_ON:
        signal.signal(number, hand_on)
    adopt_orphans()
    kept = (held,) if held >= 0 else ()
    process = subprocess.Popen(command, executable=program, env=environment, pass_fds=kept)
    for one in early:
        process.send_signal(one)
    ended = process.wait()
    end_orphans()
    return 128 - ended if ended < 0 else ended


def adopt_orphans() -> None:
    """Processes whose parent ends become ours from now on, rather than the machine's."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End what a runtime left behind, which has become ours: podman keeps a process for the next container."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


def _user() -> User:
    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:
        name, home = str(uid), "/"
    return User(uid, gid, name, os.environ.get("HOME") or home)
