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

from strata.cli.session import Session
from strata.cli.times import span
from strata.core import process as ps
from strata.core.errors import Conflict, StrataError, Unavailable

if TYPE_CHECKING:
    from strata.cli.client import Client

MARK = "made-by-strata-up"
"""File in a state directory: ``up`` made this, ``down`` may remove it."""
SERVICE = "serve.json"
"""File in the state directory: which process is the service."""
LOG = "serve.log"
URL = "url"
"""Written by the service: where its front door is."""
START_TIMEOUT = 60.0
STOP_GRACE = 20.0
_PORT = 8443


@contextlib.contextmanager
def prepared(directory: Path) -> Iterator[None]:
    """The state directory, made and marked if it was not there, and locked."""
    made = []
    for path in (directory, *directory.parents):
        if path.exists():
            break
        made.append(path)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if made or not any(directory.iterdir()):
        # What is in it is ours. The directory and its parents are too, where they were missing.
        (directory / MARK).write_text(json.dumps([str(path) for path in made]) + "\n", encoding="utf-8")
    with locked(directory):
        yield


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One ``up`` or ``down`` at a time."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("another strata up or down is at work", where=str(directory), hint="wait for it") from None
        yield
    finally:
        os.close(handle)


def client_of(session: Session, directory: Path) -> Client:
    """A client of the service in ``directory``, through its local socket."""
    from strata.control.settings import admin_socket

    return session.connect(f"unix:{admin_socket(directory)}")


def refuse_stranger(client: Client, directory: Path) -> None:
    """Raise if something that ``up`` did not start answers there."""
    from strata.cli.transport import ServiceAway

    try:
        client.get("/v1/health")
    except ServiceAway:
        return
    except StrataError:
        pass  # it answered, if not kindly
    raise Conflict(
        "a service that 'strata up' did not start is already running here",
        where=str(directory),
        hint="use it, or give another --state-dir",
    )


def front_door(session: Session, listen: str, no_tls: bool) -> list[str]:
    """Options that say where nginx listens; without nginx, that there is no such door."""
    if no_tls:
        return ["--no-tls"]
    if listen:
        return ["--listen", listen]
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") is None:
        session.out.note("no nginx here: only the local socket will answer (apt-get install nginx-light)")
        return ["--no-tls"]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            return ["--listen", "127.0.0.1:0"]
    return ["--listen", f"127.0.0.1:{_PORT}"]


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
            hint="strata up tries again; strata down removes everything",
        )


def wait_ready(session: Session, client: Client, running: ps.Process, directory: Path, front: bool) -> None:
    """Until the service is ready and, with ``front``, its front door open; its last words if it dies instead."""
    from strata.cli.transport import ServiceAway

    deadline = time.monotonic() + START_TIMEOUT
    session.out.note("starting the service ...")
    while True:
        must_run(running, "service", directory / LOG)
        try:
            client.get("/v1/ready")
            if front and not (directory / URL).exists():
                raise Unavailable("the front door is not open")
        except (ServiceAway, Unavailable) as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the service is not ready after {span(START_TIMEOUT)}: {error.detail}",
                    where=str(directory / LOG),
                    hint="strata down stops it",
                ) from None
            time.sleep(0.1)
        else:
            return


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


def _ignore_gone(_: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    """For ``rmtree``: a server that is just ending may remove a file before we do."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def remove(directory: Path) -> bool:
    """Remove what is in the directory, then whatever ``up`` had to make to get there; False if it was there before.

    The mark goes last, so that a ``down`` that was interrupted can be done again.
    """
    mark = directory / MARK
    try:
        made = [Path(text) for text in json.loads(mark.read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        made = []
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=_ignore_gone)
        elif path != mark:
            path.unlink()
    mark.unlink()
    for path in made:
        with contextlib.suppress(OSError):  # somebody else lives there by now
            path.rmdir()
    return not directory.exists()
