"""Opens the provisioning layer on a fleet: who nodes are, what they boot and run, their agents, their images."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from strata.fleet.access.authority import Authority
from strata.fleet.controller.known_power import KnownPower
from strata.fleet.fleet import Fleet
from strata.fleet.peers.door import PeerDoor
from strata.fleet.peers.leaders import LeaderClient
from strata.fleet.peers.peers import Peers
from strata.fleet.tasks import cancelled
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.text import clean
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.inventories import Inventories
from strata.provisioning.agents.open import AgentLimits, expects_agents, open_driver, open_hub, open_sets
from strata.provisioning.agents.peer_answers import agent_routes
from strata.provisioning.agents.service import AgentService
from strata.provisioning.agents.unknown import UnknownMachines
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.methods import BootWays
from strata.provisioning.boot.open import open_boot
from strata.provisioning.boot.peers import BootElsewhere
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.requests import BootControl
from strata.provisioning.bootnets.service import BootNetworks
from strata.provisioning.dhcp.tftp import ipxe_folders
from strata.provisioning.directory import Directory
from strata.provisioning.exec.service import ExecService
from strata.provisioning.identity.alarms import FoldedAlarms
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.repository import Images
from strata.provisioning.images.service import ImageService
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.networks import Networks, read
from strata.provisioning.personalities.service import PersonalityService
from strata.provisioning.replication.files import ROUTE as READ
from strata.provisioning.replication.files import PeerFiles
from strata.provisioning.replication.replication import Replication
from strata.provisioning.settings import ProvisioningSettings, images_dir, minos_dir, signing_dir
from strata.provisioning.signing import Signer

NODE_TTL = 86400.0
"""Seconds that a node's certificate lasts; agents renew theirs long before."""
INVENTORY_FILE = "agent-inventories.db"

_REFRESH = 0.5
_KEPT = 86400.0  # seconds for which an agent may have kept a line while no controller answered


