"""``strata up``, ``stop`` and ``down``: a service with a fleet on this machine, in the background.

The fleet is made of virtual machines (``virtual``) or simulated (``simulated``). Either is a process of its own:
nodes outlive the controller, as real ones do.
"""

from __future__ import annotations

import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.converge import verdict
from strata.cli.options import Between
from strata.cli.output import AT_GOAL, STATE_ORDER, counts, many
from strata.cli.session import Session, pass_session
from strata.cli.times import DURATION, span
from strata.cli.up import background as bg
from strata.cli.up import simulated
from strata.cli.words import segment
from strata.core.errors import BadRequest, Conflict
from strata.core.host import process as ps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.cli.client import Client

_JOB_GRACE = 60.0
"""Seconds for the supervisor of a job to end it: it asks, waits, and then makes it."""

STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Default: $STRATA_STATE, or the usual place.",
)


@click.command()
@click.option("--virtual", "kind", flag_value="virtual", help="Real virtual machines (QEMU); needs root. The default.")
@click.option("--simulated", "kind", flag_value="simulated", help="A simulated fleet of any size; without root.")
@click.option("--empty", "kind", flag_value="empty", help="No fleet at all.")
@click.option(
    "--nodes", type=click.IntRange(1, 1_000_000), help="Size of the fleet. Default: 4 virtual, 256 simulated."
)
@click.option("--uefi", type=click.IntRange(0), help="How many virtual nodes have UEFI. Default: half.")
@click.option(
    "--slurm/--no-slurm", default=None, help="Virtual: with a Slurm whose jobs run on the nodes. The default."
)
@click.option("--accounting", is_flag=True, help="Virtual: with slurmdbd and a MariaDB, so that sacct knows the jobs.")
@click.option(
    "--idle-off",
    type=DURATION,
    metavar="TIME",
    help="Virtual: Slurm switches nodes off that are idle for so long, and on for a job. 0s, the default: it does not.",
)
@click.option(
    "--feeds", is_flag=True, help="Simulated: with PDU outlets and chassis that feed the nodes, off at first."
)
@click.option(
    "--meters",
    metavar="KINDS",
    help="Simulated: energy counters that nodes have by turns: fine, 0.1kWh, 0.01kWh, 0.001kWh, stuck, wrapping, "
    "silent, or mixed for all but the first. Default: fine.",
)
@click.option("--seed", type=int, help="Simulated: seed of the random choices. Default: 0.")
@click.option(
    "--time-scale",
    type=Between(0, min_open=True),
    help="Simulated: how fast it boots. Default: 20.",
)
@click.option(
    "--listen", default="", metavar="HOST:PORT", help="TLS front door. Default: 127.0.0.1:8443, or a free port."
)
@click.option("--no-tls", is_flag=True, help="Simulated: only the local socket.")
@click.option(
    "--timeout", type=DURATION, default="10m", show_default=True, help="Wait for the fleet at most this long."
)
@STATE_DIR
@pass_session
def up(
    session: Session,
    kind: str | None,
    nodes: int | None,
    uefi: int | None,
    slurm: bool | None,
    accounting: bool,
    idle_off: float | None,
    feeds: bool,
    meters: str | None,
    seed: int | None,
    time_scale: float | None,
    listen: str,
    no_tls: bool,
    timeout: float,
    state_dir: Path | None,
) -> None:
    """Start Strata on this machine with a fleet, and bring every node to ready.

    By default the fleet is four virtual machines that boot over a network of their own and run jobs of a Slurm; this
    needs root. A simulated fleet does not. 'strata stop' stops everything and keeps it; 'strata up' then goes on with
    what is there. More --nodes than there are virtual machines are added.

    \b
    Example: strata up
             strata up --simulated --nodes 1000
             strata up --simulated --nodes 24 --meters mixed
    """
    from strata.cli.options import parse_listen

    if listen:
        parse_listen(listen)  # before anything is made
    if meters:
        from strata.virtual.meters import kinds_of

        kinds_of(meters)
    directory = (state_dir or session.state_dir).absolute()
    with bg.locked(session.out, directory):
        there = _kept_kind(directory)  # after a 'down' that is still at work
    kind = kind or there or "virtual"
    if there and kind != there:
        raise Conflict(
            f"there is a {there} fleet already",
            where=str(directory),
            hint="strata down --delete, or another --state-dir",
        )
    if kind == "virtual" and (feeds or meters or no_tls or listen or seed is not None or time_scale is not None):
        raise BadRequest(
            "--feeds, --meters, --seed, --time-scale, --listen and --no-tls are for simulated fleets",
            hint="add --simulated",
        )
    kept = simulated.kept(directory)
    if kept is not None and nodes not in (None, kept.nodes):
        raise Conflict(
            f"the simulated fleet here has {many(kept.nodes, 'node')}; it cannot be resized",
            where=f"--nodes {nodes}",
            hint="leave --nodes out, or strata down --delete and begin anew",
        )
    if kind != "virtual" and (uefi is not None or slurm is not None or accounting or idle_off is not None):
        raise BadRequest(
            "--uefi, --slurm, --accounting and --idle-off are for virtual machines",
            hint="leave them out, or add --virtual",
        )
    began = time.time()
    suggestions: Sequence[str]
    wanted = False
    try:
        if kind == "virtual":
            from strata.cli.up import virtual as up_virtual

            client = up_virtual.bring_up(
                session,
                directory,
                nodes=nodes,
                uefi=uefi,
                with_slurm=slurm,
                accounting=accounting,
                idle_off=idle_off,
            )
            wanted = True
            found = up_virtual.follow(session, client, directory, began=began, timeout=timeout)
            job = up_virtual.prove(session, client, directory, found, max(60.0, timeout - (time.time() - began)))
            extra, suggestions = [*up_virtual.where(directory), *job], up_virtual.suggestions(directory)
        else:
            client = _simulated(
                session,
                directory,
                kind,
                nodes=kept.nodes if kept else nodes or 256,
                feeds=kept.feeds if kept else feeds,
                meters=meters or "fine",
                seed=seed or 0,
                time_scale=time_scale or 20.0,
                listen=listen,
                no_tls=no_tls,
            )
            wanted = True
            found = {}
            if kind == "simulated" and bg.kind_of(directory) == kind:
                found = simulated.follow(session, client, timeout)
            elif kind == "simulated":
                found = simulated.bring_to_ready(session, client, timeout, feeds=feeds)
            bg.set_up(directory, kind)
            extra, suggestions = simulated.where(directory), simulated.TRY
    except KeyboardInterrupt:
        session.out.note(f"interrupted: {_left(directory, wanted=wanted)}")
        raise
    took = span(time.time() - began)
    code = verdict(found)
    headline = f"Strata is up after {took}" if not code else f"Strata runs, but not all nodes are ready after {took}"
    _say_where(session, directory, f"{headline}: {counts(found)}.", extra, suggestions)
    if code:
        _say_why(session, client, found)
        exits.leave(code)


