"""Signing in with a browser: what the service redeems at the provider, and what it does not hand on."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from api_support import Service
from test_oidc_tokens import RSA, RULES, jwk, signed

from strata.fleet.access.oidc.settings import OidcSettings
from strata.fleet.access.oidc.tokens import OidcTokens

VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
NONCE = "n" * 32
BACK = "https://strata.example:8443/"
ASKED = {"code": "c-1", "verifier": VERIFIER, "nonce": NONCE, "redirect": BACK}


class Provider:
    """One that checks what a provider must (PKCE, client, one use of a code), and says whatever ``says`` makes."""

    def __init__(self) -> None:
        self.issuer = ""
        self.codes = {"c-1": CHALLENGE}
        self.forms: list[dict[str, Any]] = []
        self.says: Callable[[], web.Response] | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._about)
        app.router.add_get("/jwks", self._keys)
        app.router.add_post("/token", self._token)
        return app

    async def _about(self, _: web.Request) -> web.Response:
        told = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks", "token_endpoint": f"{self.issuer}/token"}
        return web.json_response({**told, "authorization_endpoint": f"{self.issuer}/authorize"})

    async def _keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [jwk(RSA, "k1")]})

    async def _token(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = dict(await request.post())
        self.forms.append(form)
        if self.says is not None:
            return self.says()
        if form["client_id"] != "strata":
            return web.json_response({"error": "invalid_client"}, status=401)
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != "r-1":
                return web.json_response({"error": "invalid_grant"}, status=400)
            return web.json_response({"id_token": signed(iss=self.issuer)})
        challenge = self.codes.pop(form["code"], None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if challenge != proof or form["redirect_uri"] != BACK:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"id_token": signed(iss=self.issuer, nonce=NONCE), "refresh_token": "r-1"})


@pytest.fixture
async def provider(service: Service) -> AsyncIterator[Provider]:
    found = Provider()
    async with TestServer(found.app()) as server:
        found.issuer = str(server.make_url("")).rstrip("/")
        oidc = service.auth.oidc = OidcTokens(OidcSettings(issuer=found.issuer, rules=RULES))
        await oidc.refresh()
        yield found
        await oidc.stop()


async def redeem(service: Service, **more: str) -> httpx.Response:
    async with service.client("front") as nobody:
        return await nobody.post("/v1/auth/oidc/code", json={**ASKED, **more})


async def test_a_code_is_redeemed_once_for_a_token_that_is_good_here(service: Service, provider: Provider) -> None:
    async with service.client("front") as nobody:
        way = (await nobody.get("/v1/auth/oidc")).json()
    assert way == {"issuer": provider.issuer, "client": "strata", "authorize": f"{provider.issuer}/authorize"}
    given = await redeem(service)
    assert given.status_code == 200, given.text
    assert given.headers["cache-control"] == "no-store"
    async with service.client("front", given.json()["token"]) as ada:
        assert (await ada.get("/v1/auth/whoami")).json()["name"] == "oidc:ada"
    assert provider.forms[0]["client_id"] == "strata"
    again = await redeem(service)
    assert (again.status_code, "invalid_grant" in again.text) == (401, True)


async def test_a_code_is_worth_nothing_without_the_verifier_of_its_sign_in(
    service: Service, provider: Provider
) -> None:
    assert (await redeem(service, verifier="w" * 43)).status_code == 401


async def test_a_token_of_another_sign_in_is_not_handed_on(service: Service, provider: Provider) -> None:
    answer = await redeem(service, nonce="m" * 32)
    assert (answer.status_code, "another sign-in" in answer.text) == (401, True)
    provider.codes["c-1"] = CHALLENGE
    provider.says = lambda: web.json_response({"id_token": signed(iss=provider.issuer)})
    assert (await redeem(service)).status_code == 401, "without a nonce it may be anybody's"


async def test_a_sign_in_goes_on_by_its_renewal_and_ends_where_the_provider_says(
    service: Service, provider: Provider
) -> None:
    async with service.client("front") as nobody:
        kept = await nobody.post("/v1/auth/oidc/renewal", json={"renewal": "r-1"})
        assert (kept.status_code, kept.json()["renewal"]) == (200, "r-1")
        assert (await nobody.post("/v1/auth/oidc/renewal", json={"renewal": "r-0"})).status_code == 401


@pytest.mark.parametrize(
    ("says", "status"),
    [
        (lambda: web.json_response({"id_token": signed(aud="other")}), 401),
        (lambda: web.json_response({"id_token": signed(groups=["elsewhere"])}), 401),
        (lambda: web.json_response({"access_token": "opaque"}), 502),
        (lambda: web.json_response({"error": "<b>x</b>"}, status=400), 401),
        (lambda: web.Response(text="<html>", content_type="text/html"), 503),
        (lambda: web.Response(text="<html>", content_type="text/html", status=500), 503),
        (lambda: web.json_response(["id_token"]), 503),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), 503),
    ],
)
async def test_whatever_else_a_provider_answers_signs_nobody_in(
    service: Service, provider: Provider, says: Callable[[], web.Response], status: int
) -> None:
    provider.says = says
    answer = await redeem(service)
    assert answer.status_code == status, answer.text
    assert "<" not in answer.json()["detail"]


async def test_a_provider_that_was_away_is_asked_when_somebody_wants_to_sign_in(service: Service) -> None:
    found = Provider()
    async with TestServer(found.app()) as server:
        found.issuer = str(server.make_url("")).rstrip("/")
        oidc = service.auth.oidc = OidcTokens(OidcSettings(issuer=found.issuer, rules=RULES))
        async with service.client("front") as nobody:
            assert (await nobody.get("/v1/auth/oidc")).json()["authorize"] == ""
            answer = await nobody.post("/v1/auth/oidc/code", json=ASKED)
        assert answer.status_code == 200, answer.text
        await oidc.stop()


async def test_where_there_is_no_provider_there_is_no_sign_in(service: Service) -> None:
    assert (await redeem(service)).status_code == 404
