"""Images of containers on a machine: unpacked once, never half, kept while they are wanted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from aiohttp import web
from container_support import layout, small_image

from strata.core.errors import BadRequest, NotFound, Unavailable
from strata.jobs.containers import cache as cache_module
from strata.jobs.containers.cache import Cache, Image
from strata.jobs.containers.images import bring
from strata.jobs.containers.unpacking import Order, written
from strata.provisioning.images.shelf import Shelf
from support.image_support import a_system, file, folder, hardlink, image_blobs, layer, oci_archive, symlink

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    made = Cache(tmp_path / "cache")
    made.open()
    return made


def aged(cache: Cache, image: Image, seconds: float) -> None:
    os.utime(cache._mark(image.digest), (time.time() - seconds, time.time() - seconds))


async def test_layers_become_a_folder_with_the_places_that_runtimes_mount_over(cache: Cache, tmp_path: Path) -> None:
    first = layer(folder("etc"), file("etc/a", b"old"), file("etc/b", b"b"), file("etc/set", b"s", mode=0o4755))
    second = layer(
        file("etc/a", b"new"), file("etc/.wh.b"), hardlink("etc/again", "etc/a"), symlink("etc/out", "/../../x")
    )
    image = await cache.from_layout(layout(tmp_path / "image", first, second), "small:1")
    root = Path(image.root)
    assert (root / "etc/a").read_bytes() == b"new" and not (root / "etc/b").exists()
    assert (root / "etc/a").samefile(root / "etc/again") and str((root / "etc/out").readlink()) == "/../../x"
    assert (root / "etc/set").stat().st_mode & 0o7777 == 0o755, "nobody becomes somebody else by an image"
    assert all((root / place).is_dir() for place in ("dev", "proc", "tmp", "usr/local/nvidia/lib64"))
    assert image.config.env == ("A=1",) and image.entrypoint == ("/bin/run",)


async def test_several_at_once_unpack_an_image_once(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_image(tmp_path / "image")
    unpacked, write = [], cache_module.write

    async def counted(order: Order, size: int) -> object:
        unpacked.append(order.manifest)
        return await write(order, size)

    monkeypatch.setattr(cache_module, "write", counted)
    others = [Cache(tmp_path / "cache") for _ in range(5)]
    images = await asyncio.gather(*(other.from_layout(tmp_path / "image") for other in others))
    assert len(unpacked) == 1 and len({image.root for image in images}) == 1
    assert not [path for path in cache.work.iterdir() if path.is_dir()]


async def test_a_process_that_is_killed_while_it_unpacks_leaves_nothing_that_counts(
    cache: Cache, tmp_path: Path
) -> None:
    small_image(tmp_path / "image")
    code = f"""
