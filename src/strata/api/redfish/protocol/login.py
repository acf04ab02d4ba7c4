"""Who asks, as Redfish clients say it: ``X-Auth-Token``, or ``Authorization: Basic``; else as the front found out."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import ROOT
from strata.core.errors import NotFound, Unauthenticated
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import Principal
from strata.fleet.services import Services

ACCOUNTS = f"{ROOT}/AccountService/Accounts"
SESSIONS = f"{ROOT}/SessionService/Sessions"

_LONGEST = 2048


def logins_of(services: Services) -> Logins:
    """The accounts and sessions of the service."""
    return services.get(Logins)


async def authenticate(services: Services, found: object, headers: Mapping[bytes, str]) -> Principal | Unauthenticated:
    """Who asks, or why we do not know. ``found``: what the front made of a bearer token or a certificate."""
    try:
        token = headers.get(b"x-auth-token")
        if token is not None:
            return await logins_of(services).session(token[:_LONGEST])
        scheme, _, given = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "basic":
            return await logins_of(services).check(*_basic(given))
    except Unauthenticated as error:
        return error
    return found if isinstance(found, Principal | Unauthenticated) else Unauthenticated("no credential")


def check_password_change(services: Services, who: Principal, path: str, method: str) -> None:
    """Whoever must change the password may do that, and log out; nothing else."""
    try:
        logins = services.find(Logins)
        if logins is None or not logins.must_change_password(who):
            return
    except NotFound:
        raise Unauthenticated("the account is gone") from None
    own = f"{ACCOUNTS}/{who.credential}"
    path = path.removesuffix("/")
    if (path == own and method in ("GET", "PATCH")) or (path.startswith(f"{SESSIONS}/") and method == "DELETE"):
        return
    raise rejected(403, "PasswordChangeRequired", own)


def _basic(given: str) -> tuple[str, str]:
    try:
        if len(given) > _LONGEST:
            raise ValueError
        user, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise Unauthenticated("the Authorization header is malformed")
    return user, password
