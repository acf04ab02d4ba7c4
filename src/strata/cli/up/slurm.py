"""The Slurm of ``strata up``: munged and slurmctld beside the service, slurmd in what the nodes run.

All of it is root's and lies in the state directory. There are two configurations: nodes, and commands in their network,
know slurmctld by its address there; the service runs its commands outside, as at a site, and comes over the cable
between the two. Nodes get theirs from slurmctld, and the key that all share as a secret of Strata's.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli.up import accounting, image
from strata.cli.up import background as bg
from strata.core.errors import NotFound, Unavailable
from strata.core.host import process as ps
from strata.core.host.captured import captured
from strata.core.host.private_file import write_private
from strata.virtual.qemu import network

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.schedulers.slurm.conf import Cluster
    from strata.virtual.qemu.description import Description, MachineDescription

FOLDER = "slurm"
"""In the state directory."""
CONF = "slurm.conf"
INSIDE = "inside"
"""Folder in it: the configuration that slurmctld and the nodes have."""
MUNGED, SLURMCTLD, SLURMDBD, MARIADBD = "munged.json", "slurmctld.json", "slurmdbd.json", "mariadbd.json"
"""Files in the state directory: which processes they are."""
KEY, SOCKET, JOBS = "munge.key", "munge.socket", "jobs.log"
IDLE_OFF = "idle-off"
"""File in the folder: after how many idle seconds Slurm switches a node off. None: it does not."""
DATABASE = "db"
"""Folder in it: the accounting. None: there is none."""
PROGRAMS = "bin"
"""Folder in it: what Slurm runs to have nodes switched."""
SECRET = "munge"
"""What the key is called among the secrets of the nodes."""
SET = NAME = "slurm"
"""The personality that nodes run, and what the workload manager is called."""
PARTITION = "all"
_OFF, _ON = 30, 900
"""Seconds that a node may take to be off, and to be Slurm's again after it was switched on."""
SLURMD_PORT = 6818
_LIMIT = 60.0
_POLL = 0.2


def check_host() -> None:
    """Raise unless this machine has Slurm; says what to install."""
    for program, package in (("munged", "munge"), ("slurmctld", "slurmctld"), ("srun", "slurm-client")):
        try:
            network.tool(program, package)
        except Unavailable as error:
            hint = f"{error.hint}; or strata up --no-slurm"
            raise Unavailable(error.detail, where=error.where, hint=hint) from None


def is_there(directory: Path) -> bool:
    """Whether the cluster in this state directory has a Slurm."""
    return (directory / FOLDER).is_dir()


def start(directory: Path, chassis: Description) -> None:
    """Have munged and slurmctld run, with the nodes that the chassis has."""
    folder = directory / FOLDER
    _make_key(folder)
    _write_programs(directory)
    _configure(folder, chassis)
    command = [network.tool("munged", "munge"), "--foreground", "--num-threads=2"]
    # Whoever asks has to be root: nobody else enters the state directory, which munged would rather not have.
    command += ["--force", f"--key-file={folder / KEY}", f"--socket={folder / SOCKET}"]
    command += [f"--pid-file={folder / 'munged.pid'}", f"--seed-file={folder / 'munged.seed'}"]
    _work(directory, MUNGED, command, lambda: _asks(["munge", "--no-input", f"--socket={folder / SOCKET}"]))
    if (folder / DATABASE).is_dir():
        _start_accounting(directory, chassis)
    command = [*network.prefix_of(chassis.namespace), network.tool("slurmctld", "slurmctld"), "-D"]
    command += ["-f", str(folder / INSIDE / CONF)]
    _work(directory, SLURMCTLD, command, lambda: _asks(["sinfo", "--noheader"], environment(directory)))


def _start_accounting(directory: Path, chassis: Description) -> None:
    folder, database = directory / FOLDER, directory / FOLDER / DATABASE
    accounting.make(database)
    _work(directory, MARIADBD, accounting.mariadbd(database), (database / accounting.SOCKET).is_socket)
    command = [*network.prefix_of(chassis.namespace), *accounting.slurmdbd(database, folder / INSIDE / CONF)]
    _work(directory, SLURMDBD, command, lambda: _asks(["sacctmgr", "show", "stats"], environment(directory)))


def extend(directory: Path, chassis: Description) -> None:
    """Let Slurm have what its files say now. Its controller learns of new nodes at its start only; jobs go on."""
    running = ps.load(directory / SLURMCTLD)
    if running is not None:
        ps.stop(running, grace=bg.STOP_GRACE)
    start(directory, chassis)
    run(directory, chassis, "scontrol", "reconfigure")


def keep_accounts(directory: Path, chassis: Description) -> None:
    """From now on slurmdbd keeps what becomes of jobs."""
    if not (directory / FOLDER / DATABASE).is_dir():
        accounting.make(directory / FOLDER / DATABASE)
        extend(directory, chassis)


