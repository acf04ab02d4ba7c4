"""A running fleet with the real nginx in front of it, and clients that come in from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from api_support import Service, open_service
from real_service import real_service

from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.server import ApiServer
from strata.api.services import FrontSecret, Limits
from strata.core.host.private_file import write_private
from strata.fleet.access.authority import Authority, Issued

SOURCES = [str(folder) for folder in Path(__file__).parents[:2]]
"""Where a process of its own finds what these tests use."""


async def until(condition: Callable[[], bool], limit: float = 60) -> None:
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def gone(group: int) -> bool:
    """Whether no process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


class Site:
    """A service with its front door, and clients that come in from outside."""

    def __init__(self, directory: Path, service: Service, **door: Any) -> None:
        """``door``: more of ``FrontDoor``."""
        self.directory = directory
        self.service = service
        self.ca: Authority = self.service.services.get(Authority)
        self.ca.renew_server(["localhost", "127.0.0.1"])
        self.api = ApiServer(self.service.services, directory / "admin.sock", directory / "web" / "front.sock")
        self.door = FrontDoor(
            directory=directory / "nginx",
            host="127.0.0.1",
            port=free_port("127.0.0.1"),
            upstream=directory / "web" / "front.sock",
            secret=self.service.services.get(FrontSecret).value,
            certificate=self.ca.server_paths[0],
            key=self.ca.server_paths[1],
            ca=self.ca.certificate_path,
            workers=1,
            connections=512,
            **door,
        )
        self.nginx = Nginx(self.door)

    def client(self, issued: Issued | None = None, **headers: str) -> httpx.AsyncClient:
        context = ssl.create_default_context(cadata=self.ca.pem.decode())
        if issued is not None:
            chain = self.directory / f"{issued.serial}.pem"
            write_private(chain, issued.certificate + issued.key)
            context.load_cert_chain(chain)
        return httpx.AsyncClient(
            verify=context, base_url=f"https://127.0.0.1:{self.door.port}", headers=headers, trust_env=False
        )


@contextlib.asynccontextmanager
async def made_site(
    directory: Path, *, layers: bool = False, limits: Limits | None = None, **door: Any
) -> AsyncIterator[Site]:
    """A fleet, with all its layers or with none; its front door is closed yet."""
    fleet = real_service(directory, limits=limits) if layers else open_service(directory, limits=limits, authority=True)
    async with fleet as service:
        yield Site(directory, service, **door)


@contextlib.asynccontextmanager
async def started(site: Site) -> AsyncIterator[Site]:
    """Its door is open for as long as the block lasts."""
    await site.api.start()
    await site.nginx.start()
    try:
        yield site
    finally:
        await site.nginx.stop()
        await site.api.stop()


@contextlib.asynccontextmanager
async def opened_site(directory: Path, **more: Any) -> AsyncIterator[Site]:
    """``made_site`` with its door open."""
    async with made_site(directory, **more) as site, started(site):
        yield site
