"""A PDU that takes one order per line: ``state 3``, ``on 3``, ``off 3``. A node is an outlet: ``outlet://HOST:PORT/3``."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from strata.core.errors import DeviceError, OutcomeUnknown, Unavailable
from strata.core.state import Fence
from strata.hardware.bmc.dialects import Dialect, Login
from strata.hardware.bmc.protocol import Bmc, Identity, PowerAction, not_offered
from strata.hardware.bmc.redfish.endpoint import Credentials
from strata.hardware.inventory.records import Found, Machine

PATIENCE = 5.0
"""Seconds for an answer."""


def outlet(login: Login) -> Dialect:
    """All outlets. A PDU of this make knows no passwords."""

    async def everybody(address: str, credentials: Credentials) -> bool:
        return True

    async def nothing_open() -> None:
        """Every order has a connection of its own."""

    return Dialect(OutletBmc, inventory, everybody, lambda address: None, nothing_open)


class OutletBmc(Bmc):
    """One outlet. What it does not have (sensors, a console, ...) ``Bmc`` refuses in words."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def identity(self) -> Identity:
        return Identity(protocol="outlet", model="line PDU")

    async def power(self) -> str | None:
        said = await self._order("state")
        return said if said in ("on", "off") else None

    async def set_power(
        self, action: PowerAction, *, fence: Fence | None = None, begin_before: float = float("inf")
    ) -> None:
        if action not in ("on", "off"):
            raise not_offered(self, f"the power action {action}")
        if asyncio.get_running_loop().time() >= begin_before:
            raise Unavailable("it was not begun in time", where=self.address)
        try:
            said = await self._order(action)
        except DeviceError as error:  # it may have heard us, and its answer was lost
            raise OutcomeUnknown(error.detail, node=self.address) from None
        if said != "ok":
            raise DeviceError(f"it says {said[:80]!r}", node=self.address, reply=True)

    async def _order(self, order: str) -> str:
        parts = urlsplit(self.address)
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                writer.write(f"{order} {parts.path.strip('/')}\n".encode())
                said = await reader.readline()
                writer.close()
        except (OSError, TimeoutError, ValueError) as error:
            raise DeviceError(f"no answer: {error or 'it took too long'}", node=self.address) from None
        return said.decode("utf-8", "replace").strip()


async def inventory(address: str) -> Found:
    """What discovery finds: the outlet, and nothing in it."""
    bmc = OutletBmc(address)
    power = await bmc.power() or ""
    machine = Machine(id=address, address=address, power=power)
    return Found(
        address=address, identity=await bmc.identity(), time=asyncio.get_running_loop().time(), machines=(machine,)
    )
