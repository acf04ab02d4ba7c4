"""Tokens of an OpenID Connect provider: who is behind one. No request waits for the provider, but those whose key is
not known yet.

A good token is remembered until it ends, by a digest: a client that sends it with every request pays once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from strata.core.errors import BadRequest, Unauthenticated
from strata.fleet.access.oidc.keys import ALGORITHMS, Endpoints, Keys
from strata.fleet.access.oidc.rules import principal_of
from strata.fleet.access.oidc.settings import OidcSettings
from strata.fleet.access.principal import Principal
from strata.fleet.tasks import all_cancelled

_MOST = 16_384
"""Bytes of a token."""
_REMEMBERED = 10_000
_SIGN_INS = 16
"""At one time: anybody may begin one."""
_REQUIRED = ("exp", "iat", "iss", "aud", "sub")


class UnknownKey(Unauthenticated):
    """It is signed by a key that is not known here: perhaps a new one."""


class _Known(NamedTuple):
    """A token that was good."""

    until: float
    named: str
    key: object
    """By which it was good. Fetched again, it is another one: every token is checked again then."""
    who: Principal


class OidcTokens:
    """Checks tokens of one provider."""

    def __init__(self, settings: OidcSettings, *, keys: Keys | None = None) -> None:
        self.settings = settings
        self._keys = keys if keys is not None else Keys(settings)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: asyncio.Task[None] | None = None
        self.sign_ins = asyncio.Semaphore(_SIGN_INS)
        """Sign-ins that wait for the provider."""

    async def start(self) -> None:
        """Ask for the keys; whether the provider answers or not, the service begins."""
        try:
            import jwt  # noqa: F401 (whether it is there)
        except ImportError:
            raise BadRequest(
                "PyJWT is missing", where="oidc.issuer", hint="install it: pip install 'strata[oidc]'"
            ) from None
        self.hear()

    def hear(self) -> None:
        """See to it that a provider that has not been heard yet is asked (again). Nobody waits for it."""
        if not self.endpoints.authorize and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._keys.refresh())

    async def stop(self) -> None:
        """Ask no more."""
        await all_cancelled([self._asking] if self._asking is not None else [])

    def principal(self, text: str) -> Principal:
        """Who holds this token; ``UnknownKey``: ask again after ``refresh``; ``Unauthenticated``: it is not good."""
        digest = hashlib.sha256(text.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._is_good(known):
            return known.who
        named, claims = self._checked(text)
        who = principal_of(self.settings, claims)
        self._known[digest] = _Known(float(claims["exp"]), named, self._keys.find(named), who)
        self._known.move_to_end(digest)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return who

    def _is_good(self, known: _Known) -> bool:
        due = time.time() >= known.until or self._keys.are_due
        return not due and self._keys.find(known.named) is known.key

    @property
    def endpoints(self) -> Endpoints:
        """Where the provider does what, as far as it was heard."""
        return self._keys.endpoints

    def good_until(self, text: str, nonce: str | None) -> float:
        """Until when a new token is good; ``Unauthenticated``: it is of another sign-in than the one with ``nonce``
        (None: whichever), of nobody that a rule knows, or not good at all."""
        _, claims = self._checked(text)
        said = claims.get("nonce")
        if nonce is not None and not (isinstance(said, str) and hmac.compare_digest(said.encode(), nonce.encode())):
            raise Unauthenticated("the token is of another sign-in", hint="sign in again")
        principal_of(self.settings, claims)
        return float(claims["exp"])

    async def refresh(self) -> None:
        """Ask the provider for its keys again, unless that was done just now."""
        await self._keys.refresh()

    def _checked(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """The name of its key and what it says, if it is the provider's, for us, and of now."""
        import jwt

        if len(text) > _MOST:
            raise Unauthenticated("the token is too long")
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise Unauthenticated("the bearer token is malformed") from None
        if header.get("alg") not in ALGORITHMS:
            raise Unauthenticated(
                "the token is signed by an algorithm that is not accepted here", hint=f"one of {', '.join(ALGORITHMS)}"
            )
        if "crit" in header:
            raise Unauthenticated("the token demands an extension (crit) that is not supported here")
        named = str(header.get("kid", ""))
        key = self._keys.find(named)
        if key is None or self._keys.are_due:
            raise UnknownKey(
                "the token is signed by a key that its provider does not list", hint="log in again: strata login"
            )
        try:
            found: Mapping[str, Any] = jwt.decode(
                text,
                key,
                # The key's own: a token cannot choose how it is checked.
                algorithms=[key.algorithm_name],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=float(self.settings.leeway),
                options={"require": list(_REQUIRED)},
            )
        except jwt.InvalidSignatureError:
            # Without a name it may be by a new key.
            raise (Unauthenticated if named else UnknownKey)(
                "the token is not good here: its signature is wrong"
            ) from None
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("the token has expired", hint="log in again: strata login") from None
        except jwt.PyJWTError as error:
            why = _WHY.get(type(error).__name__, "it is not valid")
            raise Unauthenticated(f"the token is not good here: {why}") from None
        return named, found


_WHY = {
    "InvalidAudienceError": "it is for another service (aud)",
    "InvalidIssuerError": "it is from another provider (iss)",
    "ImmatureSignatureError": "it is not valid yet (nbf or iat): do the clocks agree?",
    "InvalidIssuedAtError": "it does not say when it was issued (iat)",
    "MissingRequiredClaimError": "it lacks a claim that is needed",
}
