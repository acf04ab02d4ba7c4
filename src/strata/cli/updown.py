"""``strata up`` and ``down``: a service with a simulated fleet on this machine, in the background, without root.

Two processes: the simulator, whose nodes outlive the controller as real ones do, and the service. ``up`` marks a state
directory that it makes, or finds empty; ``down`` clears only one that bears the mark, and stops only the very
processes that ``up`` started.
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

import click

from strata.cli import exits
from strata.cli import process as ps
from strata.cli.converge import MOVING, wait
from strata.cli.output import counts
from strata.cli.session import Session, pass_session
from strata.cli.times import DURATION, span
from strata.core.errors import Conflict, StrataError, Unavailable

if TYPE_CHECKING:
    from strata.cli.client import Client, Json

GOAL = {
    "power": ["on"],
    "os": ["up"],
    "identity": ["issued"],
    "image": ["demo-1"],
    "personality": ["active"],
    "config": ["demo-1"],
    "workload": ["in"],
}
"""What ``up`` wants of every node."""

FEEDERS = ("pdu-outlet", "chassis")
"""Roles of what feeds nodes: it has power, and nothing else can be wanted of it."""

DOCUMENT = "up"
MARK = "made-by-strata-up"
"""File in a state directory: ``up`` made this, ``down`` may remove it."""
SERVICE = "serve.json"
SIMULATOR = "simulator.json"
"""Files in the state directory: which process is which."""
SIMULATOR_OPTIONS = "simulator.options"
"""How the simulator was started, its port included: one that died is started again at the same address."""
LOG = "serve.log"
SIMULATOR_LOG = "simulator.log"
URL = "url"
"""Written by the service: where its front door is."""
_PORT = 8443
_START_TIMEOUT = 60.0
_STOP_GRACE = 20.0

STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Default: $STRATA_STATE, or the usual place.",
)


@click.command()
@click.option("--nodes", type=click.IntRange(1, 1_000_000), default=256, show_default=True, help="Size of the fleet.")
@click.option("--simulated/--empty", default=True, show_default=True, help="A simulated fleet, or none at all.")
@click.option("--feeds", is_flag=True, help="With PDU outlets and chassis that feed the nodes, all off at first.")
@click.option("--seed", type=int, default=0, help="Draws the simulated fleet.")
@click.option(
    "--time-scale", type=click.FloatRange(0, min_open=True), default=20.0, show_default=True, help="How fast it boots."
)
@click.option(
    "--listen", default="", metavar="HOST:PORT", help="TLS front door. Default: 127.0.0.1:8443, or a free port."
)
@click.option("--no-tls", is_flag=True, help="Only the local socket.")
@click.option("--timeout", type=DURATION, default="5m", show_default=True, help="Longest wait for the fleet.")
@STATE_DIR
@pass_session
def up(
    session: Session,
    nodes: int,
    simulated: bool,
    feeds: bool,
    seed: int,
    time_scale: float,
    listen: str,
    no_tls: bool,
    timeout: float,
    state_dir: Path | None,
) -> None:
    """Start Strata on this machine with a simulated fleet, and bring every node to ready.

    Works without root. 'strata down' stops it and removes what this made.

    \b
    Example: strata up --nodes 1000
    """
    from strata.cli.serve import parse_listen

    if listen:
        parse_listen(listen)  # before anything is made
    directory = (state_dir or session.state_dir).absolute()
    began = time.monotonic()
    try:
        with _prepared(directory):
            running = ps.load(directory / SERVICE)
            client = _client(session, directory)
            front = False
            if running is not None and running.alive:
                session.out.note(f"already running (pid {running.pid}); its options stay as they are")
                if (directory / SIMULATOR).exists():
                    _simulator(session, directory, [])
            else:
                _refuse_stranger(client, directory)
                (directory / URL).unlink(missing_ok=True)
                options = _front_door(session, listen, no_tls)
                front = "--listen" in options
                if simulated:
                    fleet = ["--nodes", str(nodes), "--seed", str(seed), "--scale", str(1 / time_scale)]
                    fleet += ["--pdus", "off"] if feeds else []
                    options += ["--simulated-feeds"] if feeds else []
                    options += ["--simulator", _simulator(session, directory, fleet), "--simulated", str(nodes)]
                running = _start(
                    directory / SERVICE, directory / LOG, "strata.cli", "serve", "--state-dir", str(directory), *options
                )
            _wait_ready(session, client, running, directory, front)
        found = _bring_to_ready(session, client, timeout, feeds=feeds) if simulated else {}
    except KeyboardInterrupt:
        session.out.note("interrupted: the service goes on by itself; 'strata down' stops it")
        raise
    took = span(time.monotonic() - began)
    _say_where(session, directory, f"Strata is up after {took}: {counts(found)}.")
    if any(found.get(state) for state in MOVING):
        exits.leave(exits.ERROR)


def _bring_to_ready(session: Session, client: Client, timeout: float, *, feeds: bool) -> dict[str, int]:
    """Want every node ready, and follow them there; the last counts by state."""
    roles = FEEDERS if feeds else ()
    nodes = {"name": DOCUMENT, "select": " ".join(f"!role:{role}" for role in roles) or "*", "set": GOAL}
    feeders = [{"name": f"{DOCUMENT}-{role}", "select": f"role:{role}", "set": {"power": ["on"]}} for role in roles]
    body: Json = {"documents": [nodes, *feeders], "prune": False, "dry_run": False}
    applied = client.request("POST", "/v1/apply", body=body).body
    return wait(client, "*", session.out, timeout=timeout, revision=int(applied["revision"]))


@click.command()
@STATE_DIR
@pass_session
def down(session: Session, state_dir: Path | None) -> None:
    """Stop what 'strata up' started and remove the state directory that it made. Doing it twice is fine.

    \b
    Example: strata down
    """
    directory = (state_dir or session.state_dir).absolute()
    out = session.out
    if not directory.is_dir():
        out.line(f"nothing to stop: there is no {directory}")
        return
    with _locked(directory):
        found = {name: process for name in (SERVICE, SIMULATOR) if (process := ps.load(directory / name)) is not None}
        if not found:
            out.line(f"nothing to stop: 'strata up' started nothing in {directory}")
        for name, process in found.items():
            stopped = ps.stop(process, grace=_STOP_GRACE)
            what = "service" if name == SERVICE else "simulator"
            out.line(f"stopped the {what} (pid {process.pid})" if stopped else f"the {what} was already stopped")
        if _is_ours(directory):
            out.line(f"removed {directory}" if _remove(directory) else f"emptied {directory}, which was there before")
        else:
            for name in (SERVICE, SIMULATOR, SIMULATOR_OPTIONS, LOG, SIMULATOR_LOG, URL):
                (directory / name).unlink(missing_ok=True)
            out.line(f"kept {directory}: 'strata up' did not make it")


@contextlib.contextmanager
def _prepared(directory: Path) -> Iterator[None]:
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
    with _locked(directory):
        yield


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
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


def _client(session: Session, directory: Path) -> Client:
    from strata.control.settings import admin_socket

    return session.connect(f"unix:{admin_socket(directory)}")


def _refuse_stranger(client: Client, directory: Path) -> None:
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


def _front_door(session: Session, listen: str, no_tls: bool) -> list[str]:
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


def _simulator(session: Session, directory: Path, options: list[str]) -> str:
    """Where the simulator answers. It is started unless it runs; one that ran before keeps its options."""
    log = directory / SIMULATOR_LOG
    running = ps.load(directory / SIMULATOR)
    if running is not None and running.alive:
        return _address(log) or ""
    kept = directory / SIMULATOR_OPTIONS
    if kept.exists():
        session.out.note("the simulator was gone: its nodes start from off")
        options = json.loads(kept.read_text(encoding="utf-8"))
    log.unlink(missing_ok=True)  # the address is its first line
    running = _start(directory / SIMULATOR, log, "strata.virtual.bmc_server", *options)
    deadline = time.monotonic() + _START_TIMEOUT
    while (address := _address(log)) is None:
        _must_run(running, "simulator", log)
        if time.monotonic() > deadline:
            raise Unavailable(f"no simulator after {span(_START_TIMEOUT)}", where=str(log), hint="strata down stops it")
        time.sleep(0.02)
    if not kept.exists():
        port = address.rpartition(":")[2]
        kept.write_text(json.dumps([*options, "--port", port]) + "\n", encoding="utf-8")
    return address


def _address(log: Path) -> str | None:
    """What the simulator said when it began to listen."""
    try:
        return str(json.loads(log.read_text(encoding="utf-8").partition("\n")[0])["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _start(record: Path, log: Path, module: str, *arguments: str) -> ps.Process:
    # Credentials of whoever types this are no business of the service.
    secret = {"STRATA_TOKEN", "STRATA_TOKEN_FILE", "STRATA_URL", "STRATA_KEY", "STRATA_CERT", "STRATA_CA"}
    environment = {name: value for name, value in os.environ.items() if name not in secret}
    started = ps.spawn(ps.command(module, *arguments), environment, log)
    started.save(record)
    return started


def _must_run(process: ps.Process, what: str, log: Path) -> None:
    """Raise with its last words if it has ended."""
    code = ps.reap(process)
    if code is not None or not process.alive:
        raise Unavailable(
            f"the {what} ended at its start (exit code {code if code is not None else 'unknown'}): "
            + (_last_line(log) or "it said nothing"),
            where=str(log),
            hint="strata down clears up",
        )


def _wait_ready(session: Session, client: Client, running: ps.Process, directory: Path, front: bool) -> None:
    """Until the service is ready and, with ``front``, its front door open; its last words if it dies instead."""
    from strata.cli.transport import ServiceAway

    deadline = time.monotonic() + _START_TIMEOUT
    session.out.note("starting the service ...")
    while True:
        _must_run(running, "service", directory / LOG)
        try:
            client.get("/v1/ready")
            if front and not (directory / URL).exists():
                raise Unavailable("the front door is not open")
        except (ServiceAway, Unavailable) as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the service is not ready after {span(_START_TIMEOUT)}: {error.detail}",
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


def _say_where(session: Session, directory: Path, headline: str) -> None:
    from strata.control.settings import admin_socket, default_state_dir

    out = session.out
    url = ""
    with contextlib.suppress(OSError):
        url = (directory / URL).read_text(encoding="utf-8").strip()
    out.line(headline)
    out.line(f"  socket  {admin_socket(directory)} (you are admin there)")
    if url:
        out.line(f"  https   {url} (authority: {directory / 'ca' / 'ca.crt'}; a token: strata auth token create)")
    simulator = _address(directory / SIMULATOR_LOG)
    if simulator:
        out.line(f"  nodes   {simulator}/bmc/NAME/redfish/v1 (the simulator)")
    out.line(f"  log     {directory / LOG}")
    if directory != default_state_dir():
        out.line(f"Tell the commands where it is: export STRATA_STATE={directory}")
    out.line("Try:")
    for line in (
        "strata status",
        "strata node list --group-by state",
        "strata node why NODE",
        "strata node set NODE image=demo-2 --wait",
        "strata watch",
        "strata down",
    ):
        out.line(f"  {line}")


def _is_ours(directory: Path) -> bool:
    mark = directory / MARK
    return not directory.is_symlink() and mark.is_file() and mark.stat().st_uid == os.geteuid()


def _ignore_gone(_: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    """For ``rmtree``: a server that is just ending may remove a file before we do."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _remove(directory: Path) -> bool:
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
