"""Pulling from registries: a real one on loopback, and one that asks for tokens and lies."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from strata.core.errors import BadRequest, Denied, NotFound, Unavailable
from strata.provisioning.images.registry import RemoteImage, pull
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

    async def token(self, request: web.Request) -> web.Response:
        self.seen.append(("token", request.headers.get("Authorization", "")))
        assert request.query["scope"] == "repository:a:pull"
        return web.json_response({"token": "T1"})

    async def serve(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, request.headers.get("Authorization", "")))
        if request.headers.get("Authorization") != "Bearer T1":
            challenge = f'Bearer realm="{self.realm}",service="s",scope="repository:a:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        wanted = request.path.rpartition("/")[2]
        if "/manifests/" in request.path:
            return web.Response(body=self.blobs[self.manifest], content_type=MANIFEST)
        return web.Response(body=self.blobs[wanted])


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


async def test_a_token_is_not_fetched_without_tls(guarded: tuple[Registry, str], shelf: Shelf) -> None:
    registry, host = guarded
    registry.realm = "http://192.0.2.1/token"
    with pytest.raises(Denied, match="without TLS"):
        await pull(shelf, f"{host}/a:1", quiet, most=1 << 30)


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
