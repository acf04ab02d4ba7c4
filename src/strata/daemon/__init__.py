"""One running controller: puts the layers together, serves the API, and stops cleanly.

The only place that knows every part. ``strata serve`` calls ``run``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from strata.api.nginx import Nginx, free_port, worker_account
from strata.api.nginx_config import FrontDoor
from strata.api.redfish.push import EventPush
from strata.api.server import ApiServer
from strata.api.services import Limits, Services
from strata.control import logs
from strata.control.accounts import Accounts
from strata.control.auth import Authenticator
from strata.control.ca import Authority
from strata.control.controller import Controller
from strata.control.exec_driver import ExecDriver
from strata.control.logins import Logins
from strata.control.metrics import Metrics
from strata.control.no_workload import NoWorkload
from strata.control.service import Service
from strata.control.service_capmc import CapmcService
from strata.control.sessions import Sessions
from strata.control.settings import Settings
from strata.control.told_driver import ToldDriver
from strata.core.driver import Driver
from strata.core.errors import StrataError, Unavailable
from strata.core.model import Layer, Model
from strata.core.modelfile import ExecSpec, parse
from strata.daemon.hardware import Reach, open_machine
from strata.daemon.namespace import enter
from strata.daemon.neighbours import open_neighbours, reachable
from strata.daemon.power import SitePowerDriver, open_power, open_series
from strata.daemon.provisioning import Ground, boot_files, open_provisioning
from strata.hardware.bmc_driver import BmcDriver
from strata.hardware.events.site import Site
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.power.collector_nodes import NodeSource
from strata.power.columns import PowerColumns
from strata.power.inband import Inband, VirtualNodes
from strata.power.inband_agents import AgentNodes
from strata.power.model import LAYER as POWER
from strata.power.series import Series
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.audit import Ledger
from strata.store.open import open_store
from strata.store.protocol import Store
from strata.virtual.agent_driver import AgentDriver
from strata.virtual.bmc_server import SIMULATED_ACCOUNT
from strata.virtual.fleet import simulated_fleet, simulated_groups, simulated_nodes

log = logging.getLogger(__name__)

LAYERS: dict[str, Layer] = {"hardware": HARDWARE, "provisioning": PROVISIONING, "platform": PLATFORM}
"""The layers that Strata brings itself, lowest first."""

BUILT_IN: tuple[Layer, ...] = tuple(LAYERS.values())

URL_FILE = "url"
"""In the state directory: where the front door is, while it is open."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings.check()
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    logs.setup(level=settings.logs.level, form=settings.logs.format)
    _many_files()
    with _alone(settings.state_dir):
        way_out = enter(settings.provisioning.namespace)
        uvloop.run(_serve(settings, way_out))


