"""The Redfish service as clients find it: nginx with TLS before the API of a controller with simulated nodes and BMCs.
Programs are run against it as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
from machine_support import MachineService, machine_service
from nginx_site import Site, started

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.records import TokenRequest
from strata.virtual.fleet.names import simulated_nodes

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

    def __init__(self, reach: Reach, machine: MachineService) -> None:
        super().__init__(reach.url, reach.user, reach.password, reach.ca, reach.directory)
        self.machine = machine
        self.nodes = machine.nodes

    def client(self) -> httpx.AsyncClient:
        """An administrator's client."""
        context = ssl.create_default_context(cafile=self.ca)
        return httpx.AsyncClient(
            base_url=self.url, auth=(self.user, self.password), verify=context, trust_env=False, timeout=60
        )

    async def power_of(self, node: str) -> str:
        """What the controller believes of a node's power."""
        return (await self.machine.service.node(LOCAL_ADMIN, node)).facts["power"].value

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
    places = {node.name: node.location for node in simulated_nodes(count)}
    async with machine_service(directory, places, authority=True) as machine:
        await machine.furnish()
        async with started(Site(directory, machine)) as site:
            token = await machine.auth.mint(LOCAL_ADMIN, TokenRequest(role="admin", ttl=3600))
            url = f"https://127.0.0.1:{site.door.port}"
            reach = Reach(url, token.view.id, token.token, site.ca.certificate_path, directory)
            yield RedfishSite(reach, machine)
