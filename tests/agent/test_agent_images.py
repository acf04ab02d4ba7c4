"""Images over the wire: what is not what was signed never arrives, and what breaks off goes on."""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_controller import CHUNK, Controller, Site, controller

from strata.agent.errors import AgentError, CommandFailed, Corrupt
from strata.agent.files import write_private
from strata.agent.images.damage import damage, note_damage
from strata.agent.images.demand import ChunkCache
from strata.agent.images.fetch import Source
from strata.agent.images.loading import Loader
from strata.agent.images.release import Release, Trust
from strata.agent.link.http import tls_context
from strata.agent.link.identity import Identity
from strata.agent.paths import Paths
from strata.provisioning.images.release import canonical


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Controller]:
    with controller(tmp_path / "site") as running:
        yield running


@pytest.fixture
def paths(tmp_path: Path, site: Controller) -> Paths:
    made = Paths(run=tmp_path / "run")
    write_private(made.authority, site.site.ca_pem.encode())
    write_private(made.identity, (site.site.folder / "server.pem").read_bytes())
    write_private(made.release_keys / "0.pem", site.site.release_key_pem.encode())
    return made


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(os.urandom(5 * CHUNK + 1234))
    return path


def source_of(paths: Paths, *urls: str) -> Source:
    def context() -> ssl.SSLContext:
        return tls_context(paths.authority, paths.identity)

    return Source(list(urls), context)


def fetch(source: Source, release: Release) -> bytes:
    digests = source.chunk_list(release)
    try:
        return b"".join(bytes(piece) for _, piece in source.chunks(release, digests, 0, release.count))
    finally:
        source.close()


def test_an_image_arrives_as_it_was_signed(site: Controller, paths: Paths, image: Path) -> None:
    release = Release(site.site.release(image))
    Trust(paths).check(release, held=False)
    assert fetch(source_of(paths, site.url), release) == image.read_bytes()


@pytest.mark.slow
def test_a_transfer_that_breaks_off_goes_on_at_the_chunk_that_it_broke(
    site: Controller, paths: Paths, image: Path
) -> None:
    sent: list[int] = []

    def break_off(path: str, data: bytes) -> bytes | None:
        if "squashfs" in path:
            sent.append(len(data))
            if len(sent) == 1:
                return data[: 2 * CHUNK + 99]  # truncated in the third chunk
            if len(sent) == 2:
                return None  # dropped before a byte came
        return data

    site.faults.append(break_off)
    assert fetch(source_of(paths, site.url), Release(site.site.release(image))) == image.read_bytes()
    assert sent == [5 * CHUNK + 1234, 3 * CHUNK + 1234, 3 * CHUNK + 1234]


def test_a_chunk_that_arrives_corrupt_is_fetched_again(site: Controller, paths: Paths, image: Path) -> None:
    flipped: list[str] = []

    def flip_once(path: str, data: bytes) -> bytes:
        if "squashfs" in path and not flipped:
            flipped.append(path)
            return data[: CHUNK + 5] + bytes([data[CHUNK + 5] ^ 1]) + data[CHUNK + 6 :]
        return data

    site.faults.append(flip_once)
    assert fetch(source_of(paths, site.url), Release(site.site.release(image))) == image.read_bytes()
    assert flipped


def test_an_image_that_is_always_corrupt_is_refused(site: Controller, paths: Paths, image: Path) -> None:
    site.faults.append(lambda path, data: data if "chunks" in path else bytes(len(data)))
    with pytest.raises(Corrupt, match="chunk 0 arrived corrupt"):
        fetch(source_of(paths, site.url), Release(site.site.release(image)))


def test_a_second_controller_helps_where_the_first_is_corrupt(site: Controller, paths: Paths, image: Path) -> None:
    other = Controller(site.site)
    try:
        site.faults.append(lambda path, data: bytes(len(data)))
        release = Release(site.site.release(image))
        assert fetch(source_of(paths, site.url, other.url), release) == image.read_bytes()
    finally:
        other.close()


def test_a_list_of_chunks_that_was_not_signed_is_refused(site: Controller, paths: Paths, image: Path) -> None:
    site.faults.append(lambda path, data: data[:-1] + b"x" if "chunks" in path else data)
    with pytest.raises(Corrupt, match="list of its chunks"):
        fetch(source_of(paths, site.url), Release(site.site.release(image)))