def _left(directory: Path, *, wanted: bool) -> str:
    """What an interrupted ``up`` leaves, in words. ``wanted``: the service knows what its nodes shall be."""
    service = ps.load(directory / bg.SERVICE)
    if service is not None and service.alive:
        if wanted:
            return "the service goes on by itself; 'strata stop' stops it"
        return "the service runs, but not all is set up: 'strata up' again does the rest, 'strata stop' stops it"
    if bg.anything_started(directory):
        return "no service was started; 'strata up' again does the rest, 'strata stop' stops what there is"
    return "nothing was started" + ("" if directory.exists() else ", and nothing is left")


def _kept_kind(directory: Path) -> str | None:
    """What an earlier ``up`` made here."""
    from strata.cli.up import virtual as up_virtual

    if (directory / simulated.SIMULATOR_OPTIONS).exists():
        return "simulated"
    return "virtual" if up_virtual.is_there(directory) else bg.kind_of(directory)


def _simulated(
    session: Session,
    directory: Path,
    kind: str,
    *,
    nodes: int,
    feeds: bool,
    meters: str,
    seed: int,
    time_scale: float,
    listen: str,
    no_tls: bool,
) -> Client:
    """The service with a simulated fleet, or with none, at work."""
    with bg.prepared(session.out, directory):
        client = bg.client_of(session, directory)
        if bg.running(session, client, directory, front=False) is not None:
            if (directory / bg.SIMULATOR).exists():
                simulated.simulator(session, directory, [])
        else:
            bg.refuse_stranger(client, directory)
            url = directory / bg.URL
            url.unlink(missing_ok=True)
            options = bg.front_door(session, directory, listen, no_tls)
            if kind == "simulated":
                fleet = ["--nodes", str(nodes), "--seed", str(seed), "--scale", str(1 / time_scale)]
                fleet += ["--meters", meters]
                fleet += ["--pdus", "off"] if feeds else []
                options += ["--simulated-feeds"] if feeds else []
                options += ["--simulator", simulated.simulator(session, directory, fleet), "--simulated", str(nodes)]
            command = ps.command("strata.cli", "serve", "--state-dir", str(directory), *bg.NO_SITE, *options)
            started = bg.start(directory / bg.SERVICE, directory / bg.LOG, command)
            bg.wait_ready(session, client, started, directory, front="--listen" in options)
            if url.exists():
                (directory / bg.DOOR).write_bytes(url.read_bytes())
    return client


@click.command()
@STATE_DIR
@pass_session
def stop(session: Session, state_dir: Path | None) -> None:
    """Stop what 'strata up' started, and keep images, keys, history and desires.

    'strata up' goes on with what is there. Virtual and simulated nodes lose their power; jobs on this machine go on.

    \b
    Example: strata stop
    """
    directory = (state_dir or session.state_dir).absolute()
    with bg.locked(session.out, directory) as there:
        if _stopped(session, directory, there):
            _say_kept(session, directory)


