"""Images on every controller: they come, they go, and neither a failure nor a restart leaves half of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import BadRequest, NotFound
from strata.provisioning.images.release import CHUNK
from strata.provisioning.replication import image_copies
from strata.provisioning.replication.files import Library, ReadRequest
from strata.store.protocol import Delete
from support.fake_controllers import FakeController, FakeControllers, an_image, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FakeControllers]:
    made = FakeControllers(tmp_path)
    yield made
    await made.stop()


@pytest.fixture
async def a(site: FakeControllers) -> FakeController:
    return await site.controller("a")


@pytest.fixture
async def b(site: FakeControllers, a: FakeController) -> FakeController:
    return await site.controller("b")


def copies(at: FakeController, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return at.replication.holdings.copies(image)


async def test_a_new_release_comes_to_every_controller_at_once_and_all_know(
    site: FakeControllers, a: FakeController, b: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_copies, "LOOK_EVERY", 1e6)  # nobody waits for the next look
    c = await site.controller("c")
    release = await a.take("debian:12")
    await until(lambda: all(copies(one, release.image) == (("a", "b", "c"), ()) for one in (a, b, c)))
    assert b.has(release)
    assert c.has(release)
    assert not list((b.images.shelf.root / "incoming").iterdir())
    assert release.image.removeprefix("sha256:") in (b.images.shelf.root / "index.json").read_text()


async def test_who_comes_later_gets_all_that_there_is(site: FakeControllers, a: FakeController) -> None:
    releases = [await a.take(f"debian:{seed}", size=1000, seed=seed) for seed in range(5)]
    await until(lambda: all(copies(a, release.image)[0] == ("a",) for release in releases))
    b = await site.controller("b")
    await until(lambda: all(copies(b, release.image)[0] == ("a", "b") for release in releases))
    assert all(b.has(release) for release in releases)


async def test_a_liar_is_found_out_and_the_other_one_asked(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    release = await a.take("debian:12")
    await until(lambda: b.has(release) and copies(b, release.image)[0] == ("a", "b"))
    a.wire.lies = True
    c = await site.controller("c")
    await until(lambda: copies(c, release.image)[0] == ("a", "b", "c"))
    assert c.has(release)
    assert {alarm.peer for alarm in c.alarms} == {"a"}


async def test_a_source_that_stalls_does_not_hold_up_the_copy(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    release = await a.take("debian:12")
    await until(lambda: copies(b, release.image)[0] == ("a", "b"))
    a.wire.stalls = True
    c = FakeController(site, "c", site.directory / "c")
    c.silence = 0.3
    await c.start()
    await until(lambda: copies(c, release.image)[0] == ("a", "b", "c"))
    assert c.has(release)


async def test_while_the_only_source_dies_midway_nothing_is_served_and_then_the_rest_is_fetched(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    a.wire.dies_after = 2  # the list of chunks, and the first 4 MiB
    release = await a.take("debian:12", size=9 * CHUNK)
    squashfs = release.squashfs.removeprefix("sha256:")
    await until(lambda: a.wire.away)
    part = b.images.shelf.root / "incoming" / f"squashfs-{squashfs}"
    await until(lambda: part.exists() and part.stat().st_size == 4 * CHUNK)
    assert not b.images.is_here(release)
    assert copies(a, release.image) == (("a",), ("b",))
    asked = ReadRequest(name=f"squashfs/{squashfs}", offset=0, length=10)
    with pytest.raises(NotFound):
        await b.replication.library.answer("a", msgspec.json.encode(asked))
    await b.stop()  # and it comes back when the other one lives again
    a.wire.away, a.wire.dies_after = False, None
    a.wire.asked.clear()
    await b.start()
    await until(lambda: copies(b, release.image) == (("a", "b"), ()))
    assert b.has(release)
    assert [offset for name, offset in a.wire.asked if name == f"squashfs/{squashfs}"] == [4 * CHUNK, 8 * CHUNK]


async def test_what_one_controller_lost_comes_back_from_another(a: FakeController, b: FakeController) -> None:
    release = await a.take("debian:12")
    await until(lambda: copies(b, release.image)[0] == ("a", "b"))
    a.images.shelf.squashfs(release.squashfs).unlink()
    await a.stop()
    await a.start()
    await until(lambda: a.has(release))


async def test_what_garbage_collection_removes_on_one_goes_on_all_and_does_not_come_back(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    kept = await a.take("debian:12", seed=1)
    old = await a.take("debian:11", seed=2)
    c = await site.controller("c")
    await until(lambda: all(copies(a, release.image)[0] == ("a", "b", "c") for release in (kept, old)))
    await c.stop()  # it is away meanwhile
    orphan = b.images.shelf.add_bytes(b"of work that nobody finished")
    await a.images.catalogue.delete("alice", "debian:11")
    swept = await a.images.gc("alice", dry_run=False, keep=0.0)
    assert swept.images == (old.image,)
    name = old.squashfs.removeprefix("sha256:")
    await until(lambda: not any(name in file for file in b.files()))
    assert b.has(kept)
    assert b.images.shelf.blob(orphan).exists(), "garbage collection did not say that this one is to go"
    await c.start()
    await until(lambda: not any(name in file for file in c.files()))
    await until(lambda: c.files() == a.files())
    assert c.has(kept)


async def test_an_image_that_is_removed_while_it_is_fetched_does_not_arrive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, a: FakeController, b: FakeController
) -> None:
    placed: list[Path] = []
    monkeypatch.setattr("strata.provisioning.replication.image_copies.place", lambda part, path: placed.append(path))
    a.wire.held = asyncio.Event()
    release = await a.take("debian:12")
    await until(lambda: bool(a.wire.asked))
    await a.images.catalogue.delete("alice", "debian:12")
    await a.images.gc("alice", dry_run=False, keep=0.0)
    await until(lambda: release.image not in b.images.catalogue.made)
    assert list((b.images.shelf.root / "incoming").iterdir()) == []
    a.wire.held.set()
    await until(
        lambda: any("removed in the meantime" in str(record.__dict__.get("reason")) for record in caplog.records)
    )
    await until(lambda: b.files() == [])
    assert placed == []


async def test_what_tags_stand_for_comes_first_and_of_that_the_newest(site: FakeControllers, a: FakeController) -> None:
    releases = [await a.take(f"debian:{seed}", size=1000, seed=seed) for seed in range(4)]
    await a.images.catalogue.delete("alice", "debian:3")
    await until(lambda: all(copies(a, release.image)[0] == ("a",) for release in releases))
    b = await site.controller("b")
    await until(lambda: all(copies(b, release.image)[0] == ("a", "b") for release in releases))
    order = [name for name, _ in a.wire.asked if name.startswith("squashfs/")]
    assert order == [f"squashfs/{releases[n].squashfs.removeprefix('sha256:')}" for n in (2, 1, 0, 3)]


async def test_a_damaged_list_of_chunks_here_makes_no_liars_of_others(a: FakeController, b: FakeController) -> None:
    release = await a.take("debian:12")
    await until(lambda: copies(b, release.image)[0] == ("a", "b"))
    await b.stop()
    b.images.shelf.squashfs(release.squashfs).unlink()
    b.images.shelf.chunks(release.chunks).write_bytes(b"nonsense")
    await b.start()
    await until(lambda: b.has(release))
    assert not b.alarms


async def test_who_lacks_the_files_can_collect_the_garbage_of_all_the_same(
    site: FakeControllers, a: FakeController
) -> None:
    release = await a.take("debian:12")
    a.wire.away = True
    b = await site.controller("b")
    await b.images.catalogue.delete("alice", "debian:12")
    swept = await b.images.gc("alice", dry_run=False, keep=0.0)
    assert (swept.images, swept.files) == ((release.image,), 0)
    await until(lambda: a.files() == [])


async def test_an_image_that_came_back_after_garbage_collection_stays(a: FakeController, b: FakeController) -> None:
    first = await a.take("debian:12")
    await until(lambda: b.has(first))
    await b.images.catalogue.delete("alice", "debian:12")
    await b.images.gc("alice", dry_run=False, keep=0.0)
    await until(lambda: not a.images.is_here(first))
    again = await a.take("debian:12")
    assert again.image == first.image
    await until(lambda: copies(b, again.image)[0] == ("a", "b"))
    await b.stop()
    await b.start()
    await until(lambda: copies(b, again.image)[0] == ("a", "b"))
    assert a.has(again)
    assert b.has(again)


async def test_nothing_is_removed_while_an_image_is_being_made_of_it(a: FakeController, b: FakeController) -> None:
    release = await a.take("debian:12")
    await until(lambda: b.has(release))
    b.images.making += 1
    await a.images.catalogue.delete("alice", "debian:12")
    await a.images.gc("alice", dry_run=False, keep=0.0)
    await until(lambda: release.image not in b.images.catalogue.made)
    await until(lambda: copies(b, release.image) == ((), ("a", "b")))
    assert b.images.is_here(release)
    made = an_image(b.images, release.size, 1)
    await b.images.catalogue.put("bob", made, "debian:12")
    b.images.making -= 1
    await until(lambda: copies(a, release.image)[0] == ("a", "b"))
    assert a.has(release)


async def test_a_store_that_forgot_all_images_costs_no_file(site: FakeControllers, a: FakeController) -> None:
    release = await a.take("debian:12")
    await until(lambda: copies(a, release.image)[0] == ("a",))
    before = a.files()
    for entry in (await site.store.range("image/")).entries:
        await site.store.txn([Delete(entry.key)])
    await until(lambda: not a.images.catalogue.made)
    await a.stop()
    await a.start()
    await until(lambda: copies(a, release.image) == ((), ("a",)))
    assert a.files() == before


@pytest.mark.parametrize(
    "name",
    [
        "",
        "squashfs/../../ca/ca.key",
        "incoming/" + "0" * 64,
        "work/x",
        "blobs/sha256/" + "0" * 64,
        "minos/latest/initrd",
        "minos/0123456789ab/../../ca/ca.key",
        "blobs/" + "0" * 64 + "\n",
    ],
)
async def test_nothing_but_whole_files_of_images_and_builds_can_be_asked_for(a: FakeController, name: str) -> None:
    library = Library(a.images.shelf, a.artefacts.root)
    with pytest.raises(NotFound, match="no such file"):  # whether or not there is one
        await library.answer("b", msgspec.json.encode(ReadRequest(name=name, offset=0, length=1)))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"name":"x","offset":-1,"length":1}', b'{"name":"x","offset":0}'])
async def test_a_request_that_makes_no_sense_is_refused(a: FakeController, body: bytes) -> None:
    with pytest.raises(BadRequest):
        await a.replication.library.answer("b", body)
