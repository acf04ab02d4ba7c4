"""The Redfish service as clients find it: nginx with TLS before the real API, a real controller with simulated nodes,
and a hardware layer in memory. Programs are run against it as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx

from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.redfish.resources.push import EventPush
from strata.api.server import ApiServer
from strata.api.services import FrontSecret
from strata.daemon.settings import Settings
from strata.fleet.access.accounts import Accounts
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.records import TokenRequest
from strata.fleet.access.sealing import Seal
from strata.fleet.access.sessions import Sessions
from strata.fleet.controller.controller import Controller
from strata.fleet.metrics import Metrics
from strata.fleet.selectors.language import parse
from strata.fleet.settings import LeadershipSettings, StoreSettings
from strata.hardware.alerts.service import AlertService
from strata.store.open import open_store
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_groups, simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.fake_machine import Ground, fake_machine, furnish
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet, api_services

SCHEMAS = Path(__file__).resolve().parents[3] / "shared" / "redfish" / "csdl"
"""The schemas of the standard, where this machine has them."""


CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The environment's certificate authorities go before those that a client is told to use."""


_COLOURS = re.compile(r"\x1b\[\d+m")


class Ran(NamedTuple):
    """What a program did."""

    code: int
    out: str


class Reach:
    """Where a service is, an administrator of it, and a directory for what clients leave behind."""

    def __init__(self, url: str, user: str, password: str, ca: Path, directory: Path) -> None:
        self.url = url
        self.user = user
        self.password = password
        self.ca = ca
        self.directory = directory


class RedfishSite(Reach):
    """A running service in this process."""

    def __init__(self, reach: Reach, service: OpenFleet, ground: Ground, nodes: list[str]) -> None:
        super().__init__(reach.url, reach.user, reach.password, reach.ca, reach.directory)
        self.service = service
        self.ground = ground
        self.nodes = nodes

    def client(self) -> httpx.AsyncClient:
        """An administrator's client."""
        context = ssl.create_default_context(cafile=self.ca)
        return httpx.AsyncClient(
            base_url=self.url, auth=(self.user, self.password), verify=context, trust_env=False, timeout=60
        )

    async def power_of(self, node: str) -> str:
        """What the controller believes of a node's power."""
        return (await self.service.node(LOCAL_ADMIN, node)).facts["power"].value

    async def until_power(self, node: str, power: str) -> None:
        """Until the engine has brought it about."""
        async with asyncio.timeout(60):
            while await self.power_of(node) != power:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def run(
    site: Reach, program: str, *arguments: str, limit: float = 120.0, until: re.Pattern[str] | None = None
) -> Ran:
    """Run a Redfish client that is installed next to this Python against the service, as its administrator. ``until``:
    end it when it has printed such a line."""
    who = ("-u", site.user, "-p", site.password, "-r", site.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(sys.executable).parent / program),
        *who,
        *arguments,
        cwd=site.directory,
        env={**{k: v for k, v in os.environ.items() if k not in CA_VARIABLES}, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(limit):
            async for line in process.stdout:
                said.append(_COLOURS.sub("", line.decode(errors="replace")))
                if until is not None and until.search(said[-1]):
                    process.kill()
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ran(code, "".join(said))


@contextlib.asynccontextmanager
async def redfish_site(directory: Path, count: int) -> AsyncIterator[RedfishSite]:
    """Serve ``count`` simulated nodes until the block ends."""
    settings = Settings(
        state_dir=directory,
        controller_id="test",
        store=StoreSettings(url="memory:"),
        leadership=LeadershipSettings(shards=2),
    )
    async with contextlib.AsyncExitStack() as parts:
        store = open_store(settings.store_url)
        parts.push_async_callback(store.close)
        drivers = sim_drivers(SimNodes(count, timing=Timing(scale=0)), time.monotonic)
        metrics = Metrics()
        controller = Controller(
            store,
            BUILT_IN,
            dict(drivers),
            name=settings.controller_id,
            history=settings.history_file,
            leadership=settings.leadership,
            metrics=metrics,
        )
        service = OpenFleet(controller, settings)
        authenticator = Authenticator(store, service.ledger)
        authority = Authority.open(settings.ca_dir)
        authority.renew_server(["localhost", "127.0.0.1"])
        logins = Logins(Accounts(store, service.ledger), Sessions(store, service.ledger), authenticator)
        event_push = EventPush(store, service.ledger, Seal([b"k" * 32]))
        rooms, ground = fake_machine(service)
        services = api_services(
            fleet=service,
            authenticator=authenticator,
            authority=authority,
            rooms={**rooms, Logins: logins, EventPush: event_push},
        )
        for part in (authenticator, logins, controller):
            await part.start()
            parts.push_async_callback(part.stop)
        await event_push.start(rooms[AlertService])
        parts.push_async_callback(event_push.stop)
        nodes = await _describe(service, count)
        furnish(ground, nodes)
        api = ApiServer(services, directory / "admin.sock", directory / "front.sock")
        await api.start()
        parts.push_async_callback(api.stop)
        door = FrontDoor(
            directory=directory / "nginx",
            host="127.0.0.1",
            port=free_port("127.0.0.1"),
            upstream=directory / "front.sock",
            secret=services.get(FrontSecret).value,
            certificate=authority.server_paths[0],
            key=authority.server_paths[1],
            ca=authority.certificate_path,
            workers=1,
            connections=512,
        )
        nginx = Nginx(door)
        await nginx.start()
        parts.push_async_callback(nginx.stop)
        parts.push_async_callback(service.operations.close)
        token = await authenticator.mint(LOCAL_ADMIN, TokenRequest(role="admin", ttl=3600))
        url, ca = f"https://127.0.0.1:{door.port}", authority.certificate_path
        yield RedfishSite(Reach(url, token.view.id, token.token, ca, directory), service, ground, nodes)


async def _describe(service: OpenFleet, count: int) -> list[str]:
    nodes = simulated_nodes(count)
    await service.edits.create_nodes(nodes, "test")
    await service.settled(await service.controller.store.revision())
    for group in simulated_groups(nodes):
        names = [nodes[uid - 1].name for first, last in group.members for uid in range(first, last + 1)]
        members = parse(",".join(names)).indices(service.registry, strict=False)
        await service.edits.put_group(group.name, members, "test", description=group.description)
    await service.settled(await service.controller.store.revision())
    return [node.name for node in nodes]
