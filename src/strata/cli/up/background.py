"""What ``strata up`` leaves running, and how ``down`` finds it again: a marked state directory and recorded processes.

A state directory that ``up`` makes, or finds empty, bears a mark; only such a one is ever cleared, and only the very
processes that were recorded there are stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from strata.cli.output import Output
from strata.cli.session import Session
from strata.cli.times import span
from strata.core.errors import Conflict, Unavailable
from strata.core.host import process as ps
from strata.core.host.removal import remove_tree

if TYPE_CHECKING:
    from strata.cli.client import Client

MARK = "made-by-strata-up"
"""File in a state directory: ``up`` made this, ``down`` may remove it."""
SET_UP = "set-up"
"""File in a state directory: the kind of fleet that ``up`` has set up here, to the end. It belongs to whoever works
with it from then on: another ``up`` starts it, and changes nothing."""
SERVICE = "serve.json"
"""File in the state directory: which process is the service."""
SIMULATOR = "simulator.json"
"""File in the state directory: which process is the simulator."""
CHASSIS = "virtual"
"""Folder in the state directory: the virtual machines and what drives them."""
LOG = "serve.log"
NO_SITE = ("--config", os.devnull)
"""Options of the service: a trial has nothing to do with the configuration of the machine that it runs on."""
URL = "url"
"""Written by the service: where its front door is."""
DOOR = "front-door"
"""File in a state directory: the address of the front door of the last ``up``, which stays there."""
START_TIMEOUT = 60.0
STOP_GRACE = 20.0
LOCK_PATIENCE = 60.0
"""Seconds to wait for another ``up`` or ``down``: one that stops everything takes a third of that."""
_PORT = 8443


@contextlib.contextmanager
def prepared(out: Output, directory: Path) -> Iterator[None]:
    """The state directory, made and marked if it was not there, and locked. What was made for a start that failed
    before anything was started is removed again."""
    while True:
        made = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(out, directory) as there:
            if not there:
                continue  # a 'down' that was at work took it away
            ours = bool(made) or not any(directory.iterdir())
            if ours:
                # What is in it is ours. The directory and its parents are too, where they were missing.
                (directory / MARK).write_text(json.dumps([str(path) for path in made]) + "\n", encoding="utf-8")
            try:
                yield
            except BaseException:
                if ours and not anything_started(directory):
                    remove(directory)
                raise
            return


def set_up(directory: Path, kind: str) -> None:
    """Note that a fleet of this kind is set up here."""
    (directory / SET_UP).write_text(f"{kind}\n", encoding="ascii")


def kind_of(directory: Path) -> str | None:
    """The kind of fleet that is set up here; None: none is, or not to the end."""
    try:
        return (directory / SET_UP).read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None


def anything_started(directory: Path) -> bool:
    """Whether a process was started for this directory, or a chassis made: something for ``down`` to stop."""
    return any((directory / name).exists() for name in (SERVICE, SIMULATOR, CHASSIS))


@contextlib.contextmanager
def locked(out: Output, directory: Path) -> Iterator[bool]:
    """One ``up`` or ``down`` at a time: another that is at work is waited for. False: it took the directory away."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield False
        return
    try:
        _wait_for_lock(out, handle, directory)
        yield _is_still(directory, handle)
    finally:
        os.close(handle)


def _wait_for_lock(out: Output, handle: int, directory: Path) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE
    said = False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() >= deadline:
            raise Conflict("another strata up or down is at work", where=str(directory), hint="wait for it")
        if not said:
            out.note("another strata up or down is at work here: waiting for it ...")
            said = True
        time.sleep(0.05)


