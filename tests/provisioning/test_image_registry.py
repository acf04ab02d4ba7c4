"""Pulling from registries: a real one on loopback, and one that asks for tokens and lies."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from strata.core.errors import BadRequest, Denied, NotFound, StrataError, Unavailable
from strata.provisioning.images import registry_hosts as reach
from strata.provisioning.images.registry import RemoteImage, pull
from strata.provisioning.images.registry_hosts import Reach
from strata.provisioning.images.shelf import Shelf
from support.image_support import Site, digest, file, image_blobs, layer

pytestmark = [pytest.mark.slow, pytest.mark.server]

BASE = layer(file("etc/motd", b"hello"), file("bin/run", b"x" * 100_000))
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def quiet(text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "images")
    made.open()
    return made


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[str]:
    """Debian's docker-registry; its ``host:port``."""
    binary = shutil.which("docker-registry")
    assert binary, "docker-registry is not installed: make setup"
    from strata.api.nginx import free_port

    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": address},
    }
    path = tmp_path / "registry.yml"
    path.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        binary,
        "serve",
        str(path),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"},
    )
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://{address}/v2/") as reply:
                        if reply.status == 200:
                            break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def push(address: str, name: str, tag: str, blobs: dict[str, bytes], manifest: str) -> None:
    """Put an image of one architecture and an index of two there, as a client does."""
    async with aiohttp.ClientSession() as session:
        for key, data in blobs.items():
            if key == manifest:
                continue
            async with session.post(f"http://{address}/v2/{name}/blobs/uploads/") as begun:
                place = begun.headers["Location"]
            place += f"{'&' if '?' in place else '?'}digest={key}"
            async with session.put(place, data=data, headers={"Content-Type": "application/octet-stream"}) as sent:
                assert sent.status == 201, await sent.text()
        url = f"http://{address}/v2/{name}/manifests"
        for where in (tag, manifest):
            async with session.put(f"{url}/{where}", data=blobs[manifest], headers={"Content-Type": MANIFEST}) as put:
                assert put.status == 201, await put.text()
        entry = {"mediaType": MANIFEST, "digest": manifest, "size": len(blobs[manifest])}
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [{**entry, "platform": {"os": "linux", "architecture": name}} for name in ("amd64", "arm64")],
        }
        async with session.put(f"{url}/{tag}-many", json=index, headers={"Content-Type": INDEX}) as put:
            assert put.status == 201, await put.text()


async def test_an_image_is_pulled_from_a_real_registry(registry: str, tmp_path: Path) -> None:
    blobs, manifest = image_blobs(BASE)
    await push(registry, "lab/tools", "v1", blobs, manifest)
    site = Site(tmp_path)
    await site.images.start()
    release = await site.images.take_remote("alice", f"{registry}/lab/tools:v1", "tools:1", site.log)
    many = await site.images.take_remote("alice", f"{registry}/lab/tools:v1-many", "tools:2", site.log)
    pinned = await site.images.take_remote("alice", f"{registry}/lab/tools@{manifest}", "tools:3", site.log)
    assert {release.image, many.image, pinned.image} == {manifest}
    assert await site.images.verify("tools:1") == []
    assert "layer 1" in site.log.read_text()
    with pytest.raises(NotFound):
        await site.images.take_remote("alice", f"{registry}/lab/tools:v9", "tools:9", site.log)
    await site.images.stop()
    await site.store.close()


class Registry:
    """A registry that wants a token, and gives what a test tells it to."""

    def __init__(self) -> None:
        self.blobs, self.manifest = image_blobs(BASE)
        self.seen: list[tuple[str, str]] = []
        self.realm = ""
        self.redirect = ""
        """Where it sends those who ask for blobs."""
        self.fault = ""

    async def token(self, request: web.Request) -> web.Response:
        self.seen.append(("token", request.headers.get("Authorization", "")))
        assert request.query["scope"] == "repository:a:pull"
        wrong = {"long token": "T" * (2 << 20), "token of lines": "T1\r\nEvil: 1", "token of a number": 7}
        return web.json_response({"token": wrong.get(self.fault, "T1")})

    async def serve(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, request.headers.get("Authorization", "")))
        if request.headers.get("Authorization") != "Bearer T1":
            realm = "" if self.fault == "no realm" else f'realm="{self.realm}",'
            challenge = f'Bearer {realm}service="s",scope="repository:a:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        wanted = request.path.rpartition("/")[2]
        if "/manifests/" in request.path:
            return self._manifest(request)
        if self.redirect and "/other/" not in request.path:
            return web.Response(status=307, headers={"Location": f"{self.redirect}/{wanted}"})
        more = b"more" if self.fault == "other size" else b""
        return web.Response(body=self.blobs[wanted] + more)

    def _manifest(self, request: web.Request) -> web.Response:
        sends = {"circle": request.path, "login in a redirect": f"http://me:pw@{request.host}/", "no url": "http://["}
        if self.fault in sends:
            return web.Response(status=302, headers={"Location": sends[self.fault]})
        if self.fault == "hang up":
            assert request.transport is not None
            request.transport.close()
        wrong = {"brackets": b'{"a":' + b"[" * 100_000, "long manifest": b" " * (5 << 20)}
        return web.Response(body=wrong.get(self.fault, self.blobs[self.manifest]), content_type=MANIFEST)


