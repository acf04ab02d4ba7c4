"""What the tests of the Redfish protocol share: paths, a client of the protocol alone, and how errors are read."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import httpx

from strata.api.redfish.protocol.app import RedfishApp
from strata.api.redfish.protocol.route import Route
from strata.api.rights import WHO
from strata.api.services import SERVICES, Limits
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.metrics import Metrics
from strata.fleet.services import Services

ROOT = "/redfish/v1"
ACCOUNTS = f"{ROOT}/AccountService/Accounts"
SESSIONS = f"{ROOT}/SessionService/Sessions"


def bare_client(
    routes: Iterable[Route], who: Principal = LOCAL_ADMIN, limits: Limits | None = None
) -> httpx.AsyncClient:
    """A client of the protocol alone, over routes of a test."""
    app = RedfishApp(routes)
    services = Services()
    services.put(limits or Limits())
    services.put(Metrics())

    async def fronted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, WHO: who, SERVICES: services}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=fronted), base_url="https://strata")


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def keys(answer: httpx.Response) -> list[str]:
    """The messages of an error, without their registry's version."""
    return [info["MessageId"].rpartition(".")[2] for info in answer.json()["error"]["@Message.ExtendedInfo"]]
