"""The virtual cluster behind ``strata up``: QEMU nodes in a network namespace, and the service in there with them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli.converge import state_counts
from strata.cli.output import fold
from strata.cli.up import background as bg
from strata.cli.up import image, journey
from strata.core.errors import Conflict, NotFound
from strata.core.host import process as ps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.cli.client import Client, Json
    from strata.cli.session import Session
    from strata.virtual.qemu.description import Description, MachineDescription

NETWORKS = "networks.yaml"
DOCUMENT = "up"
GROUP = "compute"
DEFAULT_NODES = 4
PORT = 8443

GOAL = {
    "power": ["on"],
    "os": ["up"],
    "identity": ["issued"],
    "image": [image.SET],
    "personality": ["active"],
}
"""What ``up`` wants of every virtual node."""

TRY = (
    "strata node list                       # what the nodes are",
    "strata node exec @compute -- uname -a  # a command on all of them",
    "strata virtual login n0001             # a shell on one of them",
    "strata virtual kill n0001              # its power fails; strata node history n0001 tells what became of it",
    f"strata image build {image.SECOND} --name demo --tag 2",
    "strata image promote demo:2 demo:1     # another image, without a reboot",
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
    session.out.line(f"stopped {len(stopped)} processes of the virtual machines and removed their network")
    return True


def delete(directory: Path) -> None:
    """Remove what was kept of the virtual machines."""
    from strata.virtual.qemu import create

    if is_there(directory):
        create.destroy(directory / bg.CHASSIS)
    (directory / NETWORKS).unlink(missing_ok=True)


def where(directory: Path) -> list[str]:
    """What to say about where the nodes are."""
    from strata.virtual.qemu import description

    found = description.read(directory / bg.CHASSIS)
    return [f"nodes   in the network namespace {found.namespace} (ip netns exec {found.namespace} ...)"]


def bring_up(session: Session, directory: Path, *, nodes: int | None, uefi: int | None) -> Client:
    """The machines, and the service at work, which knows what they shall be. Where they are, and more are asked for,
    those are added."""
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
    if not (directory / bg.SET_UP).exists():
        _register(client, directory, _described(directory))
        _want(client, {name: value for name, value in GOAL.items() if name not in ("image", "personality")})
        image.make(session.out, client)
        image.make_set(client, make_key(directory / bg.CHASSIS))
        _want(client, GOAL)
        bg.set_up(directory, "virtual")
    if nodes is not None and 0 < there < nodes:
        session.out.note(f"added {fold(add(client, directory, nodes - there, uefi or 0))}")
    return client


def add(client: Client, directory: Path, count: int, uefi: int) -> list[str]:
    """Put more machines into the cluster that is at work here; their names."""
    from strata.virtual.qemu import create

    more = create.add(directory / bg.CHASSIS, count, uefi)
    first = len(_described(directory).nodes) - len(more) + 1
    client.request("POST", "/v1/nodes", body={"nodes": _nodes(more, first)})
    names = [node.name for node in more]
    with contextlib.suppress(NotFound):  # who deleted the group wants something else of the nodes
        client.request("POST", f"/v1/groups/{GROUP}/members", body={"add": ",".join(names)})
    return names


def _machines(directory: Path) -> int:
    """How many virtual machines there are."""
    try:
        return len(_described(directory).nodes)
    except NotFound:
        return 0


def follow(session: Session, client: Client, directory: Path, *, began: float, timeout: float) -> dict[str, int]:
    """Show the nodes' way to ready since ``began`` (Unix seconds); the counts by state at the end."""
    known = {item["name"] for item in client.get("/v1/nodes", {"fields": "name", "limit": 1000})["items"]}
    names = [node.name for node in _described(directory).nodes if node.name in known]
    if not journey.follow(client, session.out, names, began=began, timeout=timeout):
        session.out.note("not all are ready: strata node why NODE says what is missing, strata console NODE more")
    return state_counts(client, "*")


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
        "provisioning",
        "power",
        "--state-dir",
        str(directory),
        *bg.NO_SITE,
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


def _register(client: Client, directory: Path, chassis: Description) -> None:
    """Tell the service of the nodes, unless it knows them."""
    from strata.virtual.qemu.description import PASSWORD

    if int(client.get("/v1/nodes", {"limit": 1, "fields": "name"})["total"]):
        return
    secret = (directory / bg.CHASSIS / PASSWORD).read_text(encoding="ascii").strip()
    credential: Json = {"pattern": "default", "user": chassis.user, "password": secret}
    client.request("PUT", "/v1/hardware/credentials", body=credential)
    client.request("POST", "/v1/nodes", body={"nodes": _nodes(chassis.nodes, 1)})
    members = ",".join(node.name for node in chassis.nodes)
    client.request("PUT", f"/v1/groups/{GROUP}", body={"members": members, "description": "virtual compute nodes"})


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


def _want(client: Client, goal: dict[str, list[str]]) -> None:
    document: Json = {"name": DOCUMENT, "select": f"@{GROUP}", "set": goal}
    client.request("POST", "/v1/apply", body={"documents": [document], "prune": False, "dry_run": False})
