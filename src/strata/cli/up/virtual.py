"""The virtual cluster behind ``strata up``: QEMU nodes in a network namespace, and the service and Slurm in there with
them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli.converge import state_counts, verdict
from strata.cli.output import fold
from strata.cli.up import background as bg
from strata.cli.up import image, journey, site, slurm
from strata.core.errors import BadRequest, Conflict, NotFound
from strata.core.host import process as ps
from strata.core.host.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strata.cli.client import Client, Json
    from strata.cli.session import Session
    from strata.platform.config.starter import Machine
    from strata.virtual.qemu.description import Description, MachineDescription

NETWORKS = "networks.yaml"
DOCUMENT = "up"
GROUP = "compute"
DEFAULT_NODES = 4
PORT = 8443

GOAL = {
    "power": "on",
    "os": "up",
    "identity": "issued",
}
"""What ``up`` wants of every virtual node, before it is known what it runs."""
DEMO_GOAL = {**GOAL, "image": image.DEMO.name, "personality": "active"}
SLURM_GOAL = {**GOAL, "image": slurm.SET, "personality": "active", "workload": "in"}

_TRY = (
    "strata node list                       # what the nodes are",
    "strata node exec @compute -- uname -a  # a command on all of them",
    "strata virtual login n0001             # a shell on one of them",
    "strata virtual kill n0001              # its power fails; strata node history n0001 tells what became of it",
    "strata console n0001                   # what its kernel said",
    "strata virtual add                     # one machine more",
    "strata stop                            # all of it stands still until strata up",
)


def is_there(directory: Path) -> bool:
    """Whether an earlier ``up`` made a virtual cluster here."""
    return (directory / bg.CHASSIS).is_dir()


def stop(session: Session, directory: Path) -> bool:
    """Stop the virtual machines and remove their network. False: there were none."""
    from strata.virtual.qemu import create

    if not is_there(directory):
        return False
    stopped = create.stop(directory / bg.CHASSIS).stopped
    session.out.line(
        "stopped the virtual machines and removed their network"
        if stopped
        else "the virtual machines were already stopped"
    )
    return True


def delete(directory: Path) -> None:
    """Remove what was kept of the virtual machines."""
    from strata.virtual.qemu import create

    if is_there(directory):
        create.destroy(directory / bg.CHASSIS)
    (directory / NETWORKS).unlink(missing_ok=True)
    for name in (site.FOLDER, slurm.FOLDER):
        if (directory / name).is_dir():
            remove_tree(directory / name)


def suggestions(directory: Path) -> list[str]:
    """What to try."""
    runs = image.SLURM if slurm.is_there(directory) else image.DEMO
    more = [
        f"strata image build {runs.recipe.with_name('second.yaml')} --name {runs.name} --tag 2",
        f"strata image promote {runs.name}:2 {runs.reference}   # another image, without a reboot",
        f"strata config plan {directory / site.FOLDER}   # the cluster as git has it: change it, plan, commit, apply",
    ]
    if slurm.is_there(directory):
        more.insert(0, "strata virtual run -- srun -N2 hostname   # a job; also sinfo, squeue, sbatch ...")
        more.insert(1, "strata workload nodes slurm            # what Slurm says of the nodes")
    return [*_TRY[:-1], *more, _TRY[-1]]


def where(directory: Path) -> list[str]:
    """What to say about where the nodes are."""
    from strata.virtual.qemu import description

    found = description.read(directory / bg.CHASSIS)
    said = [f"nodes   in the network namespace {found.namespace} (ip netns exec {found.namespace} ...)"]
    if slurm.is_there(directory):
        conf = directory / slurm.FOLDER / slurm.CONF
        said.append(f"slurm   export SLURM_CONF={conf} (for sinfo, sbatch, ...; srun: strata virtual run -- srun)")
    return said


def bring_up(
    session: Session,
    directory: Path,
    *,
    nodes: int | None,
    uefi: int | None,
    with_slurm: bool | None,
    accounting: bool,
    idle_off: float | None,
) -> Client:
    """The machines, and the service at work, which knows what they shall be. Where they are, and more are asked for,
    those are added. ``idle_off``: seconds after which Slurm switches an idle one off; None: as it was."""
    from strata.cli.up.accounting import check_host as check_accounting
    from strata.virtual.qemu.create import check_host
    from strata.virtual.qemu.create import start as start_chassis
    from strata.virtual.qemu.login import make_key

    there = _machines(directory)
    if nodes is not None and nodes < there:
        raise Conflict(
            f"there are {there} virtual machines; strata up removes none",
            where=f"--nodes {nodes}",
            hint="leave --nodes out, or strata down --delete and begin anew",
        )
    first = nodes or DEFAULT_NODES
    wanted_uefi = first // 2 if uefi is None else uefi
    check_host(uefi=bool(wanted_uefi))  # before anything is made
    slurm_here = _has_slurm(directory, with_slurm)
    if slurm_here:
        slurm.check_host()
    elif accounting or idle_off is not None:
        raise BadRequest("there is no Slurm", where="--accounting, --idle-off", hint="leave --no-slurm out")
    if accounting:
        check_accounting()
    with bg.prepared(session.out, directory):
        client = bg.client_of(session, directory)
        if bg.running(session, client, directory, front=True) is not None:
            start_chassis(directory / bg.CHASSIS)
        else:
            bg.refuse_stranger(client, directory)
            (directory / bg.URL).unlink(missing_ok=True)
            _minos(session, directory)
            chassis = _chassis(directory, first, wanted_uefi)
            bg.wait_ready(session, client, _serve(directory, chassis), directory, front=True)
        if slurm_here:
            slurm.start(directory, _described(directory))
    if not (directory / bg.SET_UP).exists():
        chassis, login_key = _described(directory), make_key(directory / bg.CHASSIS)
        _give_password(client, directory, chassis)
        site.describe(client, directory, _machine(chassis.nodes, GOAL), "Describe the virtual machines")
        if slurm_here:
            slurm.give_key(client, directory, GROUP)
        image.make(session.out, client, image.SLURM if slurm_here else image.DEMO)
        if slurm_here:
            slurm.make_set(client, directory, chassis, login_key)
            slurm.connect(client, directory)
        else:
            image.make_set(client, login_key)
        site.describe(client, directory, _machine(chassis.nodes, _goal(directory)), "Say what they shall run")
        bg.set_up(directory, "virtual")
    if accounting:
        slurm.keep_accounts(directory, _described(directory))
    if idle_off is not None:
        slurm.save_power(directory, _described(directory), idle_off)
    if idle_off == 0:  # nobody else would switch on what Slurm has switched off
        off: Json = {"select": ",".join(_known(client, directory)), "unset": ["power"]}
        client.post("/v1/desires", off)
    if nodes is not None and 0 < there < nodes:
        session.out.note(f"added {fold(add(client, directory, nodes - there, uefi or 0))}")
    return client


def add(client: Client, directory: Path, count: int, uefi: int) -> list[str]:
    """Put more machines into the cluster that is at work here; their names. They are added to its repository, or, where
    its owner has written something else into that, to the service alone."""
    from strata.virtual.qemu import create

    before = _described(directory).nodes
    ours = site.is_as_written(directory, _machine(before, _goal(directory)))
    more = create.add(directory / bg.CHASSIS, count, uefi)
    names = [node.name for node in more]
    if slurm.is_there(directory):
        slurm.extend(directory, _described(directory))
    if ours:
        site.describe(client, directory, _machine((*before, *more), _goal(directory)), f"Add {fold(names)}")
        return names
    client.post("/v1/nodes", {"nodes": _nodes(more, len(before) + 1)})
    with contextlib.suppress(NotFound):  # who deleted the group wants something else of the nodes
        client.post(f"/v1/groups/{GROUP}/members", {"add": ",".join(names)})
    return names


def _machines(directory: Path) -> int:
    """How many virtual machines there are."""
    try:
        return len(_described(directory).nodes)
    except NotFound:
        return 0


def follow(session: Session, client: Client, directory: Path, *, began: float, timeout: float) -> dict[str, int]:
    """Show the nodes' way to ready since ``began`` (Unix seconds); the counts by state at the end."""
    names = _known(client, directory)
    if not journey.follow(client, session.out, names, began=began, timeout=timeout):
        session.out.note("not all are ready: strata node why NODE says what is missing, strata console NODE more")
    return state_counts(client, "*")


