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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import uvloop

from strata.api.nginx import free_port
from strata.api.redfish.push import EventPush
from strata.api.services import Limits, Services
from strata.api.web_account import web_account
from strata.control import logs
from strata.control.accounts import Accounts
from strata.control.auth import Authenticator
from strata.control.ca import Authority
from strata.control.controller import Controller
from strata.control.logins import Logins
from strata.control.metrics import Metrics
from strata.control.service import Service
from strata.control.service_capmc import CapmcService
from strata.control.sessions import Sessions
from strata.control.settings import Settings
from strata.core.errors import Unavailable
from strata.core.model import Layer, Model
from strata.daemon.doors import open_doors
from strata.daemon.drivers import open_drivers, site_models
from strata.daemon.ground import Ground
from strata.daemon.hardware import Reach, open_machine
from strata.daemon.namespace import enter
from strata.daemon.neighbours import open_neighbours
from strata.daemon.power import SitePowerDriver, open_power, open_series
from strata.daemon.provisioning import open_provisioning
from strata.daemon.simulated import register_simulated
from strata.daemon.tasks import cancelled
from strata.daemon.upkeep import forgetting, start_upkeep
from strata.hardware.events.site import Site
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.power.capmc.rules_file import read_rules
from strata.power.collector_nodes import NodeSource
from strata.power.columns import PowerColumns
from strata.power.inband import Inband, VirtualNodes
from strata.power.inband_agents import AgentNodes
from strata.power.model import LAYER as POWER
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.audit import Ledger
from strata.store.open import open_store

log = logging.getLogger(__name__)

LAYERS: dict[str, Layer] = {"hardware": HARDWARE, "provisioning": PROVISIONING, "platform": PLATFORM}
"""The layers that Strata brings itself, lowest first."""

BUILT_IN: tuple[Layer, ...] = tuple(LAYERS.values())


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


async def _serve(settings: Settings, way_out: Sequence[str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings, way_out) as service:
        extra = {"layers": list(settings.layers), "controller": settings.controller_id}
        log.info("serving", extra={**extra, "socket": str(settings.admin_socket)})
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
    if settings.listen.tls:
        await asyncio.to_thread(web_account, settings.listen.account)  # made now, if it is missing
    built_in = tuple(LAYERS[name] for name in settings.layers)
    layers, specs = site_models(settings.models, built_in)
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
        drivers = {room.name: room, **await open_drivers(settings, specs, reach, ground, parts)}
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
        trying = asyncio.create_task(service.writable.run(), name="store writable")
        parts.push_async_callback(cancelled, trying)
        authenticator = Authenticator(store, service.ledger)
        logins = Logins(Accounts(store, service.ledger), Sessions(store, service.ledger), authenticator)
        event_push = EventPush(store, service.ledger, reach.seal)
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
        await register_simulated(service, settings)
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
            rules=read_rules(settings.power.rules) if settings.power.rules else None,
            inband=inband,
        )
        await services.capmc.start()
        parts.push_async_callback(services.capmc.stop)
        await event_push.start(services.machine.alerts)
        parts.push_async_callback(event_push.stop)
        await open_doors(settings, services, authority, ground, neighbours.peers.me.url, parts)
        if settings.listen.tls:
            neighbours.peers.introduce()
        parts.push_async_callback(service.jobs_.close)
        start_upkeep(service, settings, [hardware.prune, forgetting(series)], parts)
        yield service


def _reported(controllers: NodeSource) -> Callable[[Site, Mapping[str, object]], None]:
    """Takes the metric reports that controllers send by themselves."""

    def reported(site: Site, report: Mapping[str, object]) -> None:
        controllers.reported([address for address, _ in site.nodes], report)

    return reported
