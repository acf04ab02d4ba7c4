"""The hardware layer as the daemon makes it, unable to reach anything but simulated controllers on loopback.

What a fuzzer makes up for an address, a webhook or a password must not leave this machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import aiohttp

from strata.api.services import Power
from strata.control.machine import Machine
from strata.control.metrics import Metrics
from strata.control.service import Service
from strata.control.service_alerts import AlertService
from strata.control.service_credentials import BmcCredentialService
from strata.control.settings import Settings
from strata.core.errors import DeviceError
from strata.daemon.hardware import Reach, open_machine
from strata.daemon.power import open_power, open_series
from strata.hardware.access.login_check import Accepts
from strata.hardware.controllers import Controllers
from strata.hardware.events.hub import EventHub
from strata.hardware.ipmi.controller import IpmiController
from strata.hardware.redfish.bmc import Target
from strata.hardware.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.power.columns import PowerColumns
from strata.store.audit import Ledger
from strata.store.protocol import Store


class _OneHost(RedfishClient):
    """Knows no controller that is not below ``server``."""

    server = ""

    def target(self, address: str) -> Target:
        if not address.startswith(f"{self.server}/"):
            raise DeviceError("nobody answers", node=address[:256])
        return super().target(address)


class _Redfish(Controllers):
    """Looks at the address before anything is opened: also of what speaks another protocol."""

    def open(self, address: str) -> Any:
        self.redfish.target(address)
        return super().open(address)


class LoopbackReach(Reach):
    """Reaches the simulated controllers at ``server`` and nobody else."""

    def __init__(self, settings: Settings, store: Store, ledger: Ledger, server: str) -> None:
        super().__init__(settings, store, ledger)
        client = _OneHost(self._login, settings=RedfishSettings(timeout=2.0), tls=self.tls)
        client.server = server
        self.controllers = _Redfish(client)

    def open_ipmi(self, address: str) -> IpmiController:
        raise DeviceError("nobody answers", node=address[:256])


class _NoHttp:
    """A session in which nobody can be reached."""

    def post(self, url: str, **_: object) -> Any:
        raise aiohttp.ClientConnectionError("nobody can be reached here")

    async def close(self) -> None:
        """Nothing is open."""


def _near(accepts: Accepts, reach: Reach) -> Accepts:
    async def let_in(address: str, credentials: Credentials) -> bool:
        reach.controllers.open(address)
        return await accepts(address, credentials)

    return let_in


@asynccontextmanager
async def loopback_machine(
    service: Service, settings: Settings, server: str, metrics: Metrics
) -> AsyncIterator[tuple[Machine, EventHub, Power]]:
    """The hardware and power layers over the simulated controllers at ``server``."""
    async with AsyncExitStack() as parts:
        reach = LoopbackReach(settings, service.controller.store, service.ledger, server)
        await reach.start()
        parts.push_async_callback(reach.stop)
        machine = (await open_machine(service, settings, reach, parts)).machine
        hub = cast("AlertService", machine.alerts)._hub
        assert hub.webhooks._http is not None
        await hub.webhooks._http.close()
        hub.webhooks._http = cast("Any", _NoHttp())
        rotation = cast("BmcCredentialService", machine.credentials)._rotation
        rotation._accepts = {"http": _near(rotation._accepts["http"], reach)}
        series = await open_series(settings, parts)
        power = await open_power(service, settings, reach, series, PowerColumns(), metrics, parts)
        yield machine, hub, power.power
