"""The front door of a service that a test or a benchmark made: nginx with TLS, and certificates for callers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.server import ApiServer
from strata.api.services import FrontSecret
from strata.core.host.private_file import write_private
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import Role
from strata.fleet.services import Services


class OpenDoor:
    """Where it is, and how one gets in."""

    def __init__(self, directory: Path, authority: Authority, port: int) -> None:
        self.authority = authority
        self.url = f"https://localhost:{port}"
        self.ca = authority.certificate_path
        self._directory = directory

    def certificate(self, role: Role, scope: tuple[str, ...] = (), name: str = "scheduler") -> tuple[Path, Path]:
        """A certificate of that role and its key, as files."""
        issued = self.authority.issue(name, role, scope, 3600)
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        certificate.write_bytes(issued.certificate)
        write_private(key, issued.key)
        return certificate, key

    def capmc(self, role: Role | None, scope: tuple[str, ...] = ()) -> dict[str, str]:
        """What the ``capmc`` command finds in its environment; without a role it has no certificate."""
        found = {"OS_SERVICE_URL": self.url, "OS_CACERT": str(self.ca)}
        if role is not None:
            certificate, key = self.certificate(role, scope)
            found |= {"OS_CERT": str(certificate), "OS_KEY": str(key)}
        return found


@contextlib.asynccontextmanager
async def front_door(
    services: Services, directory: Path, *, body: int = 64 * 2**20, dashboard: Path | None = None
) -> AsyncIterator[OpenDoor]:
    """Open for as long as the block lasts. ``directory`` has a short name: sockets are in it."""
    server = ApiServer(services, directory / "admin.sock", directory / "web" / "front.sock")
    authority = Authority.open(directory / "ca")
    authority.renew_server(["localhost", "127.0.0.1"])
    certificate, key = authority.server_paths
    door = FrontDoor(
        directory=directory / "nginx",
        host="127.0.0.1",
        port=free_port("127.0.0.1"),
        upstream=directory / "web" / "front.sock",
        secret=services.get(FrontSecret).value,
        certificate=certificate,
        key=key,
        ca=authority.certificate_path,
        body=body,
        dashboard=dashboard,
    )
    nginx = Nginx(door)
    async with contextlib.AsyncExitStack() as parts:
        authenticator = services.get(Authenticator)
        await authenticator.start()
        parts.push_async_callback(authenticator.stop)
        await server.start()
        parts.push_async_callback(server.stop)
        await nginx.start()
        parts.push_async_callback(nginx.stop)
        yield OpenDoor(directory, authority, door.port)