async def open_provisioning(fleet: Fleet) -> None:
    """All rooms of the provisioning layer. Machines and agents are answered once the fleet runs."""
    settings, state_dir = fleet.section(ProvisioningSettings), fleet.settings.state_dir
    minos = minos_dir(state_dir)
    authority, elsewhere = fleet.of(Authority), fleet.of(LeaderClient)
    networks = read(settings.networks) if settings.networks is not None else None
    if networks is not None:
        fleet.put(networks, Networks)
    fleet.put(await fleet.keep(BootNetworks(fleet, networks)))
    signer = Signer.open(signing_dir(state_dir))
    alarms = FoldedAlarms(fleet.alarm)
    directory = fleet.put(Directory())
    builds = fleet.put(Builds(minos, Soundness(minos, signer.public_pem, alarms)))
    ipxe = ipxe_folders(state_dir)
    images = Images(
        images_dir(state_dir),
        fleet.store,
        fleet.ledger,
        signer,
        alarms,
        readers=fleet.web.pw_gid if fleet.web else None,
        logins=state_dir / "registries.json",
        prefix=fleet.way_out,
    )
    identity = Identity(
        fleet.store,
        lambda csr, node: authority.sign_csr(csr, node, "node", (), NODE_TTL),
        alarms,
        owner=lambda address: node.name if (node := directory.by_address(address)) else None,
    )
    profiles = Profiles(fleet.store, fleet.ledger, builds.digest)
    for part in (images, identity, profiles):
        fleet.put(await fleet.keep(part))

    hub, sets = fleet.put(open_hub(fleet, images, identity, alarms)), fleet.put(open_sets(fleet, images))
    boots_elsewhere = BootElsewhere(
        hub,
        elsewhere,
        KnownPower(fleet.controller),
        led_for=_led_for(fleet),
        arrived=lambda name: identity.record(name).redeemed > 0,
    )
    fleet.parts.push_async_callback(boots_elsewhere.close)
    boot = None
    if networks is not None:
        boot = await open_boot(
            fleet,
            networks,
            directory=directory,
            identity=identity,
            profiles=profiles,
            builds=builds,
            signer=signer,
            alarms=alarms,
            elsewhere=boots_elsewhere,
            ipxe=ipxe,
        )
        fleet.put(boot)
        fleet.put(BootControl(fleet, boot, profiles, identity))
    ways = BootWays(fleet, directory, profiles, builds, boots_elsewhere, networks=networks, boot=boot, ipxe=ipxe)
    fleet.put(open_driver(fleet, hub, identity, sets, fleet.put(ways)))
    fleet.edits.known = {"image": sets.records.get, "minos": profiles.get}

    peers = fleet.of(Peers)
    replication = Replication(
        fleet.store,
        fleet.ledger,
        images,
        minos,
        builds.soundness,
        signer,
        alarms,
        me=peers.me.controller,
        announce=fleet.controller.leadership.announce,
        others=lambda: [peer.controller for peer in peers.others()],
        read=PeerFiles(peers, elsewhere.client).read,
    )
    builds.shared = replication.builds.latest
    unknown = UnknownMachines(lambda mac: node.name if (node := directory.by_mac(mac)) else None)
    inventories = Inventories(state_dir / INVENTORY_FILE)
    fleet.parts.push_async_callback(inventories.close)
    agents = AgentService(
        fleet, hub, unknown, inventories, elsewhere, expects_agents=expects_agents(fleet, hub, identity)
    )
    fleet.put(agents)
    limits = AgentLimits(hub, elsewhere)
    fleet.set_node_limits = limits.set
    fleet.put(PersonalityService(fleet, sets))
    runs = fleet.put(ExecService(fleet, hub, elsewhere))
    fleet.put(
        ImageService(
            images, fleet.operations, used_by=sets.using, copies=replication.holdings.copies, held=agents.images_held
        )
    )
    fleet.put(_door(fleet, hub, identity, unknown, inventories, peers))
    routes = fleet.of(PeerDoor).routes
    routes.update(agent_routes(hub, agents, limits.set_here))
    routes.update(boots_elsewhere.routes())
    routes[READ] = replication.library.answer

    async def begin() -> None:
        refreshing = asyncio.create_task(_follow_nodes(fleet, directory), name="node directory")
        fleet.parts.push_async_callback(cancelled, refreshing)
        await fleet.keep(replication)
        await fleet.keep(sets)
        await fleet.keep(hub)
        fleet.parts.push_async_callback(runs.close)

    fleet.begin(begin)


def _door(
    fleet: Fleet, hub: Hub, identity: Identity, unknown: UnknownMachines, inventories: Inventories, peers: Peers
) -> AgentDoor:
    """Where agents speak."""
    console = fleet.of(ConsoleLog)

    def logged(node: str, lines: Sequence[tuple[float, str, str]]) -> None:
        now = time.time()
        for at, source, text in lines:
            written = at if now - _KEPT <= at <= now else now  # a node's clock may be wrong
            console.append(node, "agent", [f"{clean(source)}: {clean(text)}"], written)

    fleet.services.held.append(hub.quiet)
    return AgentDoor(
        hub=hub,
        identity=identity,
        unknown=unknown,
        inventoried=inventories.put,
        logged=logged,
        controllers=peers.urls,
    )


def _led_for(fleet: Fleet) -> Callable[[str], float]:
    """For how many seconds this controller has led a node."""
    controller = fleet.controller

    def seconds(name: str) -> float:
        controller.leadership.lapse()  # one that slept may lead no more, and has heard nobody meanwhile
        index = controller.registry.find(name)
        shard = int(controller.registry.uids[index]) % controller.settings.shards if index >= 0 else -1
        since = controller.leadership.since.get(shard)
        return controller.clock.now() - since if since is not None else 0.0

    return seconds


async def _follow_nodes(fleet: Fleet, directory: Directory) -> None:
    """Keep the directory level with the registry."""
    registry = fleet.registry
    level = registry.kept(lambda: directory.update(node for node in registry.nodes if node is not None))
    while True:
        level()
        await asyncio.sleep(_REFRESH)