import asyncio, os, signal
from pathlib import Path
from strata.jobs.containers import cache
async def half(order, size):
    Path(order.into).mkdir()
    (Path(order.into) / "half").write_text("half")
    print("half", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
cache.write = half
one = cache.Cache(Path({str(tmp_path / "cache")!r}))
asyncio.run(one.from_layout(Path({str(tmp_path / "image")!r})))
"""
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert killed.stdout == "half\n" and killed.returncode == -9, killed.stderr
    assert cache.all() == []
    image = await cache.from_layout(tmp_path / "image")
    assert not (Path(image.root) / "half").exists() and (Path(image.root) / "bin/busybox").exists()
    for path in cache.work.iterdir():
        os.utime(path, (1, 1))
    cache.gc()
    assert not [path for path in cache.work.iterdir() if path.is_dir()], "what was left behind goes"


async def test_a_damaged_blob_and_an_archive_of_another_image_are_refused(cache: Cache, tmp_path: Path) -> None:
    small_image(tmp_path / "image")
    biggest = max((tmp_path / "image/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    biggest.write_bytes(biggest.read_bytes()[:-1] + b"x")
    with pytest.raises(BadRequest, match="digest"):
        await cache.from_layout(tmp_path / "image")
    (tmp_path / "other.tar").write_bytes(oci_archive(*image_blobs(a_system())))
    with pytest.raises(BadRequest, match="another image"):
        await cache.from_archive(tmp_path / "other.tar", f"sha256:{'0' * 64}", "x:1")
    assert cache.all() == []


def test_an_image_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    hostile = layer(symlink("out", str(tmp_path / "outside")), file("out/planted", b"x"))
    blobs, manifest = image_blobs(hostile)
    shelf = Shelf(tmp_path / "shelf")
    shelf.open()
    for data in blobs.values():
        shelf.add_bytes(data)
    (tmp_path / "outside").mkdir()
    (tmp_path / "work").mkdir()
    order = Order(shelf=str(shelf.root), manifest=manifest, work=str(tmp_path / "work"), into=str(tmp_path / "root"))
    written(order)
    assert not list((tmp_path / "outside").iterdir())


async def test_images_go_when_nobody_has_wanted_them_for_long_and_no_container_holds_them(
    cache: Cache, tmp_path: Path
) -> None:
    image = await cache.from_layout(small_image(tmp_path / "image"))
    assert cache.gc(keep=3600) == []
    held = cache.hold(image)
    aged(cache, image, 7200)
    assert cache.gc(keep=3600) == [], "a container runs in it"
    os.close(held)
    assert [one.digest for one in cache.gc(keep=3600, dry_run=True)] == [image.digest] and cache.find(image.digest)
    assert [one.digest for one in cache.gc(keep=3600)] == [image.digest]
    assert not Path(image.root).exists()
    with pytest.raises(NotFound, match="just now"):
        cache.hold(image)


class Repository:
    """Strata's, with one image in it; it can be away."""

    def __init__(self) -> None:
        self.blobs, self.image = image_blobs(a_system())
        self.downloads = 0
        self.away = False

    def digest(self, reference: str) -> str:
        if self.away:
            raise Unavailable("the service cannot be reached")
        return self.image

    def download(self, reference: str, into: IO[bytes]) -> None:
        self.downloads += 1
        into.write(oci_archive(self.blobs, self.image))


async def test_an_image_of_the_repository_comes_once_and_its_jobs_run_on_while_the_service_is_away(
    cache: Cache,
) -> None:
    repository, said = Repository(), list[str]()
    first = await bring(cache, "debian:12", repository)
    assert (await bring(cache, "debian:12", repository)).digest == first.digest and repository.downloads == 1
    repository.away = True
    assert (await bring(cache, "debian:12", repository, say=said.append)).digest == first.digest
    assert "as it was last known here" in said[0]
    with pytest.raises(Unavailable):
        await bring(cache, "debian:13", repository)
    assert (await bring(cache, first.digest, repository)).reference == "debian:12"


async def test_an_image_of_a_registry_is_checked_fetched_and_unpacked_once(cache: Cache) -> None:
    blobs, manifest = image_blobs(a_system())
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        name = request.match_info["name"]
        kind = {"manifests": "application/vnd.oci.image.manifest.v1+json"}.get(request.match_info["kind"], "image/x")
        return web.Response(body=blobs[manifest if name == "1" else name], content_type=kind)

    application = web.Application()
    application.router.add_get("/v2/team/tool/{kind:manifests|blobs}/{name}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        reference, repository = f"docker://{host}:{port}/team/tool:1", Repository()
        first = await bring(cache, reference, repository)
        fetched = len(asked)
        assert (Path(first.root) / "bin/busybox").exists() and first.digest == manifest
        assert fetched == len(blobs), "each blob once"
        assert (await bring(cache, reference, repository)).digest == manifest
        assert len(asked) == fetched + 1, "asked what the tag stands for, and nothing more"
    finally:
        await runner.cleanup()
    assert (await bring(cache, reference, repository)).digest == manifest, "the registry is away"