def _many_files() -> None:
    """A connection is a file, and a large fleet has many: use all that we are allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(settings: Settings, way_out: Sequence[str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings, way_out) as service:
        log.info("serving", extra={"socket": str(settings.admin_socket), "controller": settings.controller_id})
        broken = service.controller.broken
        waits = [asyncio.create_task(event.wait()) for event in (stop, broken)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        log.info("stopping")
    if broken.is_set():
        raise Unavailable(service.controller.trouble, hint="start it again; the log has the traceback")


@contextlib.asynccontextmanager
async def running(settings: Settings, way_out: Sequence[str] = ()) -> AsyncIterator[Service]:
    """A whole controller, for as long as the block lasts. ``way_out``: stands before commands that need a network."""
    if settings.listen.tls and not settings.listen.port:
        # Known before anybody is told of it.
        listen = msgspec.structs.replace(settings.listen, port=free_port(settings.listen.host))
        settings = msgspec.structs.replace(settings, listen=listen)
    built_in = tuple(LAYERS[name] for name in settings.layers)
    layers, specs = _site(settings.models, built_in)
    model = Model.of(*built_in, POWER, *layers)
    async with contextlib.AsyncExitStack() as parts:
        store = open_store(settings.store_url)
        parts.push_async_callback(store.close)
        reach = Reach(settings, store, Ledger(store))
        await reach.start()
        parts.push_async_callback(reach.stop)
        room = SitePowerDriver()
        authority = Authority.open(settings.ca_dir)
        ground: Ground | None = None
        if "provisioning" in settings.layers and not settings.simulated.address:
            ground = Ground(settings, store, Ledger(store), reach, authority, way_out)
            await ground.start(parts)
        drivers = {room.name: room, **await _drivers(settings, specs, reach, ground, parts)}
        metrics = Metrics()
        controller = Controller(
            store,
            model,
            drivers,
            name=settings.controller_id,
            history=settings.history_file,
            engine=settings.engine,
            leadership=settings.leadership,
            metrics=metrics,
        )
        service = Service(controller, settings)
        authenticator = Authenticator(store, service.ledger)
        logins = Logins(Accounts(store, service.ledger), Sessions(store, service.ledger), authenticator)
        event_push = EventPush(store, service.ledger)
        services = Services(
            facade=service,
            authenticator=authenticator,
            metrics=metrics,
            logins=logins,
            event_push=event_push,
            authority=authority,
            limits=Limits(body=settings.listen.max_body),
        )
        await authenticator.start()
        parts.push_async_callback(authenticator.stop)
        await logins.start()
        parts.push_async_callback(logins.stop)
        await controller.start()
        parts.push_async_callback(controller.stop)
        await _simulated_fleet(service, settings)
        hardware = await open_machine(service, settings, reach, parts)
        services.machine = hardware.machine
        neighbours = await open_neighbours(
            controller,
            settings,
            authority,
            ground.networks if ground is not None else None,
            ground.signer if ground is not None else None,
            reach.seal,
            hardware.hub.take,
            parts,
        )
        services.peers = neighbours.door
        if ground is not None:
            await open_provisioning(service, services, settings, ground, hardware, neighbours, parts)
        series, columns = await open_series(settings, parts), PowerColumns()
        power = await open_power(service, settings, reach, series, columns, metrics, parts)
        services.power, room.site = power.power, power.site
        hardware.hub.reported = _reported(power.controllers)
        inband: Inband | None = None
        if settings.simulated.address:
            inband = VirtualNodes(settings.state_dir / "inband")
        elif ground is not None:
            inband = AgentNodes(ground.agents.limits)
            ground.measured = power.agents.take
        services.capmc = CapmcService(
            service,
            hardware.machine,
            columns,
            power.sender,
            books=power.site,
            parameters=power.site.parameters,
            series=series,
            ran=services.power.jobs.ran,
            inband=inband,
        )
        await event_push.start(services.machine.alerts)
        parts.push_async_callback(event_push.stop)
        await _open_doors(settings, services, authority, ground, neighbours.peers.me.url, parts)
        if settings.listen.tls:
            neighbours.peers.introduce()
        parts.push_async_callback(service.jobs_.close)
        upkeep = asyncio.create_task(_upkeep(service, settings, [hardware.prune, _forgetting(series)]), name="upkeep")
        parts.push_async_callback(_cancelled, upkeep)
        yield service


async def _drivers(
    settings: Settings, specs: list[ExecSpec], reach: Reach, ground: Ground | None, parts: contextlib.AsyncExitStack
) -> dict[str, Driver]:
    """Nodes' controllers and agents (the simulated fleet's where there is one), and the site's own drivers."""
    bmc = BmcDriver(reach.controllers)
    parts.push_async_callback(bmc.close)
    drivers: dict[str, Driver] = {"bmc": bmc}
    if ground is not None:
        drivers["bmc"] = ToldDriver(bmc, dark=ground.agents.driver.lost_power, lit=ground.agents.driver.got_power)
        drivers["node"] = ground.agents.driver
    if "platform" not in settings.layers:
        drivers[NoWorkload.name] = NoWorkload()
    if settings.simulated.address:
        for name in ("node", "workload"):
            agent = AgentDriver(name, settings.simulated.address, SIMULATED_ACCOUNT)
            parts.push_async_callback(agent.close)
            drivers[name] = agent
    return drivers | {spec.name: ExecDriver(spec.name, spec.command, spec.timeout, spec.env) for spec in specs}


