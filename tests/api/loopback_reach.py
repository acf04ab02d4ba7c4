"""The layers as the daemon makes them, unable to reach anything but simulated controllers on loopback.

What a fuzzer makes up for an address, a registry, a webhook or a password must not leave this machine. Nodes boot from
addresses of 127/8; nobody hands those out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

import aiohttp

from strata.api.nginx import free_port
from strata.api.services import Services
from strata.control.service import Service
from strata.control.service_credentials import BmcCredentialService
from strata.control.settings import Settings
from strata.core.errors import DeviceError, Unavailable
from strata.daemon import boot
from strata.daemon.ground import Ground
from strata.daemon.hardware import Reach, open_machine
from strata.daemon.neighbours import open_neighbours
from strata.daemon.power import open_power, open_series
from strata.daemon.provisioning import open_provisioning
from strata.hardware.access.login_check import Accepts
from strata.hardware.controllers import Controllers
from strata.hardware.events.hub import EventHub
from strata.hardware.ipmi.controller import IpmiController
from strata.hardware.redfish.bmc import Target
from strata.hardware.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.power.columns import PowerColumns
from strata.provisioning.images import registry
from strata.provisioning.images.shelf import Shelf
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


class _NoDhcp:
    """Hands no addresses out: that needs a network of its own."""

    def __init__(self, *_: object, **__: object) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def _near_registries(pull: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    async def pulled(shelf: Shelf, text: str, *more: Any, **options: Any) -> str:
        if not text.startswith("127.0.0.1:"):
            raise Unavailable("no registry can be reached here", where="registry")
        return await pull(shelf, text, *more, **options)

    return pulled


def write_networks(directory: Path) -> Path:
    """A description of the boot network on loopback."""
    file = directory / "networks.yaml"
    subnet = "{network: 127.0.0.0/8, interface: lo, server: 127.0.0.1, range: 127.1.0.100-127.1.0.250}"
    file.write_text(f"boot_port: {free_port('127.0.0.1')}\nunknown: discover\nsubnets: [{subnet}]\n")
    return file


@asynccontextmanager
async def loopback_layers(
    service: Service, services: Services, settings: Settings, server: str
) -> AsyncIterator[tuple[EventHub, Ground]]:
    """The hardware, provisioning and power layers, with the simulated controllers at ``server``; in ``services``."""
    store, ledger, metrics = service.controller.store, service.ledger, services.metrics
    async with AsyncExitStack() as parts:
        reach = LoopbackReach(settings, store, ledger, server)
        await reach.start()
        parts.push_async_callback(reach.stop)
        opened = await open_machine(service, settings, reach, parts)
        services.machine, hub = opened.machine, opened.hub
        assert hub.webhooks._http is not None
        await hub.webhooks._http.close()
        hub.webhooks._http = cast("Any", _NoHttp())
        rotation = cast("BmcCredentialService", opened.machine.credentials)._rotation
        rotation._accepts = {"http": _near(rotation._accepts["http"], reach)}
        parts.enter_context(mock.patch.object(boot, "DhcpService", _NoDhcp))
        parts.enter_context(mock.patch.object(registry, "pull", _near_registries(registry.pull)))
        assert services.authority is not None
        ground = Ground(settings, store, ledger, reach, services.authority)
        await ground.start(parts)
        neighbours = await open_neighbours(
            service.controller,
            settings,
            services.authority,
            ground.networks,
            ground.signer,
            reach.seal,
            opened.hub.take,
            parts,
        )
        services.peers = neighbours.door
        await open_provisioning(service, services, settings, ground, opened, neighbours, parts)
        service.edits.known = {}  # simulated nodes run whatever name they are given
        series = await open_series(settings, parts)
        power = await open_power(service, settings, reach, series, PowerColumns(), metrics, parts)
        services.power = power.power
        yield hub, ground