@pytest.fixture
async def guarded() -> AsyncIterator[tuple[Registry, str]]:
    made = Registry()
    app = web.Application()
    app.router.add_get("/token", made.token)
    app.router.add_get("/v2/{path:.*}", made.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0)
    await place.start()
    host, port = runner.addresses[0][:2]
    made.realm = f"http://{host}:{port}/token"
    yield made, f"{host}:{port}"
    await runner.cleanup()


async def test_a_token_is_asked_for_and_the_login_goes_to_its_own_host_only(
    guarded: tuple[Registry, str], shelf: Shelf, tmp_path: Path
) -> None:
    registry, host = guarded
    logins = tmp_path / "logins.json"
    login = base64.b64encode(b"me:secret").decode()
    logins.write_text(json.dumps({"auths": {host: {"auth": login}, "other.example": {"auth": "b3RoZXI6eA=="}}}))
    assert await pull(shelf, f"{host}/a:1", quiet, most=1 << 30, logins=logins) == registry.manifest
    assert ("token", f"Basic {login}") in registry.seen
    assert not any("b3RoZXI6" in header for _, header in registry.seen)


class Elsewhere:
    """Another server, that writes down who asks it for what; with TLS or without."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self.blobs = blobs
        self.seen: list[tuple[str, str]] = []
        self.url = ""

    async def serve(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, request.headers.get("Authorization", "")))
        if request.path == "/token":
            return web.json_response({"token": "T1"})
        return web.Response(body=self.blobs[request.path.rpartition("/")[2]])


@asynccontextmanager
async def served(there: Elsewhere, tls: ssl.SSLContext | None = None) -> AsyncIterator[Elsewhere]:
    app = web.Application()
    app.router.add_get("/{path:.*}", there.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    there.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    yield there
    await runner.cleanup()


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For 127.0.0.1: what a server has, and what believes it."""
    key, made = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", key, "-out", made, "-subj", "/CN=blobs", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made, key)
    return server, ssl.create_default_context(cafile=made)


@pytest.fixture
def believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server of this test has; aiohttp's own context believes it."""
    server, client = certificate(tmp_path)
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", client)
    return server


async def test_blobs_may_be_elsewhere_over_tls_and_the_token_does_not_go_there(
    guarded: tuple[Registry, str], shelf: Shelf, believed: ssl.SSLContext
) -> None:
    registry, host = guarded
    async with served(Elsewhere(registry.blobs), believed) as there:
        registry.redirect = f"{there.url}/store"
        assert await pull(shelf, f"{host}/a:1", quiet, most=1 << 30) == registry.manifest
        assert len(there.seen) == 2
        assert {header for _, header in there.seen} == {""}
    assert any(header == "Bearer T1" for _, header in registry.seen)


async def test_the_registry_may_send_us_round_its_own_house(guarded: tuple[Registry, str], shelf: Shelf) -> None:
    registry, host = guarded
    registry.redirect = "/v2/other"
    assert await pull(shelf, f"{host}/a:1", quiet, most=1 << 30) == registry.manifest
    assert any(path.startswith("/v2/other/") and header == "Bearer T1" for path, header in registry.seen)


async def test_a_redirect_without_tls_is_not_followed(guarded: tuple[Registry, str], shelf: Shelf) -> None:
    registry, host = guarded
    async with served(Elsewhere(registry.blobs)) as there:
        registry.redirect = f"{there.url}/store"
        with pytest.raises(Denied, match="without TLS") as denied:
            await pull(shelf, f"{host}/a:1", quiet, most=1 << 30)
        assert there.seen == []
    assert (denied.value.where, "https://" in denied.value.hint) == (host, True)


async def test_a_token_is_not_fetched_without_tls(guarded: tuple[Registry, str], shelf: Shelf) -> None:
    registry, host = guarded
    async with served(Elsewhere({})) as there:
        for realm in ("http://192.0.2.1/token", f"{there.url}/token", "ftp://127.0.0.1/token", "http://[::1]:1/token"):
            registry.realm = realm
            with pytest.raises(Denied, match="without TLS"):
                await pull(shelf, f"{host}/a:1", quiet, most=1 << 30)
        assert there.seen == []


