"""The keys that a provider signs with: found by discovery, kept, and fetched again when a token names another one.

At most one question in ``EVERY`` seconds, whoever asks: tokens with made-up keys cost the provider nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import aiohttp

from strata.core.errors import Unavailable
from strata.core.input.foreign import read_json
from strata.fleet.access.oidc.settings import OidcSettings
from strata.fleet.bounded import bounded

log = logging.getLogger(__name__)

EVERY = 30.0
"""Seconds between two questions at least."""
FRESH = 3600.0
"""Seconds after which they are asked for again although nobody names a new one: a key may have been withdrawn."""
GOOD = 86_400.0
"""Seconds for which they are good if the provider does not answer."""
LIMIT = 10.0
"""Seconds for an answer."""
_MOST = 1 << 20

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""What a token may be signed by. Never ``none``, never what a public key could forge (HMAC)."""


class Endpoints(NamedTuple):
    """Where people sign in at a provider with a browser, and where it gives tokens. Empty: it was not heard yet."""

    authorize: str = ""
    token: str = ""


class Keys:
    """The keys of one provider, and where it does what."""

    def __init__(self, settings: OidcSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self.endpoints = Endpoints()
        self._keys: Mapping[str, Any] = {}
        self._fetched: float | None = None
        self._asked: float | None = None
        self._lock = asyncio.Lock()

    @property
    def are_due(self) -> bool:
        """Whether the provider is to be asked again, and nobody has just done so."""
        now = self._clock()
        stale = self._fetched is None or now - self._fetched >= FRESH
        return stale and (self._asked is None or now - self._asked >= EVERY)

    def find(self, ident: str) -> Any | None:
        """The key of this name (without a name: the only one that there is); None: there is none that is still good."""
        if self._fetched is None or self._clock() - self._fetched >= GOOD:
            return None
        if not ident and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(ident)

    async def refresh(self) -> None:
        """Ask the provider, unless somebody has just done so. An answer that does not come changes nothing."""
        async with self._lock:
            if self._asked is not None and self._clock() - self._asked < EVERY:
                return
            self._asked = self._clock()
            try:
                async with asyncio.timeout(LIMIT):
                    self._keys = _read(await self._fetch())
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, Unavailable) as error:
                log.warning("the keys of %s cannot be fetched: %s", self._settings.issuer, error)
                return
            self._fetched = self._clock()

    async def _fetch(self) -> Mapping[str, Any]:
        async with aiohttp.ClientSession(trust_env=True) as session:
            found = await discover(session, self._settings)
            keys = found.get("jwks_uri")
            if not isinstance(keys, str):
                raise Unavailable("its configuration names no keys (jwks_uri)", where=self._settings.issuer)
            self.endpoints = Endpoints(*(_address(found, f"{name}_endpoint") for name in ("authorization", "token")))
            return await _json(session, keys, self._settings)


def _address(found: Mapping[str, Any], name: str) -> str:
    """An address that a browser or we may go to; empty: it says none."""
    told = found.get(name)
    return told if isinstance(told, str) and told.isprintable() and told.startswith(("https://", "http://")) else ""


async def discover(session: aiohttp.ClientSession, settings: OidcSettings) -> Mapping[str, Any]:
    """What the provider says of itself."""
    address = f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration"
    found = await _json(session, address, settings)
    if found.get("issuer") != settings.issuer:
        raise Unavailable(f"it calls itself {str(found.get('issuer'))[:200]!r}", where=settings.issuer)
    return found


async def _json(session: aiohttp.ClientSession, address: str, settings: OidcSettings) -> Mapping[str, Any]:
    status, found = await asked(session, address, settings)
    if status != 200:
        raise Unavailable(f"it answers {status}", where=address[:200])
    return found


async def asked(
    session: aiohttp.ClientSession, address: str, settings: OidcSettings, form: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, Any]]:
    """Ask the provider (``form``: send it this), once and nowhere else: the status, and the object of its answer."""
    if address.partition(":")[0] not in ("https", settings.issuer.partition(":")[0]):
        raise Unavailable(f"not by https: {address[:200]}", where=settings.issuer)
    context = ssl.create_default_context(cafile=settings.ca) if settings.ca is not None else True
    method = "GET" if form is None else "POST"
    async with session.request(method, address, data=form, ssl=context, allow_redirects=False) as reply:
        body = await bounded(reply, _MOST)
    if body is None:
        raise Unavailable(f"its answer is longer than {_MOST} bytes", where=address[:200])
    if reply.status >= 300 and not reply.content_type.endswith("json"):
        return reply.status, {}
    value = read_json(body).value
    if not isinstance(value, dict):
        raise Unavailable("it does not answer with an object", where=address[:200])
    return reply.status, value


def _read(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys for checking signatures, by name. Others of the same provider are left out."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    found = {}
    for one in told.get("keys") or ():
        if not isinstance(one, dict) or one.get("kty") not in ("RSA", "EC", "OKP") or one.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict({"alg": _ALGORITHM[one["kty"]], **one})
        except (jwt.PyJWTError, KeyError, ValueError):
            continue
        weak = isinstance(key.key, RSAPublicKey) and key.key.key_size < _LEAST_RSA
        if key.algorithm_name in ALGORITHMS and not weak:
            found[str(one.get("kid", ""))] = key
    if not found:
        raise ValueError("none of its keys can check a signature")
    return found


_ALGORITHM = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
_LEAST_RSA = 2048