async def _open_doors(
    settings: Settings,
    services: Services,
    authority: Authority,
    ground: Ground | None,
    public_url: str,
    parts: contextlib.AsyncExitStack,
) -> None:
    """The local socket, and nginx in front of the other one."""
    listen = settings.listen
    account = worker_account(settings.state_dir) if listen.tls else None
    server = ApiServer(
        services,
        settings.admin_socket,
        settings.front_socket if listen.tls else None,
        front_user=(account.pw_uid, account.pw_gid) if account else None,
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
        user=account.pw_name if account else "",
        body=listen.max_body,
        boot=boot_files(settings, networks),
        media=settings.media_dir if networks is not None else None,
        images=settings.images_dir if ground is not None else None,
    )
    nginx = Nginx(door)
    await nginx.start()
    parts.push_async_callback(nginx.stop)
    parts.callback(server.quiet)  # before nginx finishes what is under way
    renewal = asyncio.create_task(_renew(authority, wanted, nginx), name="certificate renewal")
    parts.push_async_callback(_cancelled, renewal)
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


async def _simulated_fleet(service: Service, settings: Settings) -> None:
    """Register the simulated nodes, unless the store has nodes already."""
    count = settings.simulated.nodes
    if not count or len(service.registry):
        return
    made = simulated_fleet if settings.simulated.feeds else simulated_nodes
    nodes = made(count, bmc_base=settings.simulated.address)
    await service.edits.create_nodes(nodes, "strata")
    await service.settled(await service.controller.store.revision())
    for group in simulated_groups(nodes):
        # Uids were given by the store; the group is made of names.
        wanted = {nodes[uid - nodes[0].uid].name for first, last in group.members for uid in range(first, last + 1)}
        members = service.registry.select(",".join(sorted(wanted)))
        await service.edits.put_group(group.name, members, "strata", description=group.description)


Forget = Callable[[float], Awaitable[None]]
"""Forgets what is older than a time."""


def _reported(controllers: NodeSource) -> Callable[[Site, Mapping[str, object]], None]:
    """Takes the metric reports that controllers send by themselves."""

    def reported(site: Site, report: Mapping[str, object]) -> None:
        controllers.reported([address for address, _ in site.nodes], report)

    return reported


def _forgetting(series: Series) -> Forget:
    """Telemetry has retentions of its own, by how coarse it is."""

    async def forget(_: float) -> None:
        await series.prune(time.time())

    return forget


async def _upkeep(service: Service, settings: Settings, layers: Sequence[Forget]) -> None:
    """Take over the jobs of the dead; forget what is too old."""
    pruned = compacted = service.controller.clock.now()
    while True:
        await asyncio.sleep(5)
        now, wall = service.controller.clock.now(), service.controller.clock.wall()
        try:
            await service.jobs_.recover()
            if now - compacted > settings.store.compact_every:
                compacted = now
                await _compact(service.controller.store, settings.store.keep_revisions)
            if now - pruned > settings.retention.prune_every:
                pruned = now
                await service.jobs_.prune()
                living = service.registry.uids[service.registry.alive]
                await service.controller.chronicle.prune(wall - settings.retention.history, living)
                for forget in layers:
                    await forget(wall - settings.retention.history)
                if settings.retention.audit is not None:
                    await service.ledger.prune(wall - settings.retention.audit, "strata")
        except StrataError as error:
            log.warning("upkeep put off", extra={"error": str(error)})


async def _compact(store: Store, keep: int) -> None:
    oldest = await store.revision() - keep
    if oldest > 1:
        await store.compact(oldest)


def _site(paths: tuple[Path, ...], built_in: tuple[Layer, ...]) -> tuple[list[Layer], list[ExecSpec]]:
    """The site's own declarations and drivers."""
    layers: list[Layer] = []
    specs: list[ExecSpec] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        found = parse(text, source=str(path), layers=(*built_in, *layers), always_extends=True)
        layers.append(found.layer)
        specs += found.drivers
    return layers, specs


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One controller per state directory: the kernel lets the lock go when the process ends, however it ends."""
    lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Unavailable(
            "another controller runs in this state directory",
            where=str(directory),
            hint="stop it, or use another state directory",
        ) from None
    else:
        yield
    finally:
        os.close(lock)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
