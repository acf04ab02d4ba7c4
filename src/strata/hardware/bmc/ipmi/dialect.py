"""IPMI among the protocols of BMCs. pyghmi, which decodes its records, is needed only where a BMC speaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.core.errors import DeviceError
from strata.core.extras import needs
from strata.hardware.bmc.dialects import Dialect, Login
from strata.hardware.bmc.ipmi.client import IpmiClient
from strata.hardware.bmc.ipmi.session import WrongPassword
from strata.hardware.bmc.redfish.endpoint import Credentials
from strata.hardware.inventory.records import Found

if TYPE_CHECKING:
    from strata.hardware.bmc.ipmi.bmc import IpmiBmc
    from strata.hardware.bmc.ipmi.store import IpmiStore


def ipmi(login: Login) -> Dialect:
    """All BMCs at ``ipmi://`` addresses."""
    speaker = _Ipmi(login)
    return Dialect(speaker.open, speaker.inventory, accepts, speaker.client.forget, speaker.client.close)


class _Ipmi:
    """One client and one store of sensor records for all."""

    def __init__(self, login: Login) -> None:
        self.client = IpmiClient(login)
        self._store: IpmiStore | None = None

    def open(self, address: str) -> IpmiBmc:
        with needs("pyghmi", "ipmi", "a BMC that speaks IPMI", DeviceError):
            from strata.hardware.bmc.ipmi.bmc import IpmiBmc
            from strata.hardware.bmc.ipmi.store import IpmiStore
        self._store = self._store or IpmiStore(self.client)
        return IpmiBmc(self.client, self._store, address)

    async def inventory(self, address: str) -> Found:
        bmc = self.open(address)
        from strata.hardware.bmc.ipmi.inventory import inventory

        assert self._store is not None
        return await inventory(bmc, self._store)


async def accepts(address: str, credentials: Credentials) -> bool:
    """Whether somebody with these credentials may log in."""
    client = IpmiClient(lambda _: credentials)
    try:
        async with client.session(address):
            return True
    except WrongPassword:
        return False
    finally:
        await client.close()
