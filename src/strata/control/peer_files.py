"""Has another controller give a part of a file: what ``strata.provisioning.replication`` reads by."""

from __future__ import annotations

import msgspec

from strata.control.peer_client import PeerClient
from strata.control.peers import Peers
from strata.core.errors import Unavailable
from strata.provisioning.replication.copying import SILENCE
from strata.provisioning.replication.files import ReadRequest

ROUTE = "files/read"

_encode = msgspec.json.Encoder().encode


class PeerFiles:
    """Reads at other controllers."""

    def __init__(self, peers: Peers, client: PeerClient) -> None:
        self._peers = peers
        self._client = client

    async def read(self, controller: str, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file there; fewer than ``length`` only where it ends."""
        peer = self._peers.get(controller)
        if peer is None:
            raise Unavailable(f"controller {controller} is away", where=name)
        asked = _encode(ReadRequest(name=name, offset=offset, length=length))
        return await self._client.call(peer, ROUTE, asked, timeout=SILENCE)
