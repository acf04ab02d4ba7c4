"""The front door, with the real nginx: certificates good and bad, forged headers, restarts, and no trace left."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from nginx_site import SOURCES, Site, children, gone, made_site, opened_site, until
from real_service import furnish_hardware

from strata.api.nginx_config import FrontDoor, config_text
from strata.api.services import Watchers
from strata.api.streams import STREAMS
from strata.core.errors import BadRequest, Unavailable
from strata.fleet.access.authority import Authority, Issued
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.consoles.service import ConsoleService
from strata.hardware.events.hub import EventHub
from strata.hardware.events.inbox import BODY_MOST

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(tmp_path) as made:
        yield made


def self_signed(subject: x509.Name) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return Issued(
        serial="7",
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        expires=0,
    )


async def test_a_certificate_of_ours_opens_what_its_role_may(site: Site) -> None:
    async with site.client(site.ca.issue("alice", "viewer", ["g1", "g2"], 600)) as client:
        who = (await client.get("/v1/auth/whoami")).json()
        assert (who["name"], who["role"], who["scope"], who["via"]) == ("alice", "viewer", ["g1", "g2"], "certificate")
        assert (await client.post("/v1/holds", json={"select": "*", "reason": "x"})).status_code == 403


async def test_without_a_certificate_a_token_is_needed(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get("/v1/auth/whoami")
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert "strict-transport-security" in answer.headers
        assert (await client.get("/v1/health")).status_code == 200
    async with site.client(Authorization=f"Bearer {await site.service.token('operator')}") as client:
        assert (await client.get("/v1/auth/whoami")).json()["role"] == "operator"


@pytest.mark.parametrize("kind", ["foreign", "same subject", "expired", "server"])
async def test_a_certificate_that_is_not_good_opens_nothing(site: Site, tmp_path: Path, kind: str) -> None:
    ours = site.ca.issue("root", "admin", [], 600)
    subject = x509.load_pem_x509_certificate(ours.certificate).subject
    if kind == "foreign":
        issued = Authority.open(tmp_path / "other").issue("root", "admin", [], 600)
    elif kind == "same subject":
        issued = self_signed(subject)
    elif kind == "expired":
        issued = site.ca.issue("root", "admin", [], -60)
    else:
        paths = site.ca.server_paths
        issued = Issued(serial="5", certificate=paths[0].read_bytes(), key=paths[1].read_bytes(), expires=0)
    async with site.client(issued) as client:
        answer = await client.get("/v1/auth/whoami")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"]


async def test_a_revoked_certificate_is_refused_on_the_very_next_request(site: Site) -> None:
    issued = site.ca.issue("bob", "viewer", [], 600)
    async with site.client(issued) as client:
        assert (await client.get("/v1/auth/whoami")).status_code == 200
        await site.service.auth.revoke_certificate(LOCAL_ADMIN, issued.serial)
        answer = await client.get("/v1/auth/whoami")
    assert (answer.status_code, "revoked" in answer.json()["detail"]) == (401, True)


async def test_headers_about_certificates_cannot_be_forged(site: Site) -> None:
    forged = {
        "X-Strata-Client-Verify": "SUCCESS",
        "X-Strata-Client-Serial": "AB",
        "X-Strata-Client-DN": "OU=role:admin,CN=mallory,O=Strata",
    }
    spelt = {key.replace("-", "_"): value for key, value in forged.items()}
    for headers in (forged, spelt, forged | spelt, {key.lower(): value for key, value in forged.items()}):
        async with site.client() as client:
            assert (await client.get("/v1/auth/whoami", headers=headers)).status_code == 401
        async with site.client(site.ca.issue("eve", "viewer", [], 600)) as client:
            assert (await client.get("/v1/auth/whoami", headers=headers)).json()["name"] == "eve"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_tls_is_refused(site: Site, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cadata=site.ca.pem.decode())
    context.minimum_version = context.maximum_version = version
    async with httpx.AsyncClient(verify=context, trust_env=False) as client:
        url = f"https://127.0.0.1:{site.door.port}/v1/health"
        if version < ssl.TLSVersion.TLSv1_2:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
        else:
            assert (await client.get(url)).status_code == 200


async def test_plain_http_and_a_service_that_is_away_get_problems_too(site: Site) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        plain = await client.get(f"http://127.0.0.1:{site.door.port}/v1/health")
    await site.api.stop()
    async with site.client() as client:
        away = await client.get("/v1/health")
    assert [(a.status_code, a.headers["content-type"]) for a in (plain, away)] == [
        (400, "application/problem+json"),
        (503, "application/problem+json"),
    ]
    assert away.json()["detail"]


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /v1/nodes/n1%00 HTTP/1.1",
        b"GET /v1/nodes/n1\0 HTTP/1.1",
        b"GET /v1/nodes/%zz HTTP/1.1",
        b"GET /../../etc/passwd HTTP/1.1",
        b"GET /redfish/v1/%00 HTTP/1.1",
        b"POST /v1/boot/media/%00.iso HTTP/1.1",
        b"GET no-slash HTTP/1.1",
        b"nonsense",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1",
        b"GET /v1/health HTTP/1.1\r\nX-Long: " + b"x" * 40_000,
    ],
    ids=lambda line: line[:24].decode().replace("\0", "NUL"),
)
async def test_what_is_no_request_is_the_clients_mistake_and_told_as_a_problem(site: Site, request_line: bytes) -> None:
    context = ssl.create_default_context(cadata=site.ca.pem.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.door.port, ssl=context)
    async with asyncio.timeout(60):
        writer.write(request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        with suppress(ssl.SSLError, OSError):
            await writer.wait_closed()
    status = int(head.split()[1])
    assert status in (400, 414), head
    assert b"application/problem+json" in head
    assert msgspec.json.decode(body)["status"] == status


async def test_events_pass_without_being_held_back(site: Site) -> None:
    async with (
        site.client(Authorization=f"Bearer {await site.service.token('viewer')}") as client,
        client.stream("GET", "/v1/watch") as answer,
    ):
        chunks = answer.aiter_text()
        assert "retry" in await anext(chunks)
        await site.service.put_node("n1")
        async with asyncio.timeout(60):
            assert "event: node" in await anext(chunks)


@pytest.mark.parametrize("path", [path for path in STREAMS if path.startswith("/v1/")])
async def test_every_stream_passes_and_none_can_be_asked_for_its_head(tmp_path: Path, path: str) -> None:
    async with opened_site(tmp_path, layers=True) as site:
        await furnish_hardware(site.service)
        await _hear(site, path)


async def _hear(site: Site, path: str) -> None:
    where = path.format(name="n00001", job=getattr(site.service, "user_job", ""))
    where += "?all=true" if path == "/v1/jobs/events" else ""
    async with site.client(Authorization=f"Bearer {await site.service.token('operator')}") as client:
        assert (await client.head(where)).status_code == 405
        async with client.stream("GET", where, headers={"Last-Event-ID": "0"}) as answer:
            assert answer.status_code == 200
            async with asyncio.timeout(60):
                chunks = answer.aiter_text()
                heard = await anext(chunks)
                if path.endswith("/console/raw"):  # of which nothing is kept: it must print now
                    taps = site.service.services.get(ConsoleService)._capture._taps
                    await until(lambda: "n00001" in taps)
                    for tap in taps["n00001"]:
                        tap.put_nowait(b"login: ")
                while "data: " not in heard:
                    heard += await anext(chunks)
        await until(lambda: site.service.services.get(Watchers).count == 0)


async def test_a_push_of_a_bmc_leaves_no_trace_of_its_token(tmp_path: Path) -> None:
    async with opened_site(tmp_path, layers=True) as site, site.client() as client:
        hub = site.service.of(EventHub)
        await hub.refresh()
        bmc = site.service.service.registry.node("n00001").bmc
        known = hub.site_of(bmc)
        assert known is not None
        token = hub.inbox.token(known.root)
        where = f"/v1/hardware/events/in/{token}"
        push = {"Events": [{"Message": "hot", "Severity": "Critical"}]}
        assert (await client.post(where, json=push)).status_code == 204
        assert (await client.post(f"{where}1", content=b"{}")).status_code == 403
        assert (await client.post(where, content=b"{")).status_code == 400
        assert (await client.get(where)).status_code == 405
        large = await client.post(where, content=b" " * (BODY_MOST + 1))
        assert (large.status_code, large.headers["content-type"]) == (413, "application/problem+json")
        assert (await client.post(where, content=b" " * BODY_MOST)).status_code == 400
        await site.api.stop()
        away = await client.post(where, content=b"{}")
        assert (away.status_code, away.headers["content-type"]) == (503, "application/problem+json")
        assert (await client.get("/v1/nodes")).status_code == 503
        logged = (site.door.directory / "nginx.log").read_text()
    assert "/v1/nodes" in logged
    assert token not in logged


async def test_a_new_server_certificate_is_taken_up_while_running(site: Site) -> None:
    async def serial() -> int:
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", site.door.port))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    before, pid = await serial(), site.nginx.pid
    assert site.ca.renew_server(["localhost", "127.0.0.1"], force=True)
    await site.nginx.reload()
    async with asyncio.timeout(60):
        while await serial() == before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert site.nginx.pid == pid


async def test_a_killed_nginx_comes_back_on_the_same_port(site: Site) -> None:
    pid = site.nginx.pid
    assert pid is not None
    await until(lambda: children(pid))  # it listens a moment before it has any
    workers = children(pid)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: site.nginx.restarts == 1 and site.nginx.pid not in (None, pid))
    # Workers that outlived their master would hold the port against the new one.
    await until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    async with asyncio.timeout(60):
        while True:
            with suppress(httpx.TransportError):
                async with site.client() as client:
                    assert (await client.get("/v1/health")).status_code == 200
                    break
            await asyncio.sleep(0.05)


async def test_nothing_runs_after_stop(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site:
        group = site.nginx.pid
        assert group is not None
    await until(lambda: gone(group))


async def test_nginx_ends_when_the_service_is_killed(tmp_path: Path) -> None:
    script = """
