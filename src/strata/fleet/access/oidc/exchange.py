"""Tokens for a sign-in in a browser, asked of the provider by the service: for a code, and later for an old token.

The page cannot ask itself: its policy lets it speak to this service alone, and providers differ in whom they answer.
There is no secret of ours in it. A code is worth nothing without the verifier, which only the page knows (PKCE).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from strata.core.errors import DeviceError, Unauthenticated, Unavailable
from strata.fleet.access.oidc.keys import LIMIT, asked
from strata.fleet.access.oidc.tokens import OidcTokens, UnknownKey
from strata.fleet.access.records import CodeRequest, GivenLogin, RenewalRequest

_LONGEST_WORD = 60


async def by_code(oidc: OidcTokens, given: CodeRequest) -> GivenLogin:
    """The token for a code, if it is of the sign-in with this nonce."""
    form = {
        "grant_type": "authorization_code",
        "code": given.code,
        "code_verifier": given.verifier,
        "redirect_uri": given.redirect,
    }
    return await _good(oidc, await _ask(oidc, form), nonce=given.nonce)


async def by_renewal(oidc: OidcTokens, given: RenewalRequest) -> GivenLogin:
    """Another token for a sign-in that goes on."""
    said = await _ask(oidc, {"grant_type": "refresh_token", "refresh_token": given.renewal})
    # A provider that gives no other one goes on to take this one.
    return await _good(oidc, {"refresh_token": given.renewal, **said}, nonce=None)


async def _good(oidc: OidcTokens, said: Mapping[str, Any], nonce: str | None) -> GivenLogin:
    """What it gave, if it is good here."""
    text, renewal = said.get("id_token"), said.get("refresh_token")
    if not isinstance(text, str):
        raise DeviceError("it gave no ID token", node=oidc.settings.issuer)
    try:
        until = oidc.good_until(text, nonce)
    except UnknownKey:
        await oidc.refresh()
        until = oidc.good_until(text, nonce)
    return GivenLogin(token=text, renewal=renewal if isinstance(renewal, str) else "", until=until)


async def _ask(oidc: OidcTokens, form: Mapping[str, str]) -> Mapping[str, Any]:
    """What the provider answers. ``Unauthenticated``: it refuses."""
    where = oidc.settings.issuer
    if not oidc.endpoints.token:
        await oidc.refresh()
    if not oidc.endpoints.token:
        raise Unavailable("the provider's token endpoint is not known yet", where=where, hint="try again later")
    form = {**form, "client_id": oidc.settings.audience}
    try:
        async with asyncio.timeout(LIMIT), oidc.sign_ins, aiohttp.ClientSession(trust_env=True) as session:
            status, said = await asked(session, oidc.endpoints.token, oidc.settings, form)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        raise Unavailable("the provider does not answer", where=where, hint="try again later") from None
    if 400 <= status < 500:
        word = str(said.get("error", ""))
        why = f": {word}" if word.isidentifier() and len(word) <= _LONGEST_WORD else ""
        raise Unauthenticated(f"the provider refuses the sign-in{why}", hint="sign in again")
    if status != 200:
        raise Unavailable(f"the provider answers {status}", where=where, hint="try again later")
    return said
