"""What nodes fetch through the real nginx: certificates for tokens."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from strata.api.front import Receive, Scope, Send
from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.rights import WHO
from strata.api.server import bind_private
from strata.api.services import SERVICES
from strata.api.web_account import web_account
from strata.core.errors import Unauthenticated
from strata.core.host.private_file import write_private
from strata.fleet.access.credentials import Authenticator
from strata.fleet.services import Services
from strata.provisioning.agents.door import AgentDoor, agents_app
from strata.provisioning.identity.door import BODY_MOST
from strata.store.audit import Ledger
from support.boot_site import Boots, booting, make_csr

pytestmark = [pytest.mark.server, pytest.mark.slow]


class FrontDoorSite:
    """nginx in front of the handlers for nodes."""

    def __init__(self, site: Boots, url: str, directory: Path) -> None:
        self.site = site
        self.url = url
        self.directory = directory

    def client(self, certificate: str = "", key: bytes = b"") -> httpx.AsyncClient:
        context = ssl.create_default_context(cadata=self.site.authority.pem.decode())
        if certificate:
            chain = self.directory / "node.pem"
            write_private(chain, certificate.encode() + key)
            context.load_cert_chain(chain)
        return httpx.AsyncClient(base_url=self.url, verify=context)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[FrontDoorSite]:
    import uvicorn

    async with booting(tmp_path) as site:
        authenticator = Authenticator(site.store, Ledger(site.store))
        await authenticator.start()
        services, nobody = Services(), cast("Any", None)
        services.put(AgentDoor(hub=nobody, identity=site.identity, unknown=nobody, inventoried=nobody, logged=nobody))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            try:
                scope[WHO] = authenticator.certificate(
                    *(headers.get(f"x-strata-client-{part}", "") for part in ("verify", "serial", "dn"))
                )
            except Unauthenticated as error:
                scope[WHO] = error
            scope[SERVICES] = services
            await agents_app(scope, receive, send)

        site.authority.renew_server(["127.0.0.1"])
        account = web_account()
        sock = bind_private(tmp_path / "web" / "front.sock", (account.pw_uid, account.pw_gid) if account else None)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[sock])
        nginx = Nginx(
            FrontDoor(
                directory=tmp_path / "nginx",
                host="127.0.0.1",
                port=free_port("127.0.0.1"),
                upstream=tmp_path / "web" / "front.sock",
                secret="not asked for",
                certificate=site.authority.server_paths[0],
                key=site.authority.server_paths[1],
                ca=site.authority.certificate_path,
                workers=1,
                connections=64,
            )
        )
        await nginx.start()
        yield FrontDoorSite(site, f"https://127.0.0.1:{nginx.door.port}", tmp_path)
        await nginx.stop()
        await server.shutdown(sockets=[sock])
        await authenticator.stop()


async def test_a_node_redeems_its_token_and_renews_its_certificate(
    door: FrontDoorSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = await door.site.boot(1)
    csr, key = make_csr("n0001")
    ask = {"token": told["token"], "csr": csr.decode()}
    async with door.client() as client:
        got = await client.post("/agent/v1/redeem", json=ask)
        assert got.status_code == 200, got.text
        again = await client.post("/agent/v1/redeem", json=ask)
        assert again.status_code == 403
        assert again.headers["content-type"] == "application/problem+json"
        assert told["token"] not in again.text
        assert door.site.kinds == ["token-replayed"]
        assert door.site.alarms[0].peer == "127.0.0.1"
        nobody = await client.post("/agent/v1/renew", json={"csr": csr.decode()})
        assert nobody.status_code == 401
    second, _ = make_csr("n0001")
    async with door.client(got.json()["certificate"], key) as client:
        renewed = await client.post("/agent/v1/renew", json={"csr": second.decode()})
        assert renewed.status_code == 200, renewed.text
        assert renewed.json()["certificate"] != got.json()["certificate"]
        foreign, _ = make_csr("n0002")
        assert (await client.post("/agent/v1/renew", json={"csr": foreign.decode()})).status_code == 403
        # The node boots anew: what this certificate said before counts no more.
        after = await door.site.boot(1)
        await door.site.identity.redeem(after["token"], make_csr("n0001")[0])
        assert (await client.post("/agent/v1/renew", json={"csr": second.decode()})).status_code == 403
        assert door.site.kinds[-1] == "certificate-superseded"
    written = [path.read_bytes() for path in (door.directory / "nginx").rglob("*") if path.is_file()]
    secret = told["token"].split(".")[1]
    assert not [text for text in (*written, caplog.text.encode()) if secret.encode() in text]


async def test_a_certificate_of_another_role_renews_nothing(door: FrontDoorSite) -> None:
    issued = door.site.authority.issue("n0001", "operator", (), 600)
    async with door.client(issued.certificate.decode(), issued.key) as client:
        csr, _ = make_csr("n0001")
        assert (await client.post("/agent/v1/renew", json={"csr": csr.decode()})).status_code == 403


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"token": 1}', b'{"token": "x", "csr": "y", "more": 1}', b"x" * 99999]
)
async def test_a_body_that_is_none_is_refused_and_not_repeated(door: FrontDoorSite, body: bytes) -> None:
    async with door.client() as client:
        got = await client.post("/agent/v1/redeem", content=body)
        assert got.status_code == 400
        assert "xxx" not in got.text
    assert BODY_MOST < 99999


async def test_a_forged_address_is_overwritten_by_nginx(door: FrontDoorSite) -> None:
    told = await door.site.boot(1)
    csr, _ = make_csr("n0002")
    async with door.client() as client:
        got = await client.post(
            "/agent/v1/redeem",
            json={"token": told["token"], "csr": csr.decode()},
            headers={"X-Strata-Client-Address": "10.9.9.9"},
        )
    assert got.status_code == 403
    assert [(alarm.kind, alarm.peer) for alarm in door.site.alarms] == [("token-foreign", "127.0.0.1")]
