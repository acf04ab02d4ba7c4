"""Tokens of an OpenID Connect provider: which are good, and who somebody is by them."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import httpx
import jwt
import pytest
from api_support import Service
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from route_table import Clock

from strata.core.errors import BadRequest, Unauthenticated
from strata.fleet.access.oidc.keys import EVERY, FRESH, GOOD, Keys
from strata.fleet.access.oidc.rules import principal_of
from strata.fleet.access.oidc.settings import OidcRule, OidcSettings
from strata.fleet.access.oidc.tokens import OidcTokens, UnknownKey
from support.oidc_provider import oidc_provider
from support.slurm import free_port

ISSUER = "https://login.example.org/realms/hpc"
RULES = (
    OidcRule(claim="groups", value="hpc-admins", role="admin"),
    OidcRule(claim="realm_access.roles", value="operator", role="operator", scope=("rack1",), account="ops"),
    OidcRule(claim="groups", value="hpc", role="viewer", account="*"),
)
SETTINGS = OidcSettings(issuer=ISSUER, rules=RULES)
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, ident: str, **more: str) -> dict[str, Any]:
    kinds = {rsa.RSAPrivateKey: "RSAAlgorithm", ec.EllipticCurvePrivateKey: "ECAlgorithm"}
    kind = next((name for base, name in kinds.items() if isinstance(key, base)), "OKPAlgorithm")
    told = getattr(jwt.algorithms, kind).to_jwk(key.public_key())
    return {**json.loads(told), "kid": ident, "use": "sig", **more}


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    told = {"iss": ISSUER, "aud": "strata", "sub": "u-1", "preferred_username": "ada", "groups": ["hpc"], "iat": now,
            "exp": now + 600, **more}  # fmt: skip
    return {name: value for name, value in told.items() if value is not None}


def signed(key: Any = RSA, alg: str = "RS256", kid: str = "k1", **more: Any) -> str:
    headers = {"kid": kid} if kid else {}
    return jwt.encode(claims(**more), key, algorithm=alg, headers=headers)


class Told(Keys):
    """Keys of a provider that answers what it is told to, and counts how often it is asked."""

    def __init__(self, clock: Clock, *keys: Mapping[str, Any]) -> None:
        super().__init__(SETTINGS, clock=clock)
        self.keys: tuple[Mapping[str, Any], ...] | None = keys
        self.asked = 0

    async def _fetch(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.keys is None:
            raise OSError("away")
        return {"keys": list(self.keys)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def tokens(clock: Clock) -> OidcTokens:
    keys = Told(clock, jwk(RSA, "k1"), jwk(EC, "k2"), jwk(ED, "k3"), jwk(WEAK, "weak"), jwk(RSA, "enc", use="enc"))
    found = OidcTokens(SETTINGS, keys=keys)
    await found.refresh()
    return found


@pytest.mark.parametrize(("key", "alg", "kid"), [(RSA, "RS256", "k1"), (EC, "ES256", "k2"), (ED, "EdDSA", "k3")])
async def test_a_token_of_the_provider_says_who_somebody_is(tokens: OidcTokens, key: Any, alg: str, kid: str) -> None:
    who = tokens.principal(signed(key, alg, kid))
    assert (who.name, who.role, who.scope, who.via, who.credential) == ("oidc:ada", "viewer", (), "oidc", "u-1")
    assert who.account == "ada"
    assert tokens.principal(signed(key, alg, kid, aud=["other", "strata"])).name == "oidc:ada"


def forged(header: Mapping[str, Any], secret: bytes | None = None) -> str:
    """A token that nobody of the provider's signed."""
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims())]
    body = b".".join(parts)
    mark = hmac.digest(secret, body, "sha256") if secret is not None else b""
    return (body + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (lambda: signed(exp=int(time.time()) - 61), "expired"),
        (lambda: signed(aud="other"), "for another service"),
        (lambda: signed(aud=None), "lacks a claim"),
        (lambda: signed(iss="https://login.example.org/realms/other"), "from another provider"),
        (lambda: signed(iss=ISSUER + "/"), "from another provider"),
        (lambda: signed(nbf=int(time.time()) + 600), "not valid yet"),
        (lambda: signed(iat=int(time.time()) + 600), "not valid yet"),
        (lambda: signed(exp=None), "lacks a claim"),
        (lambda: signed(iat=None), "lacks a claim"),
        (lambda: signed(sub=None), "lacks a claim"),
        (lambda: signed(OTHER), "signature is wrong"),
        (lambda: signed(OTHER, kid="k9"), "does not list"),
        (lambda: signed(kid="weak"), "does not list"),
        (lambda: signed(kid="enc"), "does not list"),
        (lambda: signed(kid=""), "does not list"),
        (lambda: signed(alg="RS512"), "algorithm that is not accepted"),
        (lambda: forged({"alg": "none", "kid": "k1"}), "algorithm that is not accepted"),
        (lambda: forged({"alg": "None", "kid": "k1"}), "algorithm that is not accepted"),
        (lambda: forged({"alg": "HS256", "kid": "k1"}, PUBLIC), "algorithm that is not accepted"),
        (lambda: forged({"alg": "RS256", "kid": "k1"}, PUBLIC), "signature is wrong"),
        (lambda: forged({"alg": "ES256", "kid": "k1"}), "not good here"),
        (
            lambda: jwt.encode(claims(), RSA, "RS256", {"kid": "k1", "crit": ["b64"], "b64": True}),
            "malformed|not understood",
        ),
        (lambda: signed() + "x" * 20_000, "too long"),
        (lambda: "a.b.c", "malformed"),
        (lambda: signed(preferred_username="root; id"), "not a name"),
        (lambda: signed(preferred_username=["ada"]), "not a name"),
        (lambda: signed(groups=[]), "gives ada a role"),
        (lambda: signed(groups="hpc-adminsx"), "gives ada a role"),
    ],
)
async def test_any_other_token_is_refused(tokens: OidcTokens, token: Any, why: str) -> None:
    with pytest.raises(Unauthenticated, match=why):
        tokens.principal(token())


