"""The doors of one controller: the local socket, and nginx in front of the other one with a certificate that is kept
good."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from strata.api.nginx import Nginx
from strata.api.nginx_config import FrontDoor
from strata.api.server import ApiServer
from strata.api.services import Services
from strata.control.ca import Authority
from strata.control.settings import Settings
from strata.daemon.boot import boot_files
from strata.daemon.ground import Ground
from strata.daemon.holding import connections, holdable
from strata.daemon.neighbours import reachable
from strata.daemon.tasks import cancelled

log = logging.getLogger(__name__)

URL_FILE = "url"
"""In the state directory: where the front door is, while it is open."""


async def open_doors(
    settings: Settings,
    services: Services,
    authority: Authority,
    ground: Ground | None,
    public_url: str,
    parts: AsyncExitStack,
) -> None:
    """The local socket, and nginx in front of the other one."""
    listen = settings.listen
    server = ApiServer(
        services,
        settings.admin_socket,
        settings.front_socket if listen.tls else None,
        account=listen.account,
    )
    await server.start()
    parts.push_async_callback(server.stop)
    url = settings.state_dir / URL_FILE
    url.unlink(missing_ok=True)  # of one before us that was killed
    if not listen.tls:
        return
    networks = ground.networks if ground is not None else None
    servers = [str(subnet.server) for subnet in networks.subnets] if networks is not None else []
    names = dict.fromkeys(("localhost", socket.gethostname(), listen.host, "127.0.0.1", *servers, *listen.names))
    names[urlsplit(public_url).hostname or "localhost"] = None
    wanted = [name for name in names if name not in ("0.0.0.0", "::", "*")]
    authority.renew_server(wanted)
    certificate, key = authority.server_paths
    door = FrontDoor(
        directory=settings.nginx_dir,
        host=listen.host,
        port=listen.port,
        upstream=settings.front_socket,
        certificate=certificate,
        key=key,
        ca=authority.certificate_path,
        account=listen.account,
        secret=services.front_secret,
        body=listen.max_body,
        connections=connections(settings.provisioning.hold_most or holdable() if ground is not None else 0),
        boot=boot_files(settings, networks),
        media=settings.media_dir if networks is not None else None,
        images=settings.images_dir if ground is not None else None,
    )
    nginx = Nginx(door)
    await nginx.start()
    parts.push_async_callback(nginx.stop)
    parts.callback(server.quiet)  # before nginx finishes what is under way
    renewal = asyncio.create_task(_renew(authority, wanted, nginx), name="certificate renewal")
    parts.push_async_callback(cancelled, renewal)
    url.write_text(f"https://{reachable(listen)}:{door.port}\n", encoding="utf-8")
    parts.callback(url.unlink, missing_ok=True)
    log.info("front door open", extra={"host": listen.host, "port": door.port})


async def _renew(authority: Authority, names: list[str], nginx: Nginx) -> None:
    """See once an hour that the server's certificate is good for a while yet."""
    while True:
        await asyncio.sleep(3600)
        if authority.renew_server(names):
            await nginx.reload()
            log.info("server certificate renewed")
