"""The Redfish service over fakes: accounts, sessions, subscriptions, a hardware layer in memory. No sockets."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
from api_support import Service

from strata.api.front import Door
from strata.api.redfish.protocol.app import RedfishApp
from strata.api.redfish.protocol.route import Route
from strata.api.redfish.resources.push import EventPush
from strata.api.rights import WHO
from strata.api.services import SERVICES
from strata.fleet.access.accounts import Accounts
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import LOCAL_ADMIN, Principal, Role
from strata.fleet.access.sealing import Seal
from strata.fleet.access.sessions import Sessions

ROOT = "/redfish/v1"
ACCOUNTS = f"{ROOT}/AccountService/Accounts"
SESSIONS = f"{ROOT}/SessionService/Sessions"
PASSWORD = "correct horse battery"


class RedfishService(Service):
    """``api_support.Service`` with all that Redfish needs besides."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__(nodes=nodes)
        self.accounts = Accounts(self.store, self.ledger, clock=self.clock)
        self.sessions = Sessions(self.store, self.ledger, clock=self.clock)
        self.logins = Logins(self.accounts, self.sessions, self.auth)
        self.push = EventPush(self.store, self.ledger, Seal([b"k" * 32]), clock=self.clock, retry_after=0.0)
        self.services.put(self.logins)
        self.services.put(self.push)

    def as_user(self, name: str, password: str = PASSWORD, door: Door = "front") -> httpx.AsyncClient:
        client = self.client(door)
        client.auth = httpx.BasicAuth(name, password)
        return client

    async def account(self, name: str, role: Role, scope: tuple[str, ...] = ()) -> Principal:
        return (await self.accounts.create(LOCAL_ADMIN, name, PASSWORD, role, scope=scope)).principal


@contextlib.asynccontextmanager
async def redfish_service(nodes: int = 3) -> AsyncIterator[RedfishService]:
    service = RedfishService(nodes)
    await service.auth.start()
    await service.logins.start()
    await service.push.start()
    try:
        yield service
    finally:
        await service.push.stop()
        await service.logins.stop()
        await service.auth.stop()


def bare_client(routes: Iterable[Route], service: Service, who: Principal = LOCAL_ADMIN) -> httpx.AsyncClient:
    """A client of the protocol alone, over routes of a test."""
    app = RedfishApp(routes)

    async def fronted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, WHO: who, SERVICES: service.services}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=fronted), base_url="https://strata")


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def keys(answer: httpx.Response) -> list[str]:
    """The messages of an error, without their registry's version."""
    return [info["MessageId"].rpartition(".")[2] for info in answer.json()["error"]["@Message.ExtendedInfo"]]