def save_power(directory: Path, chassis: Description, idle: float) -> None:
    """From now on Slurm switches nodes off that were idle for so many seconds, and on for a job; 0: not any more."""
    kept = directory / FOLDER / IDLE_OFF
    before = _idle_off(directory / FOLDER)
    kept.write_text(f"{math.ceil(idle)}\n", encoding="ascii")
    if _idle_off(directory / FOLDER) != before:
        extend(directory, chassis)


def connect(client: Client, directory: Path) -> None:
    """Have Strata ask it before anything is done to a node that could hurt a job."""
    spec: Json = {"kind": "slurm", "env": {"SLURM_CONF": str(directory / FOLDER / CONF)}}
    client.put(f"/v1/workloads/{NAME}", spec)


def give_key(client: Client, directory: Path, group: str) -> None:
    """Give the nodes of a group the key that they share with slurmctld, unless they are given one: encrypted here."""
    from strata.platform.secrets.age import encrypt

    try:
        client.get(f"/v1/secrets/{SECRET}")
        return
    except NotFound:
        pass
    try:
        identity = client.get("/v1/secret-identity")
    except NotFound:
        identity = client.post("/v1/secret-identity", {})
    value = (directory / FOLDER / KEY).read_bytes()
    secret: Json = {"select": f"@{group}", "age": encrypt(value, [identity["recipient"]])}
    client.put(f"/v1/secrets/{SECRET}", secret)


def make_set(client: Client, directory: Path, chassis: Description, login_key: str) -> None:
    """The personality, unless it is there."""
    member: Json = {
        "name": "system",
        "release": image.SLURM.reference,
        "env": {"SLURM_SERVER": chassis.server, "MUNGE_SOCKET": str(directory / FOLDER / SOCKET)},
        "ready": {"kind": "tcp", "port": SLURMD_PORT},
        "files": [
            *image.login_files(login_key),
            {"path": "/etc/hosts", "content": "127.0.0.1 localhost\n{address} {node}\n"},
        ],
        "mounts": [{"source": "/run/strata/secrets", "target": "/run/secrets"}],
    }
    image.put_set(client, SET, {"members": [member], "description": "nodes of the Slurm of strata up"})


def prove(directory: Path, chassis: Description, names: Sequence[str], timeout: float) -> str:
    """What ``srun hostname`` prints on those of the nodes that are Slurm's, once they are idle. Nothing where jobs run
    already, or none is. Raises ``Unavailable``."""
    deadline = time.monotonic() + timeout
    told = ["sinfo", "--noheader", "--Node", "--partition", PARTITION, "--format", "%N %T"]
    while True:
        states = dict(line.split() for line in run(directory, chassis, *told).splitlines())
        # Nor those that Slurm has switched off, or is about to.
        ours = {name: states[name] for name in names if not re.search("drain|[~#!%]$", states.get(name, "drained"))}
        if not ours or {"allocated", "mixed"} & set(ours.values()):
            return ""
        if set(ours.values()) == {"idle"}:
            break
        if time.monotonic() >= deadline:
            said = ", ".join(f"{name} is {state}" for name, state in ours.items())
            raise Unavailable(
                f"not all nodes are idle: {said}"[:300], where="slurm", hint="strata virtual run -- sinfo -R"
            )
        time.sleep(_POLL)
    said = run(directory, chassis, "srun", f"-N{len(ours)}", "--nodelist", ",".join(ours), "hostname")
    return f"srun -N{len(ours)} hostname: {' '.join(sorted(said.split()))}"


def run(directory: Path, chassis: Description, *command: str) -> str:
    """What a command in the nodes' network prints. Raises ``Unavailable``."""
    words = [*network.prefix_of(chassis.namespace), *command]
    try:
        done = captured(words, _LIMIT, environment(directory, inside=True))
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no end after {_LIMIT:g} s", where=command[0]) from None
    if done.returncode:
        told = done.stderr.strip()[-300:] or f"exit code {done.returncode}"
        raise Unavailable(told, where=command[0], hint=f"see {directory / FOLDER / 'slurmctld.log'}")
    return done.stdout


def environment(directory: Path, *, inside: bool = False) -> dict[str, str]:
    """What Slurm's commands find the cluster by: on this machine, or ``inside`` the nodes' network."""
    folder = directory / FOLDER / INSIDE if inside else directory / FOLDER
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SRUN_", "SBATCH_"))}
    # Nodes have none of this machine's folders.
    return {**kept, "SLURM_CONF": str(folder / CONF), "SLURM_WORKING_DIR": "/tmp"}


