"""An OpenID Connect provider, asked by the command line: the device flow (RFC 8628), and new tokens for old ones.

Standard library only, so that a command starts fast.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from strata.core.errors import BadRequest, DeviceError, Unauthenticated, Unavailable

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
SCOPE = "openid profile email"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LIMIT = 20.0
_MOST = 1 << 20
_SLOWER = 5.0
"""Seconds that RFC 8628 adds where a provider says that it is asked too often."""


class Provider(NamedTuple):
    """What a provider says of itself, as far as a login needs it."""

    issuer: str
    token: str
    """Where tokens are given."""
    device: str
    """Where a login by device begins; empty: it does not offer that."""


class Device(NamedTuple):
    """A login that waits for its person."""

    code: str
    shown: str
    """What the person types."""
    where: str
    """Where they do."""
    until: float
    every: float


class Given(NamedTuple):
    """What a provider gave."""

    token: str
    renewal: str
    until: float

    def __repr__(self) -> str:
        return f"Given(until={self.until:.0f})"


def discover(issuer: str) -> Provider:
    """Ask it where everything is."""
    said = _ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration", None)
    if said.get("issuer") != issuer:
        raise DeviceError(f"it calls itself {str(said.get('issuer'))[:200]!r}", node=issuer)
    found = Provider(issuer, str(said.get("token_endpoint", "")), str(said.get("device_authorization_endpoint", "")))
    for address in filter(None, found[1:]):
        _check(address)
    return found


def begin(provider: Provider, client: str, now: float) -> Device:
    """Begin a login."""
    if not provider.device:
        raise BadRequest(
            "it does not offer logins by device (RFC 8628)",
            where=provider.issuer,
            hint="have it enabled for this client, or use a token (strata auth token create)",
        )
    said = _ask(provider.device, {"client_id": client, "scope": SCOPE})
    return Device(
        code=_text(said, "device_code", provider.device),
        shown=_text(said, "user_code", provider.device),
        where=str(said.get("verification_uri_complete") or _text(said, "verification_uri", provider.device)),
        until=now + _number(said, "expires_in", 600.0),
        every=max(_number(said, "interval", 5.0), 0.0),
    )


def wait(
    provider: Provider,
    client: str,
    device: Device,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Given:
    """What it gives once the person has agreed. ``Unauthenticated``: they did not."""
    every = device.every
    while clock() < device.until:
        sleep(every)
        said = _ask(
            provider.token, {"grant_type": DEVICE, "device_code": device.code, "client_id": client}, refusals=True
        )
        problem = said.get("error")
        if problem is None:
            return _given(said, provider.token, clock())
        if problem == "slow_down":
            every += _SLOWER
        elif problem == "access_denied":
            raise Unauthenticated("the login was refused", where=provider.issuer)
        elif problem != "authorization_pending":
            break
    raise Unauthenticated("the login was not confirmed in time", where=provider.issuer, hint="try again: strata login")


def renew(token_endpoint: str, client: str, renewal: str, now: float) -> Given | None:
    """A new token for an old one; None: it is not given any more."""
    asked = {"grant_type": "refresh_token", "refresh_token": renewal, "client_id": client}
    said = _ask(token_endpoint, asked, refusals=True)
    if "error" in said:
        return None
    given = _given(said, token_endpoint, now)
    return given if given.renewal else given._replace(renewal=renewal)


def _given(said: Mapping[str, Any], where: str, now: float) -> Given:
    # The one that says who somebody is; what it is good for is between the provider and the service.
    token = said.get("id_token") or said.get("access_token")
    if not isinstance(token, str) or not token:
        raise DeviceError("it gave no token", node=where)
    return Given(token, str(said.get("refresh_token") or ""), now + _number(said, "expires_in", 300.0))


def _ask(address: str, form: Mapping[str, str] | None, *, refusals: bool = False) -> dict[str, Any]:
    """What it answers. ``refusals``: an error in its own words is an answer too."""
    import urllib.error
    import urllib.request

    _check(address)
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT) as reply:
            said = _object(reply.read(_MOST), address)
    except urllib.error.HTTPError as error:
        said = next(_objects(error.read(_MOST)), {})
        if not refusals or "error" not in said:
            words = said.get("error_description") or said.get("error") or error.reason
            raise DeviceError(f"it answers {error.code}: {str(words)[:200]}", node=address) from None
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise Unavailable(f"no answer: {reason}", where=address) from None
    return said


def _check(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise BadRequest(f"{address[:120]!r} is not https://HOST/PATH", where="provider")


def _object(body: bytes, where: str) -> dict[str, Any]:
    for found in _objects(body):
        return found
    raise DeviceError("it does not answer with an object", node=where)


def _objects(body: bytes) -> Iterator[dict[str, Any]]:
    try:
        found = json.loads(body)
    except ValueError:
        return
    if isinstance(found, dict):
        yield found


def _text(said: Mapping[str, Any], name: str, where: str) -> str:
    found = said.get(name)
    if not isinstance(found, str) or not found or not found.isprintable():
        raise DeviceError(f"its answer has no {name}", node=where)
    return found


def _number(said: Mapping[str, Any], name: str, otherwise: float) -> float:
    found = said.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else otherwise
