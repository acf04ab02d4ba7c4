"""Opens the room of the other controllers: who they are, how they are asked, what they ask."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from strata.fleet.access.authority import Authority
from strata.fleet.access.sealing import Seal
from strata.fleet.alarm import Alarm
from strata.fleet.fleet import Fleet
from strata.fleet.peers.client import PeerClient
from strata.fleet.peers.door import PeerDoor
from strata.fleet.peers.leaders import LeaderClient
from strata.fleet.peers.peers import Peer, Peers

log = logging.getLogger(__name__)


async def open_peers(fleet: Fleet, url: str, signing: str) -> None:
    """Know the others. They know this one, which they reach at ``url``, once ``Peers.introduce`` was called.
    ``signing``: fingerprint of the key that vouches for images; empty: this one keeps none."""
    controller, authority, seal = fleet.controller, fleet.of(Authority), fleet.of(Seal)
    me = Peer(
        controller=controller.name,
        url=url,
        fingerprint=authority.fingerprint,
        signing=signing,
        sealing=seal.key_ids[0],
    )
    peers = Peers(
        fleet.store, me, announce=controller.leadership.announce, opens=seal.key_ids, compared=_compared(fleet.alarm)
    )
    client = PeerClient(authority, me.controller, fleet.settings.state_dir)
    fleet.parts.push_async_callback(client.close)
    leaders = LeaderClient(controller, peers, client)
    fleet.parts.push_async_callback(leaders.close)
    fleet.begin(partial(fleet.keep, peers))
    fleet.put(peers)
    fleet.put(leaders)
    fleet.put(PeerDoor(me.controller))


def _compared(alarm: Callable[[Alarm], None]) -> Callable[[Peer, str], None]:
    """Raises an alarm for a controller that does not fit to this one, and ends it when it does, or goes: also one that
    was raised before this controller was started anew, which may have been the remedy."""
    said: dict[str, str] = {}

    def compared(peer: Peer, trouble: str) -> None:
        if said.get(peer.controller) == trouble:
            return
        said[peer.controller] = trouble
        if trouble:
            log.error("a controller does not match this one", extra={"peer": peer.controller, "reason": trouble})
        alarm(
            Alarm(
                kind="controller",
                severity="critical" if trouble else "ok",
                message=trouble or f"controller {peer.controller} matches the others again, or has gone",
                about=peer.controller,
            )
        )

    return compared