def _make_key(folder: Path) -> None:
    """Of text, as the files of a personality are; made once."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if (folder / KEY).exists():
        return
    write_private(folder / KEY, base64.b64encode(secrets.token_bytes(96)), mode=0o400)


def _write_programs(directory: Path) -> None:
    """What Slurm runs as root here: Strata's programs, which speak to the service of this directory."""
    from strata.fleet.settings import admin_socket

    folder = directory / FOLDER
    (folder / PROGRAMS).mkdir(mode=0o700, exist_ok=True)
    where = {"url": f"unix:{admin_socket(directory)}", "workload": NAME, "log": str(folder / "programs.log")}
    (folder / "strata.json").write_text(json.dumps(where), encoding="utf-8")
    for action in ("resume", "suspend", "reboot"):
        code = f"from strata.slurm_cli.power import {action}; {action}()"
        words = [f"STRATA_SLURM_CONFIG={folder / 'strata.json'}", sys.executable, "-c", code]
        program = folder / PROGRAMS / f"strata-slurm-{action}"
        program.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n', encoding="utf-8")
        program.chmod(0o700)


def _idle_off(folder: Path) -> int:
    try:
        return int((folder / IDLE_OFF).read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0


def _configure(folder: Path, chassis: Description) -> None:
    """Both configurations, as the nodes are now."""
    from strata.schedulers.slurm.conf import files

    assert chassis.link is not None, "strata up makes the cable"
    for place, address in ((folder / INSIDE, chassis.server), (folder, chassis.link.inside)):
        place.mkdir(mode=0o700, exist_ok=True)
        for name, text in files(_cluster(folder, chassis, address)).items():
            (place / name).touch(mode=0o600)  # slurmdbd insists on that, for its own
            (place / name).write_text(text, encoding="utf-8")


def _cluster(folder: Path, chassis: Description, address: str) -> Cluster:
    """The cluster for those who know slurmctld by this address."""
    from strata.schedulers.slurm.conf import AccountingSpec, Cluster, Hardware, Nodes, Partition, Saving

    idle, programs = _idle_off(folder), folder / PROGRAMS
    alike: dict[int, list[MachineDescription]] = {}
    for machine in chassis.nodes:
        alike.setdefault(machine.memory, []).append(machine)
    nodes = tuple(
        Nodes(
            names=tuple(one.name for one in machines),
            addresses=tuple(one.address for one in machines),
            # What the minimal OS and the image, which is in memory, leave over.
            hardware=Hardware(memory=memory // 2),
        )
        for memory, machines in alike.items()
    )
    names = tuple(machine.name for machine in chassis.nodes)
    host, secret = socket.gethostname().partition(".")[0], folder / DATABASE / accounting.SECRET
    # A slurmdbd ends whoever is named in its pid file: each cluster of this machine has its own.
    own = {"LogFile": "", "PidFile": str(folder / "slurmdbd.pid")}
    kept = AccountingSpec(host=host, address=address, secret=str(secret), settings=own)
    return Cluster(
        name="strata",
        controllers=(f"{host}({address})",),
        accounting=kept if secret.parent.is_dir() else None,
        nodes=nodes,
        partitions=(Partition(name=PARTITION, names=names, settings={"Default": "YES", "MaxTime": "INFINITE"}),),
        saving=Saving(after=idle, off=_OFF, on=_ON) if idle else None,
        programs=str(programs),
        settings={
            "SlurmUser": "root",
            "RebootProgram": str(programs / "strata-slurm-reboot"),
            "SlurmctldParameters": "reboot_from_controller",
            "AuthInfo": f"socket={folder / SOCKET}",
            "StateSaveLocation": str(folder / "state"),
            "SlurmctldPidFile": str(folder / "slurmctld.pid"),
            "SlurmctldLogFile": "",  # to its output, as all that 'strata up' starts
            "SlurmdLogFile": "",  # to the node's console
            # Jobs are processes of slurmd's container, whose cgroups are not its to divide.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "",
            "SelectTypeParameters": "CR_Core",
            "MpiDefault": "none",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": str(folder / JOBS),
        },
        cgroup={"CgroupPlugin": "cgroup/v1", "CgroupAutomount": "no"},
    )


def _asks(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Whether somebody answers this question."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _work(directory: Path, record: str, command: list[str], answers: Callable[[], bool]) -> None:
    """Start a program unless it runs, and wait until it answers; its last words if it dies instead."""
    what = record.removesuffix(".json")
    log = directory / FOLDER / f"{what}.log"
    process = ps.load(directory / record)
    if process is None or not process.alive:
        process = bg.start(directory / record, log, command)
    deadline = time.monotonic() + bg.START_TIMEOUT
    while not answers():
        bg.must_run(process, what, log)
        if time.monotonic() > deadline:
            hint = "strata up tries again; strata stop stops it"
            raise Unavailable(f"{what} does not answer", where=str(log), hint=hint)
        time.sleep(_POLL)