async def test_a_rotated_key_is_found_and_a_withdrawn_one_is_forgotten(clock: Clock) -> None:
    keys = Told(clock, jwk(RSA, "k1"))
    tokens = OidcTokens(SETTINGS, keys=keys)
    old, new = signed(), signed(OTHER, kid="k2")
    with pytest.raises(UnknownKey):
        tokens.principal(old)
    await tokens.refresh()
    assert tokens.principal(old).name == "oidc:ada"
    clock.now += EVERY
    keys.keys = (jwk(OTHER, "k2"),)
    with pytest.raises(UnknownKey):
        tokens.principal(new)
    await tokens.refresh()
    assert tokens.principal(new).name == "oidc:ada"
    with pytest.raises(UnknownKey):
        tokens.principal(old)


async def test_made_up_keys_do_not_make_us_ask_the_provider_again_and_again(clock: Clock) -> None:
    keys = Told(clock, jwk(RSA, "k1"))
    tokens = OidcTokens(SETTINGS, keys=keys)
    for _ in range(20):
        with pytest.raises(UnknownKey):
            tokens.principal(signed(OTHER, kid="made-up"))
        await tokens.refresh()
    assert keys.asked == 1


async def test_a_provider_that_is_away_is_done_without_for_a_day(clock: Clock) -> None:
    keys = Told(clock, jwk(RSA, "k1"))
    tokens = OidcTokens(SETTINGS, keys=keys)
    token = signed()
    await tokens.refresh()
    assert tokens.principal(token).name == "oidc:ada"
    keys.keys = None
    clock.now += FRESH
    with pytest.raises(UnknownKey):
        tokens.principal(token)
    await tokens.refresh()
    assert keys.asked == 2
    assert tokens.principal(token).name == "oidc:ada", "it was asked, and does not answer"
    clock.now += GOOD
    await tokens.refresh()
    with pytest.raises(UnknownKey):
        tokens.principal(token)


async def test_a_token_without_the_name_of_a_key_is_by_the_only_one(clock: Clock) -> None:
    keys = Told(clock, jwk(RSA, "k1"))
    tokens = OidcTokens(SETTINGS, keys=keys)
    await tokens.refresh()
    assert tokens.principal(signed(kid="")).name == "oidc:ada"
    with pytest.raises(UnknownKey):
        tokens.principal(signed(OTHER, kid=""))


@pytest.mark.parametrize(
    ("told", "role", "scope", "account"),
    [
        ({"groups": ["hpc", "hpc-admins"]}, "admin", (), ""),
        ({"groups": [], "realm_access": {"roles": ["operator"]}}, "operator", ("rack1",), "ops"),
        ({"groups": "hpc"}, "viewer", (), "ada"),
        ({"preferred_username": "ada@example.org"}, "viewer", (), ""),
        ({"preferred_username": None, "sub": "u-1"}, "viewer", (), "u-1"),
    ],
)
def test_the_first_rule_that_fits_counts(told: dict[str, Any], role: str, scope: tuple[str, ...], account: str) -> None:
    who = principal_of(SETTINGS, claims(**told))
    assert (who.role, who.scope, who.account) == (role, scope, account)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (OidcSettings(issuer="http://login.example.org", rules=RULES), "issuer"),
        (OidcSettings(issuer=ISSUER, rules=RULES, audience=""), "audience"),
        (OidcSettings(issuer=ISSUER), "rules"),
        (
            OidcSettings(issuer=ISSUER, rules=(OidcRule(claim="a", value="b", role="viewer", account="ro ot"),)),
            "rules",
        ),
    ],
)
def test_settings_by_which_anybody_would_get_in_are_refused(settings: OidcSettings, where: str) -> None:
    with pytest.raises(BadRequest) as caught:
        settings.check()
    assert caught.value.where == where
    OidcSettings().check()


