"""The layers as the daemon makes them, unable to reach anything but simulated controllers on loopback.

What a fuzzer makes up for an address, a registry, a webhook or a password must not leave this machine. Nodes boot from
addresses of 127/8; nobody hands those out.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

import aiohttp

from strata.api.nginx import free_port
from strata.core.errors import DeviceError, Unavailable
from strata.daemon.address import front_url, signing_key
from strata.fleet.access.sealing import Seal
from strata.fleet.fleet import Fleet
from strata.fleet.peers.open import open_peers
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.endpoint import Target
from strata.hardware.credentials.rotation import Accepts
from strata.hardware.credentials.service import BmcCredentialService
from strata.hardware.discovery import discover, sweep
from strata.hardware.events.hub import EventHub
from strata.hardware.layer import Reach, open_hardware
from strata.hardware.settings import HardwareSettings
from strata.jobs.accounts import LocalAccounts
from strata.platform.config.git import Mirror
from strata.platform.layer import open_platform
from strata.power.layer import open_power
from strata.provisioning.boot import open as boot
from strata.provisioning.identity.records import PREFIX as BOOTS
from strata.provisioning.images import registry
from strata.provisioning.images.shelf import Shelf
from strata.provisioning.layer import open_provisioning
from strata.rooms import open_services
from strata.schedulers.runner import Account

_REAL = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
ANN = Account(name=_REAL.pw_name, uid=_REAL.pw_uid, gid=_REAL.pw_gid, home="/nonexistent", shell="/bin/sh")
"""The only account that jobs may run as."""


class _OneHost(RedfishClient):
    """Knows no controller that is not below ``server``."""

    server = ""

    def target(self, address: str) -> Target:
        if not address.startswith(f"{self.server}/"):
            raise DeviceError("nobody answers", node=address[:256])
        return super().target(address)


class _Redfish(Bmcs):
    """Looks at the address before anything is opened: also of what speaks another protocol."""

    def open(self, address: str) -> Any:
        self.redfish.target(address)
        return super().open(address)


class LoopbackReach(Reach):
    """Reaches the simulated controllers at ``server`` and nobody else."""

    def __init__(self, fleet: Fleet, server: str) -> None:
        super().__init__(fleet.section(HardwareSettings), fleet.of(Seal), fleet.store, fleet.ledger)
        client = _OneHost(self._login, settings=RedfishSettings(timeout=2.0), tls=self.tls)
        client.server = server
        self.bmcs = _Redfish(client)
        self.dialects = {}


class _NoHttp:
    """A session in which nobody can be reached."""

    def post(self, url: str, **_: object) -> Any:
        raise aiohttp.ClientConnectionError("nobody can be reached here")

    async def close(self) -> None:
        """Nothing is open."""


def _near(accepts: Accepts, reach: Reach) -> Accepts:
    async def let_in(address: str, credentials: Credentials) -> bool:
        reach.bmcs.open(address)
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


async def _nobody_found(*_: object, **__: object) -> list[str]:
    return []


async def _unsettled(*_: object, **__: object) -> str:
    return ""


async def _no_repository(mirror: Mirror, url: str, branch: str) -> str:
    raise Unavailable("no repository can be reached here", where=url)


def write_networks(directory: Path) -> Path:
    """A description of the boot network on loopback."""
    file = directory / "networks.yaml"
    subnet = "{network: 127.0.0.0/8, interface: lo, server: 127.0.0.1, range: 127.1.0.100-127.1.0.250}"
    file.write_text(f"boot_port: {free_port('127.0.0.1')}\nunknown: discover\nsubnets: [{subnet}]\n")
    return file


async def loopback_hardware(fleet: Fleet, server: str) -> None:
    """The hardware layer on ``fleet``, with the simulated BMCs at ``server``."""
    reach = LoopbackReach(fleet, server)
    await open_hardware(fleet, reach)
    rotation = fleet.of(BmcCredentialService)._rotation
    rotation._accepts = {"http": _near(rotation._accepts["http"], reach)}


@asynccontextmanager
async def loopback_layers(fleet: Fleet, server: str) -> AsyncIterator[None]:
    """The hardware, provisioning and power layers and the platform's rooms on ``fleet``, with the simulated BMCs at
    ``server``; it runs then."""
    settings = fleet.settings
    with (
        mock.patch.object(boot, "DhcpService", _NoDhcp),
        mock.patch.object(registry, "pull", _near_registries(registry.pull)),
        mock.patch.object(Mirror, "fetch", _no_repository),
        mock.patch.object(discover, "scan", _nobody_found),
        mock.patch.object(discover, "search", _nobody_found),
        mock.patch.object(sweep, "settle", _unsettled),
    ):
        await open_peers(fleet, front_url(settings), signing_key(settings))
        await loopback_hardware(fleet, server)
        fleet.edits.kept_by_name += (BOOTS,)
        await open_provisioning(fleet)
        await open_power(fleet)
        await open_platform(fleet)
        await open_services(fleet, "platform")
        # Nobody who asks has an account: what a fuzzer makes up is not run.
        fleet.put(LocalAccounts({}, 1000, look_up={ANN.name: ANN}.get, own=0))
        await open_services(fleet, "jobs")
        await fleet.start()
        hub = fleet.of(EventHub)
        assert hub.webhooks._http is not None
        await hub.webhooks._http.close()
        hub.webhooks._http = cast("Any", _NoHttp())
        fleet.edits.known = {}  # simulated nodes run whatever name they are given
        yield