class Names(AbstractResolver):
    """A resolver that says what a test tells it to."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self.names[host]
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "fe80::1", "::ffff:10.0.0.1", "224.0.0.1"])
@pytest.mark.parametrize("way", ["realm", "redirect"])
async def test_the_address_that_a_name_stands_for_decides(
    guarded: tuple[Registry, str], shelf: Shelf, monkeypatch: pytest.MonkeyPatch, address: str, way: str
) -> None:
    registry, host = guarded
    setattr(registry, way, "https://inner.example/token")
    monkeypatch.setattr(reach, "ThreadedResolver", lambda: Names({"inner.example": address}))
    with pytest.raises(Denied, match="a network that is not its own"):
        await pull(shelf, f"{host}/a:1", quiet, most=1 << 30)


@pytest.mark.parametrize(
    ("registry", "target", "may"),
    [
        ("192.0.2.1", "8.8.8.8", True),
        ("8.8.4.4", "8.8.8.8", True),
        ("8.8.4.4", "127.0.0.1", False),
        ("8.8.4.4", "::1", False),
        ("8.8.4.4", "0.0.0.0", False),
        ("8.8.4.4", "::ffff:127.0.0.1", False),
        ("8.8.4.4", "64:ff9b::7f00:1", False),
        ("8.8.4.4", "2002:7f00:1::", False),
        ("8.8.4.4", "10.1.1.1", False),
        ("8.8.4.4", "100.64.0.1", False),
        ("8.8.4.4", "fd00::1", False),
        ("8.8.4.4", "169.254.169.254", False),
        ("10.2.2.2", "10.1.1.1", True),
        ("10.2.2.2", "127.0.0.1", False),
        ("10.2.2.2", "169.254.169.254", False),
        ("169.254.1.1", "169.254.169.254", False),
        ("127.0.0.1", "127.0.0.2", True),
        ("127.0.0.1", "10.1.1.1", False),
    ],
)
async def test_a_registry_sends_us_only_to_networks_that_it_is_in(registry: str, target: str, may: bool) -> None:
    names = Names({"registry.example": registry, "other.example": target})
    rule = Reach(URL("https://registry.example/v2/"), resolver=names)
    assert await rule.resolve("registry.example")
    literal = URL.build(scheme="https", host=target)
    if may:
        rule.check(literal)
        assert [found["host"] for found in await rule.resolve("other.example")] == [target]
        return
    with pytest.raises(Denied, match="not its own"):
        rule.check(literal)
    with pytest.raises(Denied, match="not its own"):
        await rule.resolve("other.example")


async def test_a_name_that_means_another_address_by_now_is_looked_at_again() -> None:
    names = Names({"registry.example": "8.8.4.4", "other.example": "8.8.8.8"})
    rule = Reach(URL("https://registry.example/v2/"), resolver=names)
    assert await rule.resolve("other.example")
    names.names["other.example"] = "127.0.0.1"
    with pytest.raises(Denied):
        await rule.resolve("other.example")


@pytest.mark.parametrize(
    ("fault", "error", "why"),
    [
        ("circle", Unavailable, "more than 5 times"),
        ("login in a redirect", Denied, "gives us a login"),
        ("no url", StrataError, "the registry"),
        ("no realm", Denied, "wants a login"),
        ("long token", BadRequest, "larger than 1024 KiB"),
        ("token of lines", BadRequest, "cannot be one"),
        ("token of a number", BadRequest, "cannot be read"),
        ("brackets", BadRequest, "cannot be read"),
        ("long manifest", BadRequest, "larger than 4096 KiB"),
        ("other size", BadRequest, "manifest says"),
        ("hang up", Unavailable, "cannot be reached"),
    ],
)
async def test_whatever_a_registry_does_is_told_as_what_it_is(
    guarded: tuple[Registry, str], shelf: Shelf, fault: str, error: type[StrataError], why: str
) -> None:
    registry, host = guarded
    registry.fault = fault
    with pytest.raises(error, match=why):
        await pull(shelf, f"{host}/a:1", quiet, most=1 << 30)
    assert list((shelf.root / "work").iterdir()) == []


@pytest.mark.parametrize("harm", ["blob", "manifest", "too large", "truncated"])
async def test_a_registry_that_lies_is_found_out(guarded: tuple[Registry, str], shelf: Shelf, harm: str) -> None:
    registry, host = guarded
    manifest = json.loads(registry.blobs[registry.manifest])
    first = manifest["layers"][0]["digest"]
    reference = f"{host}/a:1"
    if harm == "blob":
        registry.blobs[first] = registry.blobs[first][:-1] + b"\xff"
    elif harm == "truncated":
        registry.blobs[first] = registry.blobs[first][:-10]
    elif harm == "too large":
        registry.blobs[first] += b"\0" * (4 << 20)
    else:
        reference = f"{host}/a@{digest(b'something else')}"
    with pytest.raises(BadRequest):
        await pull(shelf, reference, quiet, most=1 << 30)
    assert not shelf.blob(first).exists()
    assert list((shelf.root / "work").iterdir()) == []


async def test_a_registry_that_is_away_is_said_to_be(shelf: Shelf) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await pull(shelf, "127.0.0.1:1/a:1", quiet, most=1 << 30)


def test_plain_http_is_for_this_machine_only() -> None:
    assert RemoteImage.parse("127.0.0.1:5000/a/b:1").base == "http://127.0.0.1:5000/v2/a/b/"
    assert RemoteImage.parse("localhost/a").base.startswith("http://")
    assert RemoteImage.parse("registry.example/a").base == "https://registry.example/v2/a/"
    assert RemoteImage.parse("127.0.0.1.example/a").base.startswith("https://")
    for bad in ("a", "host/../x", "host/A", "host/a:b/c", "user@host/a", "http://host/a", "host/a b"):
        with pytest.raises(BadRequest):
            RemoteImage.parse(bad)
