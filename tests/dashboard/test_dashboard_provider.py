"""Signing in to the dashboard at the site's identity provider: Chromium, nginx, a real service, a real provider."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from support.chromium import chromium
from support.dashboard_browser import Visitor
from support.oidc_provider import oidc_provider
from support.slurm import free_port
from system.system_support import Controller, eventually, world

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def service() -> Iterator[Controller]:
    with world() as site, oidc_provider(free_port()) as issuer:
        rules = [{"claim": "groups", "value": "hpc", "role": "viewer"}]
        config = site.directory / "strata.yaml"
        config.write_text(json.dumps({"oidc": {"issuer": issuer, "rules": rules}}))
        controller = site.controller("c1", site.simulator(4, 0.05), tls=True, more=("--config", str(config)))
        controller.start()
        controller.wait_ready()
        eventually("the provider is heard", lambda: controller.client.get("/v1/auth/oidc")["authorize"], 120.0)
        yield controller


def test_somebody_whom_the_provider_knows_signs_in_there_and_no_address_alone_does_it(service: Controller) -> None:
    with chromium() as browser:
        ada = Visitor(browser, service)
        page = ada.page
        # The provider's page would have its style sheet from the internet.
        ada.context.route(re.compile(r"^https?://(?!localhost|127\.)"), lambda route: route.abort())
        ada.open("#/node/n00003")
        page.get_by_role("button", name="Sign in at localhost").click()
        page.get_by_placeholder("sub").wait_for()
        asked = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        page.get_by_placeholder("sub").fill("ada")
        with page.expect_request("**/v1/auth/oidc/code") as redeemed:
            page.get_by_role("button", name="Authorize").click()
        expect(page.locator(".who")).to_contain_text("oidc:ada (viewer)")
        expect(page.get_by_role("heading", level=2)).to_contain_text("n00003")  # the page that was asked for
        sent = redeemed.value.post_data_json
        proof = base64.urlsafe_b64encode(hashlib.sha256(sent["verifier"].encode()).digest()).rstrip(b"=").decode()
        assert (proof, sent["nonce"]) == (asked["code_challenge"], asked["nonce"])
        assert page.url == f"{ada.url}/#/node/n00003", "no code stays in the address"
        assert (
            page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])") == '[{},{},""]'
        )
        assert [one for one in ada.complaints if ada.url in one] == []  # the provider's own page may complain

        page.reload()
        page.get_by_role("button", name="Sign in at localhost").click()
        page.get_by_role("button", name="Deny").click()
        expect(page.get_by_role("alert")).to_contain_text("did not sign you in")

        for address in (f"?code={sent['code']}&state={asked['state']}", "?code=x&state=y", "?error=access_denied"):
            stranger = Visitor(browser, service)
            stranger.open(address)
            expect(stranger.page.get_by_role("alert")).to_contain_text("did not begin this sign-in")
            assert stranger.page.get_by_role("navigation").count() == 0
            assert stranger.page.url == f"{stranger.url}/"
