"""The other controllers, as this one knows them, put together: who they are, how they are asked, what they ask."""

from __future__ import annotations

import hashlib
import logging
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from strata.api.peers import PeerDoor
from strata.control.ca import Authority
from strata.control.controller import Controller
from strata.control.elsewhere import Elsewhere
from strata.control.peer_client import PeerClient
from strata.control.peers import Peer, Peers
from strata.control.settings import ListenSettings, Settings
from strata.hardware.access.sealing import Seal
from strata.hardware.events.event import EventSink, HardwareEvent
from strata.provisioning.networks import Networks
from strata.provisioning.signing import Signer

log = logging.getLogger(__name__)


class Neighbours(NamedTuple):
    """What the layers use of it."""

    peers: Peers
    elsewhere: Elsewhere
    door: PeerDoor


async def open_neighbours(
    controller: Controller,
    settings: Settings,
    authority: Authority,
    networks: Networks | None,
    signer: Signer | None,
    seal: Seal,
    events: EventSink,
    parts: AsyncExitStack,
) -> Neighbours:
    """Know the others, for as long as ``parts`` is open. They know this one once ``peers.introduce`` was called."""
    me = Peer(
        controller=controller.name,
        url=front_url(settings, networks),
        fingerprint=authority.fingerprint,
        signing=hashlib.sha256(signer.public_pem.encode()).hexdigest() if signer is not None else "",
        sealing=seal.key_ids[0],
    )
    peers = Peers(
        controller.store, me, announce=controller.leadership.announce, opens=seal.key_ids, compared=_compared(events)
    )
    await peers.start()
    parts.push_async_callback(peers.stop)
    client = PeerClient(authority, me.controller, settings.state_dir)
    parts.push_async_callback(client.close)
    elsewhere = Elsewhere(controller, peers, client)
    parts.push_async_callback(elsewhere.close)
    return Neighbours(peers, elsewhere, PeerDoor(me.controller))


def _compared(events: EventSink) -> Callable[[Peer, str], None]:
    """Raises an alert for a controller that does not fit to this one, and ends it when it does, or goes: also one that
    was raised before this controller was started anew, which may have been the remedy."""
    said: dict[str, str] = {}

    def compared(peer: Peer, trouble: str) -> None:
        if said.get(peer.controller) == trouble:
            return
        said[peer.controller] = trouble
        if trouble:
            log.error("a controller does not fit to this one", extra={"peer": peer.controller, "reason": trouble})
        events(
            [
                HardwareEvent(
                    time=time.time(),
                    severity="critical" if trouble else "ok",
                    message=trouble or f"controller {peer.controller} fits to the others, or is not there any more",
                    source="strata",
                    key=f"controller/{peer.controller}",
                )
            ]
        )

    return compared


def front_url(settings: Settings, networks: Networks | None) -> str:
    """Where agents and other controllers find this one."""
    if settings.provisioning.url:
        return settings.provisioning.url.rstrip("/")
    if networks is None:
        return f"https://{reachable(settings.listen)}:{settings.listen.port}"
    server = networks.subnets[0].server if networks.subnets else networks.ipv6[0].prefix[1]
    return f"https://{f'[{server}]' if server.version == 6 else server}:{settings.listen.port}"


def reachable(listen: ListenSettings) -> str:
    """What to call the front door where it is open on every address."""
    if listen.host not in ("0.0.0.0", "::", "[::]", "*"):
        return listen.host
    return listen.names[0] if listen.names else socket.gethostname()
