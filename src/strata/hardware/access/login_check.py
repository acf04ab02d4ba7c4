"""Whether a controller lets somebody in: one login with a client of its own, so that nothing else is disturbed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from strata.core.errors import DeviceError
from strata.hardware.ipmi.client import IpmiClient
from strata.hardware.ipmi.session import WrongPassword
from strata.hardware.redfish.client import ROOT, Credentials, RedfishClient, RedfishSettings
from strata.hardware.redfish.wire import Tls

Accepts = Callable[[str, Credentials], Awaitable[bool]]
"""Whether the controller at an address lets somebody with these credentials in; raises when it does not answer."""


def login_checks(tls: Tls) -> Mapping[str, Accepts]:
    """How to try a login, by the scheme of the address."""

    async def redfish(address: str, credentials: Credentials) -> bool:
        settings = RedfishSettings(wrong_passwords=1, quick=5.0)
        async with RedfishClient(credentials, settings=settings, tls=tls) as client:
            bmc = client.bmc(address)
            try:
                await client.get(address, f"{ROOT}/Managers")
            except DeviceError:
                if bmc.refused:
                    return False
                if not bmc.token:
                    raise
            return True

    async def ipmi(address: str, credentials: Credentials) -> bool:
        client = IpmiClient(lambda _: credentials)
        try:
            async with client.session(address):
                return True
        except WrongPassword:
            return False
        finally:
            await client.close()

    return {"http": redfish, "https": redfish, "ipmi": ipmi}
