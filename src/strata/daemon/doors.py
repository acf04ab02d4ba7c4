"""The doors of one controller: the local socket, and nginx in front of the other one with a certificate that is kept
good."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from strata.api.nginx import Nginx
from strata.api.nginx_config import FrontDoor
from strata.api.raw_body import Bodies
from strata.api.redfish.resources.push import EventPush
from strata.api.server import ApiServer
from strata.api.services import FrontSecret, Limits, Watchers
from strata.daemon.address import reachable
from strata.dashboard.files import published
from strata.fleet.access.authority import Authority
from strata.fleet.access.sealing import Seal
from strata.fleet.fleet import Fleet
from strata.fleet.peers.peers import Peers
from strata.fleet.tasks import cancelled
from strata.hardware.alerts.service import AlertService
from strata.hardware.events.inbox import BODY_MOST
from strata.provisioning.agents.capacity import connections, holdable
from strata.provisioning.agents.door import EXCHANGE_MOST, AgentDoor
from strata.provisioning.boot.open import boot_files
from strata.provisioning.bootnets.service import BootNetworks
from strata.provisioning.networks import Networks
from strata.provisioning.settings import ProvisioningSettings, images_dir, media_dir

log = logging.getLogger(__name__)

URL_FILE = "url"
"""In the state directory: where the front door is, while it is open."""


def open_faces(fleet: Fleet) -> None:
    """What the API itself answers for."""
    limits = fleet.put(Limits(body=fleet.settings.listen.max_body))
    fleet.put(Bodies(limits.bodies))
    fleet.put(Watchers(limits=limits, metrics=fleet.controller.metrics))
    fleet.put(FrontSecret())
    push = fleet.put(EventPush(fleet.store, fleet.ledger, fleet.of(Seal)))

    async def begin() -> None:
        await push.start(fleet.of(AlertService))
        fleet.parts.push_async_callback(push.stop)

    fleet.begin(begin)


async def open_doors(fleet: Fleet) -> None:
    """The local socket, and nginx in front of the other one. Others hear of this controller once it can be reached."""
    settings, authority, parts = fleet.settings, fleet.of(Authority), fleet.parts
    listen = settings.listen
    server = ApiServer(
        fleet.services,
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
    hold_most = fleet.section(ProvisioningSettings).hold_most
    networks, agents = fleet.services.find(Networks), fleet.services.find(AgentDoor)

    def names() -> list[str]:
        servers = [str(subnet.server) for subnet in networks.subnets] if networks is not None else []
        found = dict.fromkeys(("localhost", socket.gethostname(), listen.host, "127.0.0.1", *servers, *listen.names))
        found[urlsplit(fleet.of(Peers).me.url).hostname or "localhost"] = None
        return [name for name in found if name not in ("0.0.0.0", "::", "*")]

    authority.renew_server(names())
    certificate, key = authority.server_paths
    door = FrontDoor(
        directory=settings.state_dir / "nginx",
        host=listen.host,
        port=listen.port,
        upstream=settings.front_socket,
        certificate=certificate,
        key=key,
        ca=authority.certificate_path,
        account=listen.account,
        secret=fleet.of(FrontSecret).value,
        body=listen.max_body,
        connections=connections(hold_most or holdable() if agents is not None else 0),
        boot=boot_files(settings.state_dir, networks),
        inbox_body=BODY_MOST,
        agent_body=EXCHANGE_MOST,
        media=media_dir(settings.state_dir) if networks is not None else None,
        images=images_dir(settings.state_dir) if agents is not None else None,
        dashboard=published(settings.state_dir / "dashboard"),
    )
    nginx = Nginx(door)
    await nginx.start()
    parts.push_async_callback(nginx.stop)

    async def follow() -> None:
        authority.renew_server(names())
        await nginx.reload(boot_files(settings.state_dir, networks))

    if (declared := fleet.services.find(BootNetworks)) is not None:
        declared.followers.append(follow)
    parts.callback(server.quiet)  # before nginx finishes what is under way
    renewal = asyncio.create_task(_renew(authority, names, nginx), name="certificate renewal")
    parts.push_async_callback(cancelled, renewal)
    url.write_text(f"https://{reachable(listen)}:{door.port}\n", encoding="utf-8")
    parts.callback(url.unlink, missing_ok=True)
    fleet.of(Peers).introduce()
    log.info("front door open", extra={"host": listen.host, "port": door.port})


async def _renew(authority: Authority, names: Callable[[], list[str]], nginx: Nginx) -> None:
    """See once an hour that the server's certificate is good for a while yet."""
    while True:
        await asyncio.sleep(3600)
        if authority.renew_server(names()):
            await nginx.reload()
            log.info("server certificate renewed")
