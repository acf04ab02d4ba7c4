"""What the API's tests share: a running fleet of simulated nodes behind both doors, its credentials, and clients that
need no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import httpx
import numpy as np
from route_table import Clock

from strata.api.app import create_app
from strata.api.front import Door
from strata.api.services import FrontSecret, Limits
from strata.daemon.settings import Settings
from strata.fleet.access.accounts import Accounts
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import LOCAL_ADMIN, Role
from strata.fleet.access.records import TokenRequest
from strata.fleet.access.sealing import Seal
from strata.fleet.access.sessions import Sessions
from strata.fleet.controller.controller import Controller
from strata.fleet.groups.records import GroupSpec
from strata.fleet.metrics import Metrics
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.nodes.service import NodeService
from strata.fleet.settings import StoreSettings
from strata.store.open import open_store
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet, api_services

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

WATCH_FOR = 0.02
"""Seconds until a client hangs up on an answer that has begun and does not end."""


class Service:
    """A running fleet, and the API over it."""

    def __init__(self, fleet: OpenFleet, clock: Clock, sim: SimNodes) -> None:
        self.service = fleet
        self.services = fleet.services
        self.of = fleet.of
        self.store = fleet.store
        self.auth = fleet.of(Authenticator)
        self.clock = clock
        self.sim = sim
        """The nodes as they are in truth."""

    def app(self, door: Door = "admin") -> Any:
        return create_app(self.services, door)

    def client(self, door: Door = "admin", token: str = "") -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if door == "front":
            headers["X-Strata-Front-Secret"] = self.services.get(FrontSecret).value
        transport = httpx.ASGITransport(app=Impatient(self.app(door)), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://strata", headers=headers)

    async def token(self, role: Role, scope: Sequence[str] = (), ttl: int = 3600) -> str:
        request = TokenRequest(role=role, scope=tuple(scope), ttl=ttl)
        return (await self.auth.mint(LOCAL_ADMIN, request)).token

    def fail_on_nodes(self, error: Exception) -> None:
        """Whoever asks for one node, in the short way or the usual one, is failed."""

        def fail(*_: object, **__: object) -> NoReturn:
            raise error

        nodes = self.of(NodeService)
        nodes.node_json = nodes.why = fail  # type: ignore[method-assign]

    async def put_node(self, name: str, **more: Any) -> None:
        """Another node; ``more``: of its description."""
        made = await self.service.create_nodes(LOCAL_ADMIN, [NodeSpec(name=name, **more)])
        assert made[0].ok, made

    async def put_group(self, name: str, members: str) -> None:
        """A group of nodes."""
        await self.service.put_group(LOCAL_ADMIN, name, GroupSpec(members=members), None)

    async def see(self, name: str, power: str) -> None:
        """A node is switched by hand, and that is seen."""
        self.sim.put(np.array([self.sim.index[name]]), now=time.monotonic(), power=power)
        index = self.service.registry.index_of(name)
        self.service.controller.look_at(np.array([index]))
        async with asyncio.timeout(60):
            while self.service.view.node(index).facts["power"].value != power:
                await self.service.controller.stepped()


@contextlib.asynccontextmanager
async def made_fleet(
    settings: Settings, *, limits: Limits | None = None, authority: bool = True
) -> AsyncIterator[tuple[OpenFleet, Clock]]:
    """A fleet on which layers can be opened, with all that an API over it needs; it does not run yet. The clock is that
    of credentials."""
    async with contextlib.AsyncExitStack() as parts:
        store = open_store(settings.store_url)
        parts.push_async_callback(store.close)
        controller = Controller(
            store,
            BUILT_IN,
            {},
            name=settings.controller_id,
            history=settings.history_file,
            leadership=settings.leadership,
            metrics=Metrics(),
        )
        fleet = OpenFleet(controller, settings)
        parts.push_async_callback(fleet.stop)
        clock = Clock(time.time())
        authenticator = Authenticator(store, fleet.ledger, clock=clock)
        fleet.put(Seal.load(settings.secrets_key, make=True))
        ca = Authority.open(settings.ca_dir) if authority else None
        api_services(fleet=fleet, authenticator=authenticator, authority=ca, limits=limits)
        await fleet.keep(authenticator)
        accounts = fleet.put(Accounts(store, fleet.ledger, clock=clock))
        sessions = fleet.put(Sessions(store, fleet.ledger, clock=clock))
        fleet.put(await fleet.keep(Logins(accounts, sessions, authenticator)))
        yield fleet, clock


@contextlib.asynccontextmanager
async def open_service(
    directory: Path, nodes: int = 3, *, limits: Limits | None = None, authority: bool = False
) -> AsyncIterator[Service]:
    """Simulated nodes ``n000``, ``n001`` … under a controller that has no layer."""
    settings = Settings(state_dir=directory, controller_id="test", store=StoreSettings(url="memory:"))
    names = [f"n{number:03d}" for number in range(nodes)]
    async with made_fleet(settings, limits=limits, authority=authority) as (fleet, clock):
        sim = SimNodes(nodes, names=names, timing=Timing(scale=0))
        for driver in sim_drivers(sim, time.monotonic).values():
            fleet.drive(driver)
        await fleet.start()
        service = Service(fleet, clock, sim)
        await fleet.create_nodes(LOCAL_ADMIN, [NodeSpec(name=name) for name in names])
        yield service


class Impatient:
    """An application whose clients hang up, a moment after an answer has begun that does not end: watches do not."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = [await receive()]
        while body[-1].get("more_body"):
            body.append(await receive())
        begun, over = asyncio.Event(), asyncio.Event()

        async def received() -> Message:
            if body:
                return body.pop(0)
            await begun.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), WATCH_FOR)
            return {"type": "http.disconnect"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body":
                begun.set()
                if not message.get("more_body"):
                    over.set()
            await send(message)

        await self._app(scope, received, sent)
        if not over.is_set():
            await send({"type": "http.response.body", "body": b""})