def _known(client: Client, directory: Path) -> list[str]:
    """The machines that are nodes."""
    known = {item["name"] for item in client.get("/v1/nodes", {"fields": "name", "limit": 1000})["items"]}
    return [node.name for node in _described(directory).nodes if node.name in known]


def prove(session: Session, client: Client, directory: Path, found: dict[str, int], timeout: float) -> list[str]:
    """What a job on all nodes printed; nothing where there is no Slurm, or not all are ready. Raises
    ``Unavailable``."""
    if not slurm.is_there(directory) or verdict(found):
        return []
    session.out.note("running a job on all nodes ...")
    said = slurm.prove(directory, _described(directory), _known(client, directory), timeout)
    return [f"job     {said}"] if said else []


def _has_slurm(directory: Path, asked: bool | None) -> bool:
    """Whether the cluster here has a Slurm, or shall get one."""
    there = slurm.is_there(directory)
    if not there and bg.kind_of(directory) is None:
        return asked is not False
    if asked not in (None, there):
        raise Conflict(
            f"there is a cluster {'with' if there else 'without'} a Slurm already",
            where=str(directory),
            hint="strata down --delete and begin anew, or another --state-dir",
        )
    return there


def _goal(directory: Path) -> dict[str, str]:
    """What ``up`` wants of the nodes here."""
    return SLURM_GOAL if slurm.is_there(directory) else DEMO_GOAL