@asynccontextmanager
async def provider(port: int, *more: str) -> AsyncIterator[str]:
    """A real one, on loopback, with a key of its own."""
    with ExitStack() as ends:
        yield await asyncio.to_thread(ends.enter_context, oidc_provider(port, *more))


async def id_token(address: str, client_id: str = "strata") -> str:
    """What somebody gets who logs in there."""
    back = "http://localhost/back"
    asked = {"client_id": client_id, "redirect_uri": back, "response_type": "code", "scope": "openid profile"}
    async with httpx.AsyncClient(timeout=60) as client:
        agreed = await client.post(f"{address}/oauth2/authorize", params=asked, data={"sub": "ada"})
        code = httpx.URL(agreed.headers["location"]).params["code"]
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back}
        given = await client.post(f"{address}/oauth2/token", data=form, auth=(client_id, "x"))
        return str(given.json()["id_token"])


@pytest.mark.server
@pytest.mark.slow
async def test_people_of_a_real_provider_get_in_by_the_front_door_and_nobody_else_does(service: Service) -> None:
    port = free_port()
    settings = OidcSettings(issuer=f"http://localhost:{port}", rules=RULES)
    clock = Clock()
    oidc = service.auth.oidc = OidcTokens(settings, keys=Keys(settings, clock=clock))

    async def who(token: str) -> httpx.Response:
        async with service.client("front", token) as client:
            return await client.get("/v1/auth/whoami")

    async with service.client("front") as nobody:
        way = (await nobody.get("/v1/auth/oidc")).json()
    assert way == {"issuer": settings.issuer, "client": "strata", "authorize": ""}, "it has not been heard yet"
    async with provider(port) as address:
        token = await id_token(address)
        # It was away when it was asked last, half a minute ago: the request itself asks for the keys.
        clock.now += EVERY
        first = await who(token)
        assert first.status_code == 200, first.text
        told = first.json()
        assert (told["name"], told["role"], told["via"]) == ("oidc:ada", "viewer", "oidc")
        async with service.client("front", token) as client:
            node = (await client.get("/v1/nodes")).json()["items"][0]["name"]
            assert (await client.get(f"/v1/nodes/{node}")).status_code == 200, "by the short way too"
            assert (await client.post("/v1/auth/tokens", json={"role": "admin"})).status_code == 403
        wrong = await who(await id_token(address, "another-client"))
        assert (wrong.status_code, "for another service" in wrong.text) == (401, True)
        elsewhere = OidcSettings(issuer=f"http://localhost:{port}/realms/other", rules=RULES)
        service.auth.oidc = OidcTokens(elsewhere, keys=oidc._keys)  # those that signed it: they are not what is wrong
        stranger = await who(token)
        assert (stranger.status_code, "from another provider" in stranger.text) == (401, True)
        service.auth.oidc = oidc
        header, body, _ = token.split(".")
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        for forgery in (f"{none}.{body}.", f"{header}.{body}.AAAA", signed(kid="")):
            assert (await who(forgery)).status_code == 401
    async with provider(port) as address:
        # It has a new key. Within the half minute in which it was asked it is not asked again.
        assert (await who(await id_token(address))).status_code == 401
        clock.now += EVERY
        assert (await who(await id_token(address))).status_code == 200
        assert (await who(token)).status_code == 401, "signed by the old one"
    await oidc.stop()


@pytest.mark.server
@pytest.mark.slow
async def test_a_real_providers_token_that_has_expired_is_refused(service: Service) -> None:
    port = free_port()
    settings = OidcSettings(issuer=f"http://localhost:{port}", rules=RULES)
    oidc = service.auth.oidc = OidcTokens(settings, keys=Keys(settings))
    async with provider(port, "--token-max-age", "-600") as address:
        async with service.client("front", await id_token(address)) as client:
            answer = await client.get("/v1/auth/whoami")
        assert (answer.status_code, "has expired" in answer.text) == (401, True), answer.text
    await oidc.stop()


async def test_where_there_is_no_provider_its_tokens_are_none(service: Service) -> None:
    async with service.client("front", signed()) as client:
        assert (await client.get("/v1/auth/whoami")).status_code == 401
        assert (await client.get("/v1/auth/oidc")).status_code == 404
