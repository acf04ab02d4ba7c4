"""The repository: what comes in is checked, what goes out is signed, and nothing is lost that should not be."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Exchange
from strata.provisioning.images import repository, unpacking
from strata.provisioning.images.release import CHUNK, Release, is_signed_by
from strata.provisioning.images.squashing import Order, Pressed
from strata.provisioning.signing import Signer
from support.image_support import (
    Site,
    an_image,
    digest,
    file,
    folder,
    hardlink,
    image_blobs,
    layer,
    oci_archive,
    symlink,
    tar_of,
)

pytestmark = pytest.mark.slow

BASE = layer(
    folder("etc"),
    file("etc/motd", b"hello"),
    file("bin/run", b"#!/bin/sh\n", mode=0o4755, uid=7, gid=8, mtime=1234),
    hardlink("bin/walk", "bin/run"),
    symlink("sbin", "bin"),
    file(
        "cap", b"x", pax_headers={"SCHILY.xattr.security.capability": "\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0"}
    ),
)
STATUS = (
    b"Package: one\nStatus: install ok installed\nVersion: 1.0\n\n"
    b"Package: two\nStatus: deinstall ok config-files\nVersion: 2\n"
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.images.start()
    yield made
    await made.images.stop()
    await made.store.close()


def listed(site: Site, release: Release) -> str:
    path = site.images.shelf.squashfs(release.squashfs)
    command = ["unsquashfs", "-lln", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def test_an_archive_becomes_a_signed_release_with_the_right_files(site: Site) -> None:
    release = await site.take(an_image(BASE, layer(file("etc/.wh.motd"), file("etc/issue", b"new"))), "debian:12")
    assert (release.reference, release.serial, release.config.argv, release.config.env) == (
        "debian:12",
        1,
        ("/bin/run",),
        ("A=1",),
    )
    assert is_signed_by(release, site.signer.public_pem)
    assert not is_signed_by(msgspec.structs.replace(release, serial=2), site.signer.public_pem)
    squashfs = site.images.shelf.squashfs(release.squashfs).read_bytes()
    assert (digest(squashfs), len(squashfs)) == (release.squashfs, release.size)
    chunks = site.images.shelf.chunks(release.chunks).read_bytes()
    pieces = [squashfs[at : at + CHUNK] for at in range(0, len(squashfs), CHUNK)]
    assert (digest(chunks), chunks) == (release.chunks, b"".join(hashlib.sha256(piece).digest() for piece in pieces))
    shown = listed(site, release)
    assert "motd" not in shown
    assert "-rwsr-xr-x 7/8" in shown
    assert "sbin -> bin" in shown
    assert await site.images.release("debian:12") == release
    assert await site.images.verify("debian:12") == []


async def test_the_signature_is_over_canonical_json_that_openssl_can_check(site: Site, tmp_path: Path) -> None:
    release = await site.take(an_image(BASE), "a:1")
    fields = msgspec.to_builtins(release)
    signature = fields.pop("signature")
    data = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert data == release.signed_bytes
    (tmp_path / "data").write_bytes(data)
    (tmp_path / "key").write_text(site.signer.public_pem)
    (tmp_path / "signature").write_bytes(base64.b64decode(signature))
    command = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-rawin",
        "-pubin",
        "-inkey",
        "key",
        "-sigfile",
        "signature",
        "-in",
        "data",
    ]
    done = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL)
    assert await done.wait() == 0


async def test_the_same_layers_give_the_same_squashfs(site: Site, tmp_path: Path) -> None:
    one = await site.take(an_image(BASE), "a:1")
    site.images.shelf.squashfs(one.squashfs).unlink()
    two = await site.take(an_image(BASE), "b:1")
    assert (one.squashfs, one.chunks, one.image) == (two.squashfs, two.chunks, two.image)


async def test_importing_the_same_again_changes_no_serial(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    assert await site.take(an_image(BASE), "a:1") == one


async def test_an_image_that_only_runs_something_else_is_another_release(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    blobs, manifest = image_blobs(BASE, config={"Cmd": ["/bin/walk"]})
    other = await site.take(oci_archive(blobs, manifest), "b:1")
    promoted = await site.images.catalogue.move("bob", "b:1", "a:1", create=False)
    assert one.squashfs == other.squashfs == promoted.squashfs
    assert (promoted.serial, promoted.config.argv) == (one.serial + 1, ("/bin/walk",))


async def test_docker_archives_and_plain_files_are_taken_too(site: Site) -> None:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(BASE)]},
    }
    manifest = [{"Config": "c.json", "RepoTags": ["x:1"], "Layers": ["l/layer.tar"]}]
    saved = layer(
        file("c.json", json.dumps(config).encode()),
        symlink("l/layer.tar", "../m/layer.tar"),
        file("m/layer.tar", BASE),
        file("manifest.json", json.dumps(manifest).encode()),
    )
    docker = await site.take(saved, "docker:1")
    plain = await site.take(BASE, "plain:1")
    assert docker.config.argv == ("sh",)
    assert docker.squashfs == plain.squashfs
    assert docker.image != plain.image


@pytest.mark.parametrize("harm", ["blob", "missing", "diff_id", "truncated", "nothing", "escape", "tar", "bomb"])
async def test_a_damaged_or_hostile_archive_is_refused_and_leaves_nothing(tmp_path: Path, harm: str) -> None:
    site = Site(tmp_path, most=4 << 20)
    await site.images.start()
    blobs, manifest = image_blobs(BASE)
    parsed = json.loads(blobs[manifest])
    layer_digest = parsed["layers"][0]["digest"]
    archive = oci_archive(blobs, manifest)
    if harm == "blob":
        archive = oci_archive({**blobs, layer_digest: blobs[layer_digest][:-1] + b"\1"}, manifest)
    elif harm == "missing":
        archive = oci_archive({key: value for key, value in blobs.items() if key != layer_digest}, manifest)
    elif harm == "diff_id":
        other, _ = image_blobs(layer(file("etc/other")))
        about = json.loads(blobs[parsed["config"]["digest"]])
        about["rootfs"]["diff_ids"] = [digest(b"other")]
        config = json.dumps(about).encode()
        parsed["config"].update(digest=digest(config), size=len(config))
        made = json.dumps(parsed).encode()
        archive = oci_archive({**blobs, **other, digest(config): config, digest(made): made}, digest(made))
    elif harm == "truncated":
        archive = archive[:4000]
    elif harm == "nothing":
        archive = tar_of([("readme", b"hi")])
    elif harm == "escape":
        archive = an_image(layer(file("etc/ok"), file("../../escape", b"x")))
    elif harm == "tar":
        archive = b"not a tar at all" * 100
    elif harm == "bomb":
        archive = an_image(layer(file("etc/zeros", b"\0" * (8 << 20))))
    with pytest.raises(BadRequest):
        await site.take(archive, "a:1")
    shelf = site.images.shelf
    assert site.images.catalogue.names == {}
    assert [list((shelf.root / name).iterdir()) for name in ("squashfs", "chunks", "work", "uploads")] == [[]] * 4
    assert not (tmp_path / "escape").exists()
    await site.images.stop()
    await site.store.close()


async def test_tags_move_with_growing_serials_and_move_back_again(site: Site) -> None:
    told: list[str] = []
    site.images.moved.append(told.append)
    catalogue = site.images.catalogue
    one = await site.take(an_image(BASE), "sys:candidate")
    good = await catalogue.move("bob", "sys:candidate", "sys:prod", create=True)
    two = await site.take(an_image(BASE, layer(file("etc/v2"))), "sys:candidate")
    with pytest.raises(Conflict):
        await catalogue.move("bob", "sys:candidate", "sys:prod", create=True)
    promoted = await catalogue.move("bob", "sys:candidate", "sys:prod", create=False)
    back = await catalogue.move("bob", f"sys@{good.serial}", "sys:prod", create=False)
    assert [release.serial for release in (one, good, two, promoted, back)] == [1, 2, 3, 4, 5]
    assert (promoted.image, back.image) == (two.image, one.image)
    assert told == ["sys:candidate", "sys:prod", "sys:candidate", "sys:prod", "sys:prod"]


async def test_what_was_deleted_can_be_had_back_with_a_higher_serial(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    await site.images.catalogue.delete("bob", "a:1")
    with pytest.raises(NotFound):
        await site.images.release("a:1")
    swept = await site.images.gc("bob", dry_run=False)
    assert (swept.images, swept.files) == ((), 0)
    back = await site.images.catalogue.undelete("bob", "a:1")
    assert (back.image, back.serial) == (one.image, 2)


async def test_garbage_collection_removes_what_nothing_stands_for_and_says_so_before(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    two = await site.take(an_image(BASE, layer(file("etc/v2"))), "b:1")
    await site.images.catalogue.delete("bob", "a:1")
    would = await site.images.gc("bob", dry_run=True, keep=0)
    assert site.images.shelf.squashfs(one.squashfs).exists()
    done = await site.images.gc("bob", dry_run=False, keep=0)
    assert would == done
    assert done.images == (one.image,)
    assert not site.images.shelf.squashfs(one.squashfs).exists()
    assert site.images.shelf.squashfs(two.squashfs).exists()
    assert await site.images.verify("b:1") == []  # the layer that both had is still there
    with pytest.raises(NotFound):
        await site.images.catalogue.undelete("bob", "a:1")


async def test_garbage_collection_keeps_what_nodes_run_until_they_run_something_else(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    two = await site.take(an_image(BASE, layer(file("etc/v2"))), "a:1")
    for dry_run in (True, False):
        swept = await site.images.gc("bob", dry_run=dry_run, keep=0, held={one.squashfs, two.squashfs})
        assert (swept.images, swept.files, swept.held) == ((), 0, (one.image,))
    shelf = site.images.shelf
    assert shelf.squashfs(one.squashfs).exists()
    assert shelf.chunks(one.chunks).exists()
    await site.images.catalogue.move("bob", one.image, "a:1", create=False)  # and it can be had back
    await site.images.catalogue.move("bob", two.image, "a:1", create=False)
    swept = await site.images.gc("bob", dry_run=False, keep=0, held={two.squashfs})
    assert (swept.images, swept.held) == ((one.image,), ())
    assert not shelf.squashfs(one.squashfs).exists()
    assert list((shelf.root / "work").iterdir()) == []


async def test_garbage_collection_takes_nothing_from_an_image_in_the_making(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressed, go_on = asyncio.Event(), asyncio.Event()

    async def press(order: Order, log: Path, *, size: int) -> Pressed:
        made = await unpacking.press(order, log, size=size)
        pressed.set()
        await go_on.wait()
        return made

    monkeypatch.setattr(repository, "press", press)
    taking = asyncio.create_task(site.take(an_image(BASE), "a:1"))
    await pressed.wait()
    with pytest.raises(Conflict, match="being made"):
        await site.images.gc("bob", dry_run=False, keep=0)
    go_on.set()
    await taking
    assert await site.images.verify("a:1") == []
    assert (await site.images.gc("bob", dry_run=False, keep=0)).files == 0


async def test_damage_on_disk_is_found(site: Site) -> None:
    release = await site.take(an_image(BASE), "a:1")
    path = site.images.shelf.squashfs(release.squashfs)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    problems = await site.images.verify("a:1")
    assert any("squashfs" in problem and "damaged" in problem for problem in problems)
    [alarm] = site.alarms
    assert (alarm.kind, alarm.about, alarm.node) == ("image-damaged", "a:1", "")
    assert alarm.message.startswith("the image a:1 is damaged: on this controller the squashfs sha256:")


async def test_a_node_that_refuses_an_image_as_damaged_raises_an_alarm_that_names_the_image(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    await site.take(an_image(BASE, layer(file("etc/v2"))), "a:1")  # nodes may have the one before
    hub = Hub(damaged=site.images.arrived_damaged)

    async def says(seq: int, damaged: dict[str, str]) -> None:
        state = msgspec.Raw(msgspec.json.encode({"damaged": damaged}))
        await hub.exchange("n1", Exchange(generation=1, boot_id="b", seq=seq, wait=0, state=state))

    await says(1, {})
    await says(2, {one.squashfs: "chunk 19 arrived corrupt\n3 times", f"sha256:{'0' * 64}": "of nobody"})
    await says(3, {one.squashfs: "chunk 19 arrived corrupt\n3 times", f"sha256:{'0' * 64}": "of nobody"})
    [alarm] = site.alarms
    assert (alarm.kind, alarm.about) == ("image-damaged", "a:1")
    assert "n1 refused it: chunk 19 arrived corrupt 3 times" in alarm.message
    await says(4, {})
    await says(5, {one.squashfs: "again"})
    assert len(site.alarms) == 2
    await hub.stop()


async def test_two_images_are_compared_by_files_and_packages(site: Site) -> None:
    await site.take(an_image(BASE), "a:1")
    upper = layer(
        file("etc/motd", b"HELLO"),
        file("etc/.wh.nothing"),
        file("cap", b"x", mode=0o600),
        file(".wh.sbin"),
        file("var/lib/dpkg/status", STATUS),
    )
    await site.take(an_image(BASE, upper), "a:2")
    found = await site.images.diff("a:1", "a:2")
    changes = {(change.path, change.change, change.what) for change in found.files}
    assert ("etc/motd", "changed", ("content",)) in changes
    assert ("cap", "changed", ("mode",)) in changes
    assert ("sbin", "removed", ()) in changes
    assert [(p.name, p.before, p.after) for p in found.packages] == [("one", "", "1.0")]


async def exported(site: Site, reference: str) -> bytes:
    return b"".join([piece async for piece in await site.images.export(reference)])


async def test_an_export_is_an_oci_layout_that_comes_in_again(site: Site, tmp_path: Path) -> None:
    release = await site.take(an_image(BASE), "a:1")
    archive = await exported(site, "a:1")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert "oci-layout" in tar.getnames()
    other = Site(tmp_path / "other")
    other.signer = site.signer
    await other.images.start()
    other.images.catalogue.signer = site.signer
    again = await other.take(archive, "a:1")
    assert (again.serial, again.image, again.squashfs) == (1, release.image, release.squashfs)
    await other.images.stop()
    await other.store.close()


async def test_an_older_signed_release_is_refused_with_an_alarm(site: Site) -> None:
    await site.take(an_image(BASE), "a:1")
    old = await exported(site, "a:1")
    await site.take(an_image(BASE, layer(file("etc/v2"))), "a:1")
    with pytest.raises(Refused, match="known already"):
        await site.take(old, "a:1")
    assert [alarm.kind for alarm in site.alarms] == ["image-refused"]
    assert (await site.images.release("a:1")).serial == 2
    # On purpose, and as something new:
    assert (await site.take(old, "a:1", unsigned=True)).serial == 3


async def test_the_very_release_that_a_tag_stands_for_comes_in_again_quietly(site: Site) -> None:
    one = await site.take(an_image(BASE), "a:1")
    await site.take(an_image(BASE, layer(file("etc/v2"))), "a:2")
    assert await site.take(await exported(site, "a:1"), "a:1") == one
    assert site.alarms == []
    # It is still an old one to any other tag.
    with pytest.raises(Refused, match="release 1 of a is offered, and 2 is known already"):
        await site.take(await exported(site, "a:1"), "a:2")
    assert [(alarm.kind, alarm.about) for alarm in site.alarms] == [("image-refused", "a")]


async def test_a_release_that_is_refused_is_refused_before_any_work(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.take(an_image(BASE), "a:1")
    old = await exported(site, "a:1")
    await site.take(an_image(BASE, layer(file("etc/v2"))), "a:1")
    monkeypatch.delattr(repository, "press")
    with pytest.raises(Refused, match="known already"):
        await site.take(old, "a:1")
    with pytest.raises(BadRequest, match="holds the signed release of a:1"):
        await site.take(old, "b:1")


async def test_importing_again_mends_what_was_damaged_on_disk(site: Site) -> None:
    release = await site.take(an_image(BASE), "a:1")
    made, shelf = site.images.catalogue.find("a:1"), site.images.shelf
    archive = await exported(site, "a:1")
    for path in (shelf.squashfs(release.squashfs), shelf.chunks(release.chunks), shelf.blob(made.layers[0].digest)):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert len(await site.images.verify("a:1")) == 3
    assert await site.take(archive, "a:1") == release
    assert await site.images.verify("a:1") == []


async def test_a_release_signed_by_somebody_else_or_for_something_else_is_refused(site: Site, tmp_path: Path) -> None:
    stranger = Site(tmp_path / "stranger")
    await stranger.images.start()
    await stranger.take(an_image(BASE), "a:1")
    foreign = await exported(stranger, "a:1")
    with pytest.raises(Refused, match="not signed by"):
        await site.take(foreign, "a:1")
    ours = await site.take(an_image(layer(file("etc/x"))), "a:1")
    blobs, manifest = image_blobs(BASE)
    forged = oci_archive(blobs, manifest, release_json=msgspec.json.encode(msgspec.structs.replace(ours, serial=9)))
    with pytest.raises(Refused):
        await site.take(forged, "a:1")
    swapped = oci_archive(blobs, manifest, release_json=msgspec.json.encode(ours))
    with pytest.raises(Refused, match="not for what it holds"):
        await site.take(swapped, "a:1")
    assert len(site.alarms) == 3
    await stranger.images.stop()
    await stranger.store.close()


async def test_a_new_key_signs_again(site: Site, tmp_path: Path) -> None:
    before = await site.take(an_image(BASE), "a:1")
    site.images.catalogue.signer = Signer.open(tmp_path / "new key")
    assert "not signed" in (await site.images.verify("a:1"))[0]
    after = await site.images.catalogue.sign("bob", "a:1")
    assert (after.serial, after.image) == (before.serial, before.image)
    assert await site.images.verify("a:1") == []


async def test_another_controller_knows_releases_and_gets_the_files_by_importing_them(
    site: Site, tmp_path: Path
) -> None:
    second = Site(tmp_path / "second", site.store)
    second.images.catalogue.signer = site.signer
    await second.images.start()
    release = await site.take(an_image(BASE), "a:1")
    await second.images.stop()
    await second.images.start()
    assert await second.images.release("a:1") == release
    assert not second.images.is_here(release)
    assert "not on this controller" in " ".join(await second.images.verify("a:1"))
    assert await second.take(an_image(BASE), "a:1") == release
    assert second.images.is_here(release)
    await second.images.stop()


async def test_pieces_of_an_upload_come_in_order_and_twice_without_harm(site: Site) -> None:
    uploads = site.images.uploads
    ident = await uploads.begin()
    assert await uploads.write(ident, 0, b"abc") == 3
    assert await uploads.write(ident, 0, b"abc") == 3
    assert await uploads.write(ident, 3, b"de") == 5
    with pytest.raises(Conflict):
        await uploads.write(ident, 9, b"x")
    assert uploads.path(ident).read_bytes() == b"abcde"
    for bad in ("../../etc/passwd", "0" * 32, ""):
        with pytest.raises(BadRequest):
            await uploads.write(bad, 0, b"x")


async def test_served_files_are_readable_by_the_group_of_the_web_server_only(tmp_path: Path) -> None:
    site = Site(tmp_path, readers=33)
    await site.images.start()
    release = await site.take(an_image(BASE), "a:1")
    shelf = site.images.shelf
    found = [shelf.squashfs(release.squashfs), shelf.chunks(release.chunks), shelf.root, shelf.root / "squashfs"]
    assert [(p.stat().st_mode & 0o777, p.stat().st_gid) for p in found] == [
        (0o640, 33),
        (0o640, 33),
        (0o710, 33),
        (0o710, 33),
    ]
    assert (shelf.root / "uploads").stat().st_mode & 0o077 == 0
    await site.images.stop()
    await site.store.close()


async def test_the_repository_is_an_oci_layout_that_other_tools_read(site: Site) -> None:
    release = await site.take(an_image(BASE), "a:1")
    await site.take(an_image(BASE, layer(file("etc/v2"))), "b:1")
    await site.images.catalogue.delete("bob", "b:1")
    index = json.loads((site.images.shelf.root / "index.json").read_bytes())
    [entry] = index["manifests"]
    assert (entry["digest"], entry["annotations"]) == (release.image, {"org.opencontainers.image.ref.name": "a:1"})
    assert entry["size"] == site.images.shelf.blob(release.image).stat().st_size
