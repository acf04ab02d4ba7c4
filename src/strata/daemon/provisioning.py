"""The provisioning layer of one controller, put together when there is one: ``ground`` comes before it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack

from strata.api.services import Services
from strata.control.known_power import KnownPower
from strata.control.peer_answers import agent_routes
from strata.control.peer_boot import BootElsewhere
from strata.control.peer_files import ROUTE as READ
from strata.control.peer_files import PeerFiles
from strata.control.service import Service
from strata.control.service_boot import BootControl
from strata.control.service_images import ImageService
from strata.control.settings import Settings
from strata.core.node import Node
from strata.daemon.boot import open_boot
from strata.daemon.ground import Ground
from strata.daemon.hardware import Opened
from strata.daemon.neighbours import Neighbours
from strata.daemon.tasks import cancelled
from strata.hardware.consoles.text import clean
from strata.provisioning.directory import Directory
from strata.provisioning.replication.replication import Replication

_REFRESH = 0.5
_KEPT = 86400.0  # seconds for which an agent may have kept a line while no controller answered


async def open_provisioning(
    service: Service,
    services: Services,
    settings: Settings,
    ground: Ground,
    hardware: Opened,
    neighbours: Neighbours,
    parts: AsyncExitStack,
) -> None:
    """Everything that answers machines and agents, for as long as ``parts`` is open."""

    def logged(node: str, lines: Sequence[tuple[float, str, str]]) -> None:
        now = time.time()
        for at, source, text in lines:
            written = at if now - _KEPT <= at <= now else now  # a node's clock may be wrong
            hardware.console.append(node, "agent", [f"{clean(source)}: {clean(text)}"], written)

    ground.service = service
    ground.events = hardware.hub.take
    ground.logged = logged
    ground.sighted = hardware.sighted
    refreshing = asyncio.create_task(_follow_nodes(service, ground.directory), name="node directory")
    parts.push_async_callback(cancelled, refreshing)
    service.edits.known = {"image": ground.agents.sets.get, "minos": ground.profiles.get}
    replication = Replication(
        service.controller.store,
        service.ledger,
        ground.images,
        settings.minos_dir,
        ground.builds.soundness,
        ground.signer,
        ground.alarms,
        me=neighbours.peers.me.controller,
        announce=service.controller.leadership.announce,
        others=lambda: [peer.controller for peer in neighbours.peers.others()],
        read=PeerFiles(neighbours.peers, neighbours.elsewhere.client).read,
    )
    await replication.start()
    parts.push_async_callback(replication.stop)
    ground.builds.shared = replication.builds.latest
    services.agents = await ground.agents.start(service, neighbours.elsewhere)
    parts.push_async_callback(ground.agents.stop)
    services.images = ImageService(
        ground.images,
        service.jobs_,
        used_by=ground.agents.sets.using,
        copies=replication.holdings.copies,
        held=services.agents.agents.images_held,
    )
    ground.elsewhere = elsewhere = BootElsewhere(
        ground.agents.hub,
        neighbours.elsewhere,
        KnownPower(service.controller),
        led_for=_led_for(service),
        arrived=lambda name: ground.identity.record(name).redeemed > 0,
    )
    parts.push_async_callback(elsewhere.close)
    routes = neighbours.door.routes
    routes.update(agent_routes(ground.agents.hub, services.agents.agents, ground.agents.limits_here))
    routes.update(elsewhere.routes())
    routes[READ] = replication.library.answer
    if ground.networks is not None:
        ground.boot = await open_boot(
            service, settings, ground, elsewhere, ground.networks, hardware, neighbours, parts
        )
        services.boot = BootControl(service, ground.boot, ground.profiles, ground.identity)


def _led_for(service: Service) -> Callable[[str], float]:
    """For how many seconds this controller has led a node."""
    controller = service.controller

    def seconds(name: str) -> float:
        controller.leadership.lapse()  # one that slept may lead no more, and has heard nobody meanwhile
        index = controller.registry.find(name)
        shard = int(controller.registry.uids[index]) % controller.settings.shards if index >= 0 else -1
        since = controller.leadership.since.get(shard)
        return controller.clock.now() - since if since is not None else 0.0

    return seconds


async def _follow_nodes(service: Service, directory: Directory) -> None:
    """Keep the directory level with the registry."""
    registry, stamp = service.registry, (-1, -1)
    while True:
        now = (int(registry.revisions.max(initial=0)), len(registry))
        if now != stamp:
            stamp = now
            directory.update(_nodes(service))
        await asyncio.sleep(_REFRESH)


def _nodes(service: Service) -> Iterator[Node]:
    return (node for node in service.registry.roster.nodes if node is not None)
