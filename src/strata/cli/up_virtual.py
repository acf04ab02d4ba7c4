"""The virtual cluster behind ``strata up``: QEMU nodes in a network namespace, and the service in there with them."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli import background as bg
from strata.cli import journey
from strata.cli.converge import state_counts
from strata.core import process as ps

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.cli.session import Session
    from strata.virtual.qemu.description import Description

CHASSIS = "virtual"
"""Folder in the state directory: the virtual machines and what drives them."""
NETWORKS = "networks.yaml"
DOCUMENT = "up"
GROUP = "compute"
IMAGE = "demo:1"
IMAGE_SET = "demo"
PORT = 8443

GOAL = {
    "power": ["on"],
    "os": ["up"],
    "identity": ["issued"],
    "image": [IMAGE_SET],
    "personality": ["active"],
}
"""What ``up`` wants of every virtual node."""

RECIPE = Path(__file__).parent / "demo" / "recipe.yaml"
"""What the demo image is built from."""

TRY = (
    "strata node list                       # what the nodes are",
    "strata node exec @compute -- uname -a  # a command on all of them",
    "strata virtual login n0001             # a shell on one of them",
    "strata virtual kill n0001              # its power fails; strata node history n0001 tells what became of it",
    f"strata image build {RECIPE} --name demo --tag 2",
    "strata image promote demo:2 demo:1     # another image, without a reboot",
    "strata console n0001                   # what its kernel said",
    "strata down                            # all of it away again",
)


def is_there(directory: Path) -> bool:
    """Whether an earlier ``up`` made a virtual cluster here."""
    return (directory / CHASSIS).is_dir()


def take_down(session: Session, directory: Path) -> bool:
    """Stop the virtual machines and remove their network. False: there were none."""
    from strata.virtual.qemu.create import destroy

    if not is_there(directory):
        return False
    stopped = destroy(directory / CHASSIS).stopped
    session.out.line(f"stopped {len(stopped)} processes of the virtual machines and removed their network")
    (directory / NETWORKS).unlink(missing_ok=True)
    return True


def where(directory: Path) -> list[str]:
    """What to say about where the nodes are."""
    from strata.virtual.qemu import description

    found = description.read(directory / CHASSIS)
    return [f"nodes   in the network namespace {found.namespace} (ip netns exec {found.namespace} ...)"]


def bring_up(session: Session, directory: Path, *, nodes: int, uefi: int | None, timeout: float) -> dict[str, int]:
    """The whole cluster, to every node ready; the counts by state at the end."""
    from strata.virtual.qemu.create import check_host
    from strata.virtual.qemu.create import start as start_chassis

    wanted_uefi = nodes // 2 if uefi is None else uefi
    check_host(uefi=bool(wanted_uefi))  # before anything is made
    with bg.prepared(directory):
        running = ps.load(directory / bg.SERVICE)
        client = bg.client_of(session, directory)
        if running is not None and running.alive:
            session.out.note(f"already running (pid {running.pid}); its options stay as they are")
            start_chassis(directory / CHASSIS)
        else:
            bg.refuse_stranger(client, directory)
            (directory / bg.URL).unlink(missing_ok=True)
            _minos(session, directory)
            chassis = _chassis(directory, nodes, wanted_uefi)
            running = _serve(directory, chassis)
        bg.wait_ready(session, client, running, directory, front=True)
    chassis, began = _described(directory), time.time()
    _register(client, directory, chassis)
    _want(client, {name: value for name, value in GOAL.items() if name not in ("image", "personality")})
    _image(session, client, directory)
    _want(client, GOAL)
    known = {item["name"] for item in client.get("/v1/nodes", {"fields": "name", "limit": 1000})["items"]}
    names = [node.name for node in chassis.nodes if node.name in known]
    if not journey.follow(client, session.out, names, began=began, timeout=timeout):
        session.out.note("not all are ready: strata node why NODE says what is missing, strata console NODE more")
    return state_counts(client, "*")


def _minos(session: Session, directory: Path) -> None:
    """A minimal OS in the state directory. Packages, and what is made of them, are cached."""
    import strata
    from strata.cli.minos import cache_folder
    from strata.cli.progress import Meter
    from strata.provisioning.minos.artefacts import Artefacts
    from strata.provisioning.minos.build import STEPS, build
    from strata.provisioning.minos.recipe import recipe
    from strata.provisioning.signing import Signer

    builds = Artefacts(directory / "minos")
    if builds.all():
        return
    agent, signer = Path(strata.__file__).parent / "agent", Signer.open(directory / "signing")
    with Meter(session.out, "minOS") as meter:
        build(
            recipe("x86_64"),
            agent,
            cache_folder(),
            builds,
            signer,
            progress=lambda done, doing: meter.update(done, STEPS, doing),
        )


def _chassis(directory: Path, nodes: int, uefi: int) -> Description:
    from strata.virtual.qemu import create
    from strata.virtual.qemu.description import FILE, Options

    folder = directory / CHASSIS
    if (folder / FILE).exists():
        create.start(folder)
        return _described(directory)
    return create.create(Options(directory=folder, nodes=nodes, uefi=uefi))


def _described(directory: Path) -> Description:
    from strata.virtual.qemu import description

    return description.read(directory / CHASSIS)


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
        "hardware",
        "provisioning",
        "--state-dir",
        str(directory),
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
    secret = (directory / CHASSIS / PASSWORD).read_text(encoding="ascii").strip()
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


def _image(session: Session, client: Client, directory: Path) -> None:
    """The image and the set that nodes run. What was built once is kept in the user's cache."""
    from strata.cli.image_make import followed, send_file, send_recipe
    from strata.cli.image_transfer import download
    from strata.cli.minos import cache_folder
    from strata.core.errors import NotFound, StrataError

    name, _, tag = IMAGE.partition(":")
    try:
        client.get(f"/v1/images/{name}/{tag}")
    except NotFound:
        key = hashlib.sha256(RECIPE.read_bytes()).hexdigest()[:12]
        kept = cache_folder().parent / "images" / f"{name}-{key}.tar"
        body: Json = {"name": name, "tag": tag}
        if kept.is_file():
            body |= {"upload": send_file(client, session.out, kept), "unsigned": True}
            work = client.request("POST", "/v1/images", body=body).body
        else:
            session.out.note("building the demo image from this machine's Debian packages ...")
            body["upload"] = send_recipe(client, session.out, RECIPE)
            work = client.request("POST", "/v1/image-builds", body=body).body
        job = followed(client, None, work)
        if job["state"] != "done":
            why = "; ".join(error["detail"] for error in job["errors"]) or f"the job was {job['state']}"
            raise StrataError(why, where=IMAGE, hint=f"strata jobs show {job['id']}") from None
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}")
            with part.open("wb") as into:
                download(client, f"/v1/images/{name}/{tag}/export", into)
            part.replace(kept)
    try:
        client.get(f"/v1/image-sets/{IMAGE_SET}")
    except NotFound:
        _image_set(client, directory)


def _image_set(client: Client, directory: Path) -> None:
    member: Json = {
        "name": "system",
        "release": IMAGE,
        "ready": {"kind": "tcp", "port": 22},
        "files": [
            {"path": "/etc/hostname", "content": "{node}\n"},
            {"path": "/etc/demo/authorized_keys", "content": login_key(directory), "mode": 0o600},
        ],
    }
    body: Json = {"members": [member], "description": "what strata up runs on its virtual nodes"}
    client.request("PUT", f"/v1/image-sets/{IMAGE_SET}", body=body)


def login_key(directory: Path) -> str:
    """The public key of whoever may log in to the nodes; the private one is made here."""
    from strata.virtual.qemu.login import make_key

    return make_key(directory / CHASSIS)