def _minos(session: Session, directory: Path) -> None:
    """A minimal OS in the state directory. Packages, and what is made of them, are cached."""
    from strata.provisioning.minos.artefacts import Artefacts, latest
    from strata.provisioning.minos.commands import make

    builds = Artefacts(directory / "minos")
    if "x86_64" not in latest(builds.root):
        make(session.out, builds, directory)


def _chassis(directory: Path, nodes: int, uefi: int) -> Description:
    from strata.virtual.qemu import create
    from strata.virtual.qemu.description import FILE, Options

    folder = directory / bg.CHASSIS
    if (folder / FILE).exists():
        create.start(folder)
        return _described(directory)
    if folder.exists():
        create.destroy(folder)  # an 'up' was killed while it made this
    return create.create(Options(directory=folder, nodes=nodes, uefi=uefi))


def _described(directory: Path) -> Description:
    from strata.virtual.qemu import description

    return description.read(directory / bg.CHASSIS)


def _serve(directory: Path, chassis: Description) -> ps.Process:
    """The service, in the namespace of its nodes."""
    (directory / NETWORKS).write_text(
        f"# Written by strata up: the network of the virtual machines.\n"
        f"unknown: discover\n"
        f"subnets:\n"
        f"  - {{network: {chassis.network}, interface: {chassis.bridge}, server: {chassis.server}}}\n"
        f'ipv6:\n  - {{prefix: "{chassis.network6}", interface: {chassis.bridge}}}\n',
        encoding="utf-8",
    )
    names = [word for name in _names(chassis) for word in ("--tls-name", name)]
    command = ps.command(
        "strata.cli",
        "serve",
        "--state-dir",
        str(directory),
        *bg.NO_SITE,
        "--set",
        "platform.workload=none",
        "--networks",
        str(directory / NETWORKS),
        "--netns",
        chassis.namespace,
        "--listen",
        f"0.0.0.0:{PORT}",
        *names,
    )
    return bg.start(directory / bg.SERVICE, directory / bg.LOG, command)


def _names(chassis: Description) -> list[str]:
    return [*([chassis.link.inside] if chassis.link is not None else []), chassis.server]


def _give_password(client: Client, directory: Path, chassis: Description) -> None:
    """Tell the service how the BMCs are spoken to."""
    from strata.virtual.qemu.description import PASSWORD

    secret = (directory / bg.CHASSIS / PASSWORD).read_text(encoding="ascii").strip()
    credential: Json = {"pattern": "default", "user": chassis.user, "password": secret}
    client.put("/v1/hardware/credentials", credential)


def _machine(machines: Sequence[MachineDescription], goal: Mapping[str, str]) -> Machine:
    """The cluster, as its repository describes it."""
    from strata.platform.config.starter import Machine

    return Machine(nodes=_nodes(machines, 1), group=GROUP, desire=DOCUMENT, wanted=goal, vendor="qemu")


def _nodes(machines: Sequence[MachineDescription], first: int) -> list[Json]:
    """Machines as nodes, numbered from ``first`` on."""
    return [
        {
            "name": node.name,
            "nid": number,
            "bmc": node.bmc,
            "labels": {"firmware": node.firmware},
            "interfaces": [{"mac": node.mac, "address": node.address, "name": "boot"}],
        }
        for number, node in enumerate(machines, first)
    ]
