"""Everything that a boot network needs before HTTP: DHCP on its interfaces, TFTP with iPXE, router advertisements."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from strata.core.errors import Unavailable
from strata.fleet.alarm import AlarmSink
from strata.provisioning.dhcp.boot_files import FILES
from strata.provisioning.dhcp.listener import Listener
from strata.provisioning.dhcp.radvd import radvd
from strata.provisioning.dhcp.responder import Counts, Heard, Responder
from strata.provisioning.dhcp.tftp import IPXE, PORT, fill, find_ipxe, require_free, tftp
from strata.provisioning.directory import Directory
from strata.provisioning.networks import Networks, require_interfaces

log = logging.getLogger(__name__)


class DhcpService:
    """``start`` and ``stop``. Who the nodes are it sees in ``directory``, whenever a machine asks."""

    def __init__(
        self,
        networks: Networks,
        directory: Directory,
        state: Path,
        *,
        heard: Callable[[Heard], None] = lambda _: None,
        alarm: AlarmSink = lambda _: None,
        ipxe: Sequence[Path] = (IPXE,),
    ) -> None:
        self._networks = networks
        self._state = state
        self._ipxe = ipxe
        lacking = [name for name in FILES if find_ipxe(name, ipxe) is None]
        self.counts = Counts()
        """How many requests there were."""
        self._responder_for = partial(
            Responder, networks, directory, heard=heard, alarm=alarm, lacking=lacking, counts=self.counts
        )
        self._responder = self._responder_for()
        self._running: AsyncExitStack | None = None

    async def start(self) -> None:
        """Serve. Either all of it runs afterwards, or nothing and ``Unavailable`` says why."""
        require_interfaces(self._networks, "boot networks")
        for subnet in self._networks.subnets:
            _require_own(str(subnet.server), subnet.interface)
        async with AsyncExitStack() as stack:
            for interface in self._networks.interfaces:
                listener = Listener(interface, self._responder.answer)
                await listener.start()
                stack.push_async_callback(listener.stop)
            await self._start_tftp(stack)
            await self._start_radvd(stack)
            self._running = stack.pop_all()

    async def _start_tftp(self, stack: AsyncExitStack) -> None:
        servers = dict.fromkeys(str(subnet.server) for subnet in self._networks.subnets)
        if not servers:
            return
        root = self._state / "tftp"
        await asyncio.to_thread(fill, root, self._ipxe)
        for address in servers:
            require_free(address, PORT)
            server = tftp(root, address, PORT)
            await server.start()
            stack.push_async_callback(server.stop)

    async def _start_radvd(self, stack: AsyncExitStack) -> None:
        if not self._networks.advertised:
            return
        try:
            server = radvd(self._networks, self._state)
            await server.start()
            stack.push_async_callback(server.stop)
        except Unavailable as error:
            if self._networks.ipv6:
                raise
            # Nobody asked for IPv6: machines boot without it, only later.
            log.warning("iPXE will wait 16 s for a router at every boot", extra={"reason": str(error)})

    async def restart(self) -> None:
        """Serve the networks as they are now."""
        await self.stop()
        self._responder = self._responder_for()
        await self.start()

    async def stop(self) -> None:
        """End all of it."""
        if self._running is not None:
            await self._running.aclose()
            self._running = None


def _require_own(address: str, interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise Unavailable(
                f"the server's address is not ours: {error.strerror}",
                where=f"{address} on {interface}",
                hint=f"ip address add {address}/... dev {interface}, or correct the networks file",
            ) from None
