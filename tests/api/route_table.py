"""Every route with its right, and what the whole table promises: over any service.

The cases come from the application's own routes, so a new route cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import httpx

from strata.api.app import create_litestar
from strata.api.front import Door
from strata.api.rights import handlers_of
from strata.api.streams import STREAMS
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import FLEET_WIDE, LOCAL_ADMIN, RIGHTS, Role

ROUTES = [(method, path, handler.opt["right"]) for method, path, handler in handlers_of(create_litestar(2**20))]
PROTECTED = [route for route in ROUTES if route[2] is not None]
PUBLIC = {(method, path) for method, path, right in ROUTES if right is None}

BAD_CREDENTIALS = ("none", "malformed", "wrong", "unknown", "expired", "revoked", "basic", "twice")
UNVERIFIED = ("NONE", "", "FAILED:self signed certificate", "FAILED:certificate has expired", "success")
GROUP = "g1"
"""The group that scoped credentials are limited to."""


class Clock:
    """Wall time that a test moves."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Served(Protocol):
    """A service with its doors and credentials."""

    clock: Clock
    auth: Authenticator

    def client(self, door: Door = "admin", token: str = "") -> httpx.AsyncClient: ...
    async def token(self, role: Role, scope: Sequence[str] = (), ttl: int = 3600) -> str: ...


def concrete(path: str) -> str:
    """The template with a value that exists nowhere but is well formed."""
    values = {
        "frozen": f"group:{GROUP}",
        "ident": "0" * 16,
        "serial": "ab",
        "operation": "j9",
        "job": "j9",
        "token": "0" * 57,
        "dump": "1-2",
        "name": "n999",
        "target": "n999",
        "tag": "t9",
        "upload": "0" * 32,
        "log": "0" * 32,
        "mac": "52:54:00:00:99:99",
    }
    for part, value in values.items():
        path = path.replace(f"{{{part}}}", value)
    assert "{" not in path, path
    return path


async def ask(client: httpx.AsyncClient, method: str, path: str, **more: object) -> httpx.Response:
    # An empty body of the wrong type: whoever gets past the right is told so, and nothing is changed.
    return await client.request(method, concrete(path), headers={"Content-Type": "text/plain"}, **more)  # type: ignore[arg-type]


async def bad_token(service: Served, credential: str) -> list[tuple[str, str]]:
    """The headers with one of ``BAD_CREDENTIALS``."""
    good = await service.token("admin")
    headers: list[tuple[str, str]] = {
        "none": [],
        "malformed": [("Authorization", "Bearer strata_zz")],
        "wrong": [("Authorization", f"Bearer {good[:-4]}AAAA")],
        "unknown": [("Authorization", f"Bearer strata_{'0' * 16}_{'A' * 43}")],
        "expired": [("Authorization", f"Bearer {await service.token('admin', ttl=10)}")],
        "revoked": [("Authorization", f"Bearer {good}")],
        "basic": [("Authorization", "Basic YWRtaW46YWRtaW4=")],
        "twice": [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")],
    }[credential]
    if credential == "expired":
        service.clock.now += 11
    if credential == "revoked":
        await service.auth.revoke(LOCAL_ADMIN, good.split("_")[1])
    return headers


def unverified(verify: str, role: Role = "admin") -> dict[str, str]:
    """What nginx would say of a certificate that it did not verify."""
    return {
        "X-Strata-Client-Verify": verify,
        "X-Strata-Client-Serial": "0A",
        "X-Strata-Client-DN": f"OU=role:{role},CN=n00001,O=Strata",
    }


async def check_closed_to_bad_token(service: Served, credential: str) -> None:
    """One of ``BAD_CREDENTIALS`` opens no protected route."""
    headers = [*await bad_token(service, credential), ("Content-Type", "text/plain")]
    async with service.client("front") as client:
        for method, path, _ in PROTECTED:
            answer = await client.request(method, concrete(path), headers=headers)
            assert answer.status_code == 401, (credential, method, path, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"


async def check_closed_to_unverified(service: Served, verify: str) -> None:
    """A certificate that nginx did not verify opens no protected route."""
    headers = {**unverified(verify), "Content-Type": "text/plain"}
    async with service.client("front") as client:
        for method, path, _ in PROTECTED:
            answer = await client.request(method, concrete(path), headers=headers)
            assert answer.status_code == 401, (verify, method, path)


async def check_role(service: Served, role: Role, scoped: bool) -> None:
    """A role may do just what the one table says."""
    token = await service.token(role, (GROUP,) if scoped else ())
    async with service.client("front", token) as client:
        for method, path, right in PROTECTED:
            if path in STREAMS and right in RIGHTS[role]:
                path += "?select=absent"
            answer = await ask(client, method, path)
            allowed = right in RIGHTS[role] and not (scoped and right in FLEET_WIDE)
            assert (answer.status_code != 403) == allowed, (role, scoped, method, path, answer.text)
            assert answer.status_code != 401 and answer.status_code < 500, (role, scoped, method, path, answer.text)