@click.command()
@click.option("--delete", is_flag=True, help="Delete what it made, without a question.")
@STATE_DIR
@pass_session
def down(session: Session, delete: bool, state_dir: Path | None) -> None:
    """Stop what 'strata up' started, and delete it if that is wanted. That takes --delete, or a yes on a terminal.

    What is deleted is the state directory that 'strata up' made, with images, keys, history and audit log; jobs on
    this machine are ended. Otherwise this is 'strata stop'. Doing it twice is fine.

    \b
    Example: strata down --delete
    """
    from strata.cli.up import virtual as up_virtual

    directory = (state_dir or session.state_dir).absolute()
    out = session.out
    with bg.locked(out, directory) as there:
        stopped = _stopped(session, directory, there)
        if not there:
            return
        if not (delete or _agrees(directory)):
            if stopped:
                _say_kept(session, directory)
            return
        up_virtual.delete(directory)
        if bg.is_ours(directory):
            _end_jobs(session, directory)
            out.line(f"removed {directory}" if bg.remove(directory) else f"emptied {directory}, which was there before")
        else:
            for name in (bg.LOG, bg.URL, bg.DOOR, bg.SET_UP, simulated.SIMULATOR_OPTIONS, simulated.SIMULATOR_LOG):
                (directory / name).unlink(missing_ok=True)
            out.line(f"kept {directory}: 'strata up' did not make it")


def _say_why(session: Session, client: Client, found: dict[str, int]) -> None:
    """Of one node in each state that is not its goal, what the matter is."""
    for state in (state for state in STATE_ORDER if state not in AT_GOAL and found.get(state)):
        some = client.get("/v1/nodes", {"state": state, "fields": "name", "limit": 1})["items"]
        if some:
            answer = client.get(f"/v1/nodes/{segment(some[0]['name'])}/why")
            session.out.note(f"{answer['node']} is {answer['state']}: {answer['summary']}")


def _stopped(session: Session, directory: Path, there: bool) -> bool:
    """Stop all that was started here, and say so; False: nothing was."""
    from strata.cli.up import slurm as up_slurm
    from strata.cli.up import virtual as up_virtual

    out = session.out
    if not there:
        out.line(f"nothing to stop: there is no {directory}")
        return False
    records = {
        bg.SERVICE: "the service",
        bg.SIMULATOR: "the simulator",
        up_slurm.SLURMCTLD: "slurmctld",
        up_slurm.SLURMDBD: "slurmdbd",
        up_slurm.MARIADBD: "mariadbd",
        up_slurm.MUNGED: "munged",
    }
    found = {name: process for name in records if (process := ps.load(directory / name)) is not None}
    for name, process in found.items():
        stopped = ps.stop(process, grace=bg.STOP_GRACE)
        what = records[name]
        out.line(f"stopped {what} (pid {process.pid})" if stopped else f"{what} was already stopped")
        (directory / name).unlink(missing_ok=True)
    virtual = up_virtual.stop(session, directory)
    if not found and not virtual:
        out.line(f"nothing to stop: 'strata up' started nothing in {directory}")
    return bool(found) or virtual


def _agrees(directory: Path) -> bool:
    """Whether somebody at a terminal wants all of it deleted."""
    return _at_terminal() and click.confirm(
        f"Delete {directory} with its images, keys, history and audit log?", default=False
    )


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _jobs(directory: Path) -> list[ps.Process]:
    """Who looks after the jobs that run on this machine: they go on while no service is there."""
    known = map(ps.load, (directory / "jobs").glob("*/*.pid"))
    return [process for process in known if process is not None and process.alive]


def _end_jobs(session: Session, directory: Path) -> None:
    """End them before what is known of them is deleted: nobody could do so afterwards."""
    jobs = _jobs(directory)
    if not jobs:
        return
    session.out.note(f"ending {many(len(jobs), 'job')} on this machine ...")
    with ThreadPoolExecutor(min(len(jobs), 32)) as pool:  # each may take its time
        list(pool.map(lambda process: ps.stop(process, grace=_JOB_GRACE), jobs))
    session.out.line(f"ended {many(len(jobs), 'job')} on this machine")


def _say_kept(session: Session, directory: Path) -> None:
    if jobs := len(_jobs(directory)):
        session.out.line(f"{many(jobs, 'job')} on this machine {'goes' if jobs == 1 else 'go'} on meanwhile")
    session.out.line(f"kept {directory}: 'strata up' goes on with it, 'strata down --delete' deletes it")


def _say_where(
    session: Session, directory: Path, headline: str, extra: Sequence[str], suggestions: Sequence[str]
) -> None:
    from strata.fleet.settings import admin_socket, default_state_dir

    out = session.out
    url = ""
    with contextlib.suppress(OSError):
        url = (directory / bg.URL).read_text(encoding="utf-8").strip()
    out.line(headline)
    out.line(f"  socket  {admin_socket(directory)} (you are admin there)")
    if url:
        authority = directory / "ca" / "ca.crt"
        out.line(f"  https   {url} (dashboard, API; authority: {authority}; a token: strata auth token create)")
    for line in (*extra, f"log     {directory / bg.LOG}"):
        out.line(f"  {line}")
    if directory != default_state_dir():
        out.line(f"Tell the commands where it is: export STRATA_STATE={directory}")
    out.line("Try:")
    for line in suggestions:
        out.line(f"  {line}")