@pytest.mark.slow
def test_an_image_that_arrives_damaged_is_told_of_until_it_arrives_whole(
    site: Controller, paths: Paths, image: Path
) -> None:
    identity = cast("Identity", SimpleNamespace(context=lambda: tls_context(paths.authority, paths.identity)))
    loader, release = Loader(paths, identity, [site.url]), Release(site.site.release(image))
    assert damage(paths) == {}
    site.faults.append(lambda path, data: bytes(len(data)))
    for _ in range(2):
        with pytest.raises(Corrupt):
            loader.load(release, "demand", lambda: False)
        assert damage(paths) == {
            f"sha256:{release.hex}": f"{release}: the list of its chunks is not the one that was signed"
        }
    loader.keep_only([(release, "demand")])
    assert len(damage(paths)) == 1
    site.faults.clear()
    loader.load(release, "demand", lambda: False)
    assert damage(paths) == {}
    note_damage(paths, release, "chunk 3 arrived corrupt 3 times")
    loader.keep_only([])
    assert damage(paths) == {}


def test_a_release_that_another_key_signed_or_that_was_altered_is_refused(
    tmp_path: Path, site: Controller, paths: Paths, image: Path
) -> None:
    trust = Trust(paths)
    with pytest.raises(Corrupt, match="not signed"):
        trust.check(Release(Site(tmp_path / "other").release(image)), held=False)
    with pytest.raises(Corrupt, match="not signed"):
        trust.check(Release({**site.site.release(image), "serial": 9}), held=False)
    with pytest.raises(Corrupt, match="signature"):
        trust.check(Release({**site.site.release(image), "signature": "!"}), held=False)


def test_an_older_release_is_refused_even_by_a_later_agent(site: Controller, paths: Paths, image: Path) -> None:
    new, old = (Release(site.site.release(image, serial=serial)) for serial in (5, 4))
    Trust(paths).check(new, held=False)
    with pytest.raises(Corrupt, match="older than serial 5"):
        Trust(paths).check(old, held=False)
    Trust(paths).check(old, held=True)
    Trust(paths).check(Release(site.site.release(image, name="another", serial=1)), held=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"squashfs": "sha256:../../etc/passwd"},
        {"chunks": "md5:00"},
        {"size": -1},
        {"chunk": 1},
        {"size": "many"},
        {"config": ["x"]},
    ],
)
def test_a_malformed_release_is_refused_before_anything_is_fetched(
    site: Controller, image: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(CommandFailed, match="release"):
        Release({**site.site.release(image), **changes})


def test_what_is_signed_is_spelt_as_the_controller_spells_it(site: Controller, image: Path, paths: Paths) -> None:
    release = site.site.release(image, config={"argv": ["/bin/größe", '\x01\t"\\/\x7f'], "env": [], "cwd": "/"})
    unsigned = {name: value for name, value in release.items() if name != "signature"}
    site.site.release_key.public_key().verify(base64.b64decode(release["signature"]), canonical(unsigned))
    Trust(paths).check(Release(release), held=False)


def test_on_demand_reads_any_range_and_keeps_a_bounded_number_of_chunks(
    site: Controller, paths: Paths, image: Path
) -> None:
    release = Release(site.site.release(image))
    source = source_of(paths, site.url)
    said: list[str] = []
    damaged: list[str] = []
    cache = ChunkCache(release, source.chunk_list(release), source, said.append, damaged.append)
    data = image.read_bytes()
    for offset, length in ((0, 1), (CHUNK - 3, 7), (3 * CHUNK, 2 * CHUNK + 1234), (5 * CHUNK, 1234)):
        assert cache.read(offset, length) == data[offset : offset + length]
    site.faults.append(lambda path, data: bytes(len(data)))
    assert cache.read(4 * CHUNK, 10) == data[4 * CHUNK : 4 * CHUNK + 10], "a kept chunk is not fetched again"
    assert damaged == []
    with pytest.raises(Corrupt):
        cache.read(2 * CHUNK, 10)
    assert damaged == [f"{release}: chunk 2 arrived corrupt 3 times"]
    source.close()
    assert hashlib.sha256(data).hexdigest() == release.hex


def test_images_come_only_to_a_node_with_a_certificate(site: Controller, paths: Paths, image: Path) -> None:
    paths.identity.unlink()
    source = Source([site.url], lambda: tls_context(paths.authority))
    release = Release(site.site.release(image))
    with pytest.raises(AgentError, match="403"):
        source._ask(f"/images/chunks/{release.chunks_hex}", 0, 32)
    source.close()