def _is_still(directory: Path, handle: int) -> bool:
    """Whether what we hold is what is there now."""
    try:
        return os.path.samestat(directory.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def client_of(session: Session, directory: Path) -> Client:
    """A client of the service in ``directory``, through its local socket."""
    from strata.fleet.settings import admin_socket

    return session.connect(f"unix:{admin_socket(directory)}")


def refuse_stranger(client: Client, directory: Path) -> None:
    """Raise if something that ``up`` did not start answers there."""
    if client.is_answered():
        raise Conflict(
            "a service that 'strata up' did not start is already running here",
            where=str(directory),
            hint="use it, or give another --state-dir",
        )


def front_door(session: Session, directory: Path, listen: str, no_tls: bool) -> list[str]:
    """Options that say where nginx listens; without nginx, that there is no such door. It stays where it was the last
    time, so that whoever has kept the address finds it again."""
    if no_tls:
        return ["--no-tls"]
    if listen:
        return ["--listen", listen]
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") is None:
        session.out.note("no nginx here: only the local socket will answer (apt-get install nginx-light)")
        return ["--no-tls"]
    kept = directory / DOOR
    earlier = urlsplit(kept.read_text(encoding="utf-8").strip() if kept.exists() else "")
    usual = [(earlier.hostname, earlier.port)] if earlier.hostname and earlier.port else []
    for host, port in [*usual, ("127.0.0.1", _PORT)]:
        if _is_free(host, port):
            return ["--listen", f"{host}:{port}"]
    return ["--listen", "127.0.0.1:0"]


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError:
        return False
    return True


def start(record: Path, log: Path, command: list[str]) -> ps.Process:
    """Start a program of ours in the background, and write down which process it is."""
    # Credentials of whoever types this are no business of the service.
    secret = {"STRATA_TOKEN", "STRATA_TOKEN_FILE", "STRATA_URL", "STRATA_KEY", "STRATA_CERT", "STRATA_CA"}
    environment = {name: value for name, value in os.environ.items() if name not in secret}
    started = ps.spawn(command, environment, log)
    started.save(record)
    return started


def must_run(process: ps.Process, what: str, log: Path) -> None:
    """Raise with its last words if it has ended."""
    code = ps.reap(process)
    if code is not None or not process.alive:
        raise Unavailable(
            f"the {what} ended at its start (exit code {code if code is not None else 'unknown'}): "
            + (_last_line(log) or "it said nothing"),
            where=str(log),
            hint="strata up tries again; strata down --delete removes everything",
        )


def running(session: Session, client: Client, directory: Path, *, front: bool) -> ps.Process | None:
    """The service that runs here already and is ready. One that is about to end is waited for: None then."""
    found = ps.load(directory / SERVICE)
    deadline, waited = time.monotonic() + START_TIMEOUT, False
    while found is not None and found.alive:
        missing = _missing(client, directory, front)
        if missing is None:
            session.out.note(f"already running (pid {found.pid}); its options stay as they are")
            return found
        if not waited:
            session.out.note(f"the service (pid {found.pid}) is just starting or ending: waiting for it ...")
            waited = True
        _pause(deadline, missing, directory)
    if waited:
        session.out.note("it has ended: another one is started")
    return None


def wait_ready(session: Session, client: Client, started: ps.Process, directory: Path, *, front: bool) -> None:
    """Until the service is ready and, with ``front``, its front door open; its last words if it dies instead."""
    deadline = time.monotonic() + START_TIMEOUT
    session.out.note("starting the service ...")
    while (missing := _missing(client, directory, front)) is not None:
        must_run(started, "service", directory / LOG)
        _pause(deadline, missing, directory)


def _missing(client: Client, directory: Path, front: bool) -> str | None:
    """What a service lacks to be ready, in words; None: nothing."""
    try:
        client.get("/v1/ready")
    except Unavailable as error:
        return error.detail
    return "the front door is not open" if front and not (directory / URL).exists() else None


def _pause(deadline: float, missing: str, directory: Path) -> None:
    if time.monotonic() > deadline:
        raise Unavailable(
            f"the service is not ready after {span(START_TIMEOUT)}: {missing}",
            where=str(directory / LOG),
            hint="strata stop stops it",
        )
    time.sleep(0.1)


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""


def is_ours(directory: Path) -> bool:
    """Whether ``up`` made the directory."""
    mark = directory / MARK
    return not directory.is_symlink() and mark.is_file() and mark.stat().st_uid == os.geteuid()


def remove(directory: Path) -> bool:
    """Remove what is in the directory, then whatever ``up`` had to make to get there; False if it was there before.

    What is mounted there is unmounted, never emptied. The mark goes last, so that a ``down`` that was interrupted can
    be done again.
    """
    mark = directory / MARK
    try:
        made = [Path(text) for text in json.loads(mark.read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        made = []
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        elif path != mark:
            path.unlink()
    mark.unlink()
    for path in made:
        with contextlib.suppress(OSError):  # somebody else lives there by now
            path.rmdir()
    return not directory.exists()
