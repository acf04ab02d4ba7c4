"""Secrets of the provisioning layer, followed through the real service: they are in no log, no answer and no file."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from provisioned import switch_on
from real_service import RealService, real_service

from strata.core import logs
from strata.provisioning.boot.service import BootService
from support.boot_site import boot_json, fetch, make_csr

pytestmark = [pytest.mark.slow, pytest.mark.server]

READ = (
    "/v1/audit",
    "/v1/alerts",
    "/v1/operations",
    "/v1/boot/nodes",
    "/v1/boot/nodes/n00001/script",
    "/v1/boot/profiles",
    "/v1/images",
    "/v1/nodes/n00001",
    "/v1/nodes/n00001/agent",
    "/v1/nodes/n00001/history",
    "/v1/nodes/n00001/why",
    "/v1/nodes/n00001/console",
    "/v1/status",
    "/metrics",
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, libraries' words too; but not those of the test's own client."""
    root, ours, client = (logging.getLogger(name) for name in (None, "strata", "httpx"))
    before = (list(root.handlers), root.level, ours.level)
    client.propagate = False
    stream = io.StringIO()
    root.handlers = []
    logs.setup(form="json", level="debug", stream=stream)
    raw = logging.StreamHandler(stream)  # as it was said, before anything is blacked out
    root.addHandler(raw)
    root.setLevel(logging.DEBUG)
    yield stream
    root.handlers, root.level = before[0], before[1]
    ours.setLevel(before[2])
    client.propagate = True


async def shown(real: RealService) -> str:
    """All that people can read about it."""
    async with real.client() as client:
        answers = [await client.get(path) for path in READ]
    assert all(answer.status_code == 200 for answer in answers), [(a.url, a.status_code) for a in answers]
    return "\n".join(answer.text for answer in answers)


def kept(directory: Path, but: Path | None = None) -> list[tuple[Path, bytes]]:
    """All that is on disk."""
    return [(path, path.read_bytes()) for path in directory.rglob("*") if path.is_file() and path != but]


async def test_the_token_of_a_boot_is_in_the_fragment_and_nowhere_else(tmp_path: Path, log: io.StringIO) -> None:
    answers: list[httpx.Response] = []
    async with real_service(tmp_path, "") as real:  # a store on disk
        await switch_on(real, "n00001")
        status, body = await fetch(real.of(BootService).server.port, "/boot/fragment/n00001/1", "127.1.0.1")
        assert status == 200
        token = boot_json(body)["token"]
        canary = token.split(".")[1]
        csr = {name: make_csr(name)[0].decode() for name in ("n00001", "n00002")}
        async with real.client("front") as client:
            for said in (
                {"token": token, "csr": csr["n00002"]},
                {"token": token, "csr": "no request"},
                {"token": token},
                {"token": [token], "csr": csr["n00001"]},
                {"token": token, "csr": csr["n00001"]},
                {"token": token, "csr": csr["n00001"]},
            ):
                answers.append(await client.post("/agent/v1/redeem", json=said))
            assert [answer.status_code for answer in answers] == [403, 400, 400, 400, 200, 403]
            for path in (f"/agent/v1/redeem/{token}", f"/agent/v1/redeem?token={token}", f"/v1/nodes/{token}"):
                answers.append(await client.post(path, content=token))
            answers.append(await client.get("/v1/nodes", headers={"Authorization": f"Bearer {token}"}))
            answers.append(await client.post("/agent/v1/hello", json={"macs": ["52:54:00:00:77:01"], "token": token}))
        status, body = await fetch(
            real.of(BootService).server.port, f"/boot/fragment/n00001/1?token={token}", "127.1.0.1"
        )
        assert status >= 400 and canary.encode() not in body
        seen = await shown(real)
        assert "another node" in seen, "an alert tells of the foreign request"
        found = [path for path, content in kept(tmp_path) if canary.encode() in content]
    assert not found
    assert canary not in seen
    assert not [answer.url for answer in answers if canary in answer.text or canary in str(answer.headers)]
    assert "node enrolled" in log.getvalue()
    assert canary not in log.getvalue()


class Registry:
    """Lets nobody in, and says what it was told to everybody who can hear it."""

    def __init__(self) -> None:
        self.status = 401
        self.heard: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        said = request.headers.get("Authorization", "")
        self.heard.add(said)
        if self.status == 307 and "again" not in request.path:
            elsewhere = request.url.with_host("localhost").with_path("/v2/again")
            return web.Response(status=307, headers={"Location": str(elsewhere), "X-Said": said})
        if self.status == 200:
            return web.json_response({}, headers={"X-Said": said})
        challenge = {"WWW-Authenticate": f'Basic realm="{said}"'}
        return web.json_response(
            {"errors": [{"code": "DENIED", "message": said}]}, status=self.status, headers=challenge
        )


@asynccontextmanager
async def registry() -> AsyncIterator[tuple[Registry, str]]:
    made = Registry()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield made, f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [401, 403, 404, 500, 200, 307])
async def test_a_login_to_a_registry_goes_there_and_nowhere_else(tmp_path: Path, log: io.StringIO, status: int) -> None:
    password = "s3cr3t-canary-9f2"
    login = base64.b64encode(f"robot:{password}".encode()).decode()
    file = tmp_path / "registries.json"
    async with registry() as (there, host), real_service(tmp_path, "") as real:
        there.status = status
        file.write_text(json.dumps({"auths": {host: {"auth": login}}}))
        async with real.client() as client:
            begun = await client.post("/v1/images", json={"name": "a", "registry": f"{host}/lab/a:1"})
            assert begun.status_code == 202, begun.text
            await real.service.operations.wait(begun.json()["operation"]["id"])
            ended = await client.get(f"/v1/operations/{begun.json()['operation']['id']}")
            told = await client.get(f"/v1/image-logs/{begun.json()['log']}")
        assert ended.json()["state"] == "failed", ended.text
        seen = [await shown(real), begun.text, ended.text, told.text, log.getvalue()]
        on_disk = [path for path, content in kept(tmp_path, file) if _is_in(content.decode("latin-1"), login, password)]
    assert there.heard == {f"Basic {login}"}, "and nobody follows it to a place without TLS"
    assert not on_disk
    assert not [text for text in seen if _is_in(text, login, password)]


async def test_a_file_of_logins_that_cannot_be_read_is_named_and_not_shown(tmp_path: Path, log: io.StringIO) -> None:
    async with real_service(tmp_path, "") as real:
        (tmp_path / "registries.json").write_text('{"auths": {"127.0.0.1:1": {"auth": "s3cr3t-canary-9f2"}}}')
        async with real.client() as client:
            begun = await client.post("/v1/images", json={"name": "a", "registry": "127.0.0.1:1/lab/a:1"})
            await real.service.operations.wait(begun.json()["operation"]["id"])
            ended = await client.get(f"/v1/operations/{begun.json()['operation']['id']}")
        assert "registries.json" in ended.text
        assert "s3cr3t" not in ended.text + await shown(real) + log.getvalue()


def _is_in(text: str, *secrets: str) -> bool:
    return any(secret in text for secret in secrets)
