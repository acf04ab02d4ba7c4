"""The virtual cluster behind ``strata up``: QEMU nodes in a network namespace, and the service in there with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli.converge import state_counts
from strata.cli.up import background as bg
from strata.cli.up import image, journey
from strata.core.host import process as ps

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.cli.session import Session
    from strata.virtual.qemu.description import Description

NETWORKS = "networks.yaml"
DOCUMENT = "up"
GROUP = "compute"
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
    "strata down                            # all of it away again",
)


def is_there(directory: Path) -> bool:
    """Whether an earlier ``up`` made a virtual cluster here."""
    return (directory / bg.CHASSIS).is_dir()


def take_down(session: Session, directory: Path) -> bool:
    """Stop the virtual machines and remove their network. False: there were none."""
    from strata.virtual.qemu.create import destroy

    if not is_there(directory):
        return False
    stopped = destroy(directory / bg.CHASSIS).stopped
    session.out.line(f"stopped {len(stopped)} processes of the virtual machines and removed their network")
    (directory / NETWORKS).unlink(missing_ok=True)
    return True


def where(directory: Path) -> list[str]:
    """What to say about where the nodes are."""
    from strata.virtual.qemu import description

    found = description.read(directory / bg.CHASSIS)
    return [f"nodes   in the network namespace {found.namespace} (ip netns exec {found.namespace} ...)"]


def bring_up(session: Session, directory: Path, *, nodes: int, uefi: int | None) -> Client:
    """The machines, and the service at work, which knows what they shall be."""
    from strata.virtual.qemu.create import check_host
    from strata.virtual.qemu.create import start as start_chassis
    from strata.virtual.qemu.login import make_key

    wanted_uefi = nodes // 2 if uefi is None else uefi
    check_host(uefi=bool(wanted_uefi))  # before anything is made
    with bg.prepared(session.out, directory):
        client = bg.client_of(session, directory)
        if bg.running(session, client, directory, front=True) is not None:
            start_chassis(directory / bg.CHASSIS)
        else:
            bg.refuse_stranger(client, directory)
            (directory / bg.URL).unlink(missing_ok=True)
            _minos(session, directory)
            chassis = _chassis(directory, nodes, wanted_uefi)
            bg.wait_ready(session, client, _serve(directory, chassis), directory, front=True)
    _register(client, directory, _described(directory))
    _want(client, {name: value for name, value in GOAL.items() if name not in ("image", "personality")})
    image.make(session.out, client)
    image.make_set(client, make_key(directory / bg.CHASSIS))
    _want(client, GOAL)
    return client


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
    nodes = [
        {
            "name": node.name,
            "nid": number,
            "bmc": node.bmc,
            "labels": {"firmware": node.firmware},
            "interfaces": [{"mac": node.mac, "address": node.address, "name": "boot"}],
        }
        for number, node in enumerate(chassis.nodes, 1)
    ]
    client.request("POST", "/v1/nodes", body={"nodes": nodes})
    members = ",".join(node.name for node in chassis.nodes)
    client.request("PUT", f"/v1/groups/{GROUP}", body={"members": members, "description": "virtual compute nodes"})


def _want(client: Client, goal: dict[str, list[str]]) -> None:
    document: Json = {"name": DOCUMENT, "select": f"@{GROUP}", "set": goal}
    client.request("POST", "/v1/apply", body={"documents": [document], "prune": False, "dry_run": False})
