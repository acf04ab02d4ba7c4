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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import uvloop

from strata.api.nginx import free_port
from strata.api.web_account import web_account
from strata.core import logs
from strata.core.collecting import without_collecting
from strata.core.errors import Unavailable
from strata.core.model import Model
from strata.core.modelfile import ExecSpec, parse
from strata.daemon.address import front_url, signing_key
from strata.daemon.doors import open_doors, open_faces
from strata.daemon.layers import chosen
from strata.daemon.namespace import enter
from strata.daemon.reload import Reload
from strata.daemon.settings import Settings
from strata.daemon.simulated import open_simulated
from strata.daemon.upkeep import start_upkeep
from strata.fleet import files
from strata.fleet.access.authority import Authority
from strata.fleet.controller.controller import Controller
from strata.fleet.drivers.exec_driver import ExecDriver
from strata.fleet.fleet import Fleet
from strata.fleet.layer import open_access
from strata.fleet.peers.open import open_peers
from strata.platform.no_workload import NoWorkload
from strata.provisioning.identity.records import PREFIX as BOOTS
from strata.rooms import open_services
from strata.store.open import open_store

log = logging.getLogger(__name__)


def run(settings: Settings, read: Callable[[], Settings] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. ``read``: reads the settings again, at SIGHUP."""
    settings.check()
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    logs.setup(level=settings.logs.level, form=settings.logs.format)
    files.allow_most()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what is in memory is not for a disk: keys, passwords, secrets
    with _alone(settings.state_dir):
        way_out = enter(settings.provisioning.namespace)
        uvloop.run(_serve(settings, way_out, read))


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


async def _serve(settings: Settings, way_out: Sequence[str], read: Callable[[], Settings] | None) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as parts:
        with without_collecting():
            fleet = await parts.enter_async_context(running(settings, way_out))
        if read is not None:
            loop.add_signal_handler(signal.SIGHUP, Reload(fleet, settings, read).run)
        names = [layer.name for layer in chosen(settings.layers)]
        extra = {"layers": names, "controller": settings.controller_id}
        log.info("serving", extra={**extra, "socket": str(settings.admin_socket)})
        broken = fleet.controller.broken
        waits = [asyncio.create_task(event.wait()) for event in (stop, broken)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        log.info("stopping")
    if broken.is_set():
        raise Unavailable(fleet.controller.trouble, hint="start it again; the log has the traceback")


@contextlib.asynccontextmanager
async def running(settings: Settings, way_out: Sequence[str] = ()) -> AsyncIterator[Fleet]:
    """A whole controller, for as long as the block lasts. ``way_out``: stands before commands that need a network."""
    if settings.listen.tls and not settings.listen.port:
        # Known before anybody is told of it.
        listen = msgspec.structs.replace(settings.listen, port=free_port(settings.listen.host))
        settings = msgspec.structs.replace(settings, listen=listen)
    # In a thread: the account is made now, if it is missing.
    fleet, specs = await asyncio.to_thread(_fleet, settings, way_out)
    try:
        await open_services(fleet, "fleet")
        await open_access(fleet, Authority.open(settings.ca_dir))
        await open_peers(fleet, front_url(settings), signing_key(settings))
        simulated = bool(settings.simulated.address)
        for layer in chosen(settings.layers):
            if not (simulated and layer.name == "provisioning"):  # the simulator answers for its nodes' agents
                await layer.open(fleet)
                await open_services(fleet, layer.name)
                fleet.layers.append(layer.name)
            if simulated and layer.name == "hardware":
                await open_simulated(fleet)
        for spec in specs:
            fleet.drive(ExecDriver(spec.name, spec.command, spec.timeout, spec.env))
        if fleet.driver(NoWorkload.name) is None:
            fleet.drive(NoWorkload())  # whoever takes the lower layers alone looks after jobs elsewhere
        open_faces(fleet)
        await fleet.start()
        await open_doors(fleet)
        start_upkeep(fleet)
        yield fleet
    finally:
        await fleet.stop()


def _fleet(settings: Settings, way_out: Sequence[str]) -> tuple[Fleet, Sequence[ExecSpec]]:
    """The fleet of the chosen layers' models and the site's own, and the drivers that the site declares."""
    model, specs = model_of(settings)
    controller = Controller(
        open_store(settings.store_url),
        model,
        {},
        name=settings.controller_id,
        history=settings.history_file,
        engine=settings.engine,
        leadership=settings.leadership,
    )
    fleet = Fleet(
        controller, settings, way_out=way_out, web=web_account(settings.listen.account) if settings.listen.tls else None
    )
    fleet.edits.kept_by_name += (BOOTS,)  # also where another controller of this store has the provisioning layer
    fleet.parts.push_async_callback(controller.store.close)
    return fleet, specs


def model_of(settings: Settings) -> tuple[Model, Sequence[ExecSpec]]:
    """What the chosen layers and the site's own files declare, and the drivers that those name."""
    layers = [layer.model for layer in chosen(settings.layers)]
    specs: list[ExecSpec] = []
    for path in settings.models:
        found = parse(path.read_text(encoding="utf-8"), source=str(path), layers=layers, always_extends=True)
        found.model()  # names the file in what it says
        layers.append(found.layer)
        specs += found.drivers
    return Model.of(*layers), specs
