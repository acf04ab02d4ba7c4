"""DHCP, TFTP, the boot service and nginx for the nodes of a virtual chassis; a process for the chassis's namespace.

The boot service names the newest build in ``STATE/minos``; nginx serves what is in ``STATE/served``.
Says ``ready`` on its output, then every alarm as a line of JSON, until its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

from strata.api.nginx import Nginx
from strata.api.nginx_config import FrontDoor
from strata.core.node import Interface, Node
from strata.fleet.access.authority import Authority, Issued
from strata.fleet.alarm import Alarm
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.fragment import Site
from strata.provisioning.boot.open import BootFiles
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.questions import Questions
from strata.provisioning.boot.service import BootService
from strata.provisioning.dhcp.service import DhcpService
from strata.provisioning.directory import Directory
from strata.provisioning.identity.identity import Identity
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.networks import parse
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.sqlite.store import SqliteStore


async def serve(chassis: Path, state: Path) -> None:
    found = msgspec.json.decode((chassis / "chassis.json").read_bytes())
    networks = parse(
        f"subnets: [{{network: {found['network']}, interface: {found['bridge']}, server: {found['server']}}}]",
        source="networks",
    )
    directory = Directory(
        Node(name=node["name"], uid=at, interfaces=(Interface(mac=node["mac"], address=node["address"]),))
        for at, node in enumerate(found["nodes"])
    )
    authority = Authority.open(state / "ca")
    authority.renew_server([found["server"]])
    store = SqliteStore(state / "boot.db")

    def sign(csr: bytes, node: str) -> Issued:
        return authority.sign_csr(csr, node, "node", (), 86400)

    def alarm(one: Alarm) -> None:
        if one.severity != "ok":
            print(msgspec.json.encode(one).decode(), flush=True)

    async def hold(node: str, reason: str) -> None:
        pass

    async def speaks(node: str) -> bool:
        return False

    async def console_tail(node: str) -> str:
        return ""

    identity = Identity(store, sign, alarm)
    minos = state / "minos"
    builds = Builds(minos, Soundness(minos, Signer.open(state / "signing").public_pem, alarm))
    profiles = Profiles(store, Ledger(store), builds.digest)
    boot = BootService(
        networks,
        directory,
        identity,
        profiles,
        Site(controllers=lambda: (f"https://{found['server']}:8443",), ca=authority.pem.decode()),
        Questions(attached=lambda _: False, speaks=speaks, held=lambda _: False, hold=hold, console_tail=console_tail),
        alarm,
        builds=builds,
        binaries={"ipxe.efi": Path("/usr/lib/ipxe/ipxe.efi").read_bytes()},
    )
    nginx = Nginx(
        FrontDoor(
            directory=state / "nginx",
            host=found["server"],
            port=8443,
            upstream=state / "front.sock",
            secret="nobody",
            certificate=authority.server_paths[0],
            key=authority.server_paths[1],
            ca=authority.certificate_path,
            workers=1,
            connections=64,
            boot=BootFiles(hosts=(found["server"],), port=networks.boot_port + 1, root=state / "served"),
        )
    )
    dhcp = DhcpService(networks, directory, state)
    parts = (identity, profiles, boot, nginx, dhcp)
    for part in parts:
        await part.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for part in reversed(parts):
        await part.stop()
    await store.close()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