import asyncio, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from nginx_site import opened_site
async def main():
    async with opened_site(Path(sys.argv[1])) as site:
        print(site.nginx.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), *SOURCES, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    group = int(await child.stdout.readline())
    child.kill()
    await child.wait()
    try:
        await until(lambda: gone(group))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async with (
        made_site(tmp_path) as site,
        await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", site.door.port),
    ):
        await site.api.start()
        with pytest.raises(Unavailable, match=f"127.0.0.1:{site.door.port}"):
            await site.nginx.start()
        await site.api.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_it_works_without_root(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.stat().st_uid == 0 and "pytest" in str(folder):
            folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    script = """
import asyncio, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from nginx_site import opened_site
async def main():
    async with opened_site(Path(sys.argv[1])) as site, site.client(site.ca.issue("a", "viewer", [], 60)) as client:
        print((await client.get("/v1/auth/whoami")).json()["name"])
asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(home), *SOURCES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "a\n", done.stderr


@pytest.mark.parametrize("path", ["relative", '/a"b', "/a;b", "/a$b", "/a{b}", "/a\nb"])
def test_a_path_that_nginx_would_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(BadRequest):
        config_text(_door(directory=Path(path)))


@pytest.mark.parametrize("host", ["", "1.2.3.4; include /etc/passwd", "a b", "[::1"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(BadRequest):
        config_text(_door(host=host))


def _door(directory: Path = Path("/a"), host: str = "127.0.0.1") -> FrontDoor:
    path = Path("/x")
    return FrontDoor(
        directory=directory, host=host, port=1, upstream=path, secret="x", certificate=path, key=path, ca=path
    )
