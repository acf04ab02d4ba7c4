"""Minimal OSes on every controller: built, chosen and removed on any of them, and the latest is the same on all."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from strata.provisioning.minos.artefacts import REMOVED, latest
from strata.provisioning.replication.builds import LATEST_KEY, UNDIVIDED_KEY, LatestRecord
from strata.provisioning.signing import Signer
from strata.store.protocol import Delete, Put
from support.fake_controllers import FakeController, FakeControllers, until
from support.signed_builds import open_builds

pytestmark = pytest.mark.slow


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeControllers]:
    monkeypatch.setattr("strata.provisioning.replication.builds.LOOK_EVERY", 0.02)
    made = FakeControllers(tmp_path)
    yield made
    await made.stop()


@pytest.fixture
async def a(site: FakeControllers) -> FakeController:
    return await site.controller("a")


@pytest.fixture
async def b(site: FakeControllers, a: FakeController) -> FakeController:
    return await site.controller("b")


def names(at: FakeController) -> list[str]:
    return [build.digest for build in at.artefacts.all()]


def link(at: FakeController) -> str:
    return latest(at.artefacts.root).get("x86_64", "")


def booted(at: FakeController, arch: str = "x86_64") -> str:
    """What nodes that boot through this controller get."""
    builds = open_builds(at.artefacts.root, at.directory / "signing")
    builds.shared = at.replication.builds.latest
    return builds.digest("latest", arch)


async def test_a_build_comes_to_every_controller_whole_and_becomes_the_latest_there(
    a: FakeController, b: FakeController
) -> None:
    digest = a.build("one").digest
    await until(lambda: link(b) == digest)
    assert b.artefacts.problems(digest, Signer.open(b.directory / "signing").public_pem) == []
    path = b.artefacts.root / digest
    assert path.stat().st_mtime_ns == (a.artefacts.root / digest).stat().st_mtime_ns, "clocks of controllers differ"
    assert path.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o644}
    assert booted(a) == booted(b) == digest


async def test_whoever_chose_last_decides_for_all_also_while_one_was_away(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    one = a.build("one").digest
    await until(lambda: link(b) == one)
    two = b.build("two").digest
    await until(lambda: link(a) == two)
    await a.stop()
    b.artefacts.choose(one)
    await until(lambda: b.replication.builds.latest("x86_64") == one)
    await a.start()
    await until(lambda: link(a) == one)
    assert names(a) == names(b) == sorted([one, two])


async def test_a_choice_counts_also_where_the_clock_was_set_back_since_the_last(
    site: FakeControllers, a: FakeController
) -> None:
    one, two = a.build("one").digest, a.build("two").digest
    await until(lambda: a.replication.builds.latest("x86_64") == two)
    await a.stop()
    ahead = time.time_ns() + 3600 * 10**9
    a.artefacts.choose(two, at=ahead)
    record = LatestRecord(digest=two, chosen=ahead, controller="a")
    await site.store.txn([Put(f"{LATEST_KEY}x86_64", msgspec.msgpack.encode(record))])
    await a.start()
    await until(lambda: a.replication.builds.latest("x86_64") == two)
    a.artefacts.choose(one)
    await until(lambda: a.replication.builds.latest("x86_64") == one)
    assert link(a) == one
    (a.artefacts.root / "latest-x86_64").unlink()
    await until(lambda: link(a) == one)


async def test_a_new_latest_counts_for_all_at_once_when_all_have_it(a: FakeController, b: FakeController) -> None:
    one = a.build("one").digest
    await until(lambda: link(b) == one)
    a.wire.away = True
    two = a.build("two").digest
    await until(lambda: bool(a.wire.asked) and a.wire.asked[-1][0].startswith(f"minos/{two}/"))
    assert (link(a), booted(a), booted(b)) == (two, one, one)
    a.wire.away = False
    await until(lambda: booted(b) == two)
    assert booted(a) == two


async def test_a_controller_that_can_never_get_it_does_not_hold_up_the_others_for_ever(
    monkeypatch: pytest.MonkeyPatch, a: FakeController, b: FakeController
) -> None:
    one = a.build("one").digest
    await until(lambda: link(b) == one)
    a.wire.away = True
    monkeypatch.setattr("strata.provisioning.replication.builds.WAIT_FOR_OTHERS", 0.2)
    two = a.build("two").digest
    await until(lambda: booted(a) == two)
    assert booted(b) == one, "what it has is better than nothing"


async def test_when_the_one_that_built_it_is_dead_the_others_boot_it_all_the_same(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    digest = a.build("one").digest
    await until(lambda: link(b) == digest)
    await a.stop()
    c = await site.controller("c")
    await until(lambda: link(c) == digest)
    assert booted(c) == digest


async def test_a_build_that_somebody_removed_goes_everywhere_and_does_not_come_back(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    one = a.build("one").digest
    await until(lambda: link(b) == one)
    two = a.build("two").digest
    c = await site.controller("c")
    await until(lambda: link(b) == link(c) == two and names(c) == sorted([one, two]))
    await c.stop()
    await a.stop()  # the command needs no service
    a.artefacts.remove(one)
    await a.start()
    await until(lambda: names(b) == [two])
    await c.start()
    await until(lambda: names(c) == [two])
    assert names(a) == [two]
    assert not list((a.artefacts.root / REMOVED).iterdir())


async def test_a_removal_that_another_was_faster_than_is_told_again(
    a: FakeController, b: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = a.build("one").digest, a.build("two").digest
    await until(lambda: names(b) == sorted([one, two]) and link(b) == two)
    builds, late = a.replication.builds, [False]
    is_known = builds._is_known
    monkeypatch.setattr(
        builds, "_is_known", lambda key, value: is_known(key, value) and bool(late.pop() if late else 1)
    )
    a.artefacts.remove(one)
    await until(lambda: names(b) == [two])
    assert names(a) == [two]


async def test_a_removed_build_can_be_built_again(a: FakeController, b: FakeController) -> None:
    one = a.build("one").digest
    await until(lambda: link(b) == one)
    two = a.build("two").digest
    await until(lambda: link(b) == two)
    b.artefacts.remove(one)
    await until(lambda: names(a) == [two])
    assert b.build("one").digest == one
    await until(lambda: link(a) == one)
    assert names(a) == names(b) == sorted([one, two])


async def test_files_that_were_lost_and_not_removed_come_back(a: FakeController, b: FakeController) -> None:
    digest = a.build("one").digest
    await until(lambda: link(b) == digest)
    shutil.rmtree(a.artefacts.root)
    await until(lambda: link(a) == digest)
    assert names(a) == names(b) == [digest]


async def test_a_build_that_is_damaged_is_given_to_nobody(a: FakeController, b: FakeController) -> None:
    good = a.build("good").digest
    await until(lambda: link(b) == good)
    await a.stop()
    bad = a.build("bad").digest
    (a.artefacts.root / bad / "initrd").write_bytes(b"something else")
    await a.start()
    after = b.build("after").digest
    await until(lambda: after in names(a) and booted(b) == after)
    assert names(b) == sorted([good, after])
    assert b.replication.holdings.with_build(bad) == []
    assert b.replication.holdings.with_build(after) == ["a"]


async def test_a_liar_is_found_out_and_a_build_of_another_key_refused(
    caplog: pytest.LogCaptureFixture, site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    digest = a.build("one").digest
    await until(lambda: link(b) == digest)
    a.wire.lies = True
    c = await site.controller("c")
    await until(lambda: link(c) == digest)
    assert {alarm.peer for alarm in c.alarms} == {"a"}
    (site.directory / "d").mkdir()
    Signer.open(site.directory / "d" / "signing")  # its own
    d = await site.controller("d")
    reason = "not by this site's key"
    await until(lambda: any(reason in str(record.__dict__.get("reason")) for record in caplog.records))
    assert names(d) == []


async def test_a_younger_build_of_one_who_joins_is_the_latest_and_an_older_is_not(
    site: FakeControllers, a: FakeController
) -> None:
    one = a.build("one").digest
    await until(lambda: a.replication.builds.latest("x86_64") == one)
    old = FakeController(site, "old", site.directory / "old")
    older = old.build("older").digest
    os.utime(old.artefacts.root / "latest-x86_64", ns=(1, 1), follow_symlinks=False)
    await old.start()
    await until(lambda: link(old) == one and older in names(a))
    new = FakeController(site, "new", site.directory / "new")
    newer = new.build("newer").digest
    await new.start()
    await until(lambda: link(a) == link(old) == newer)


async def test_each_architecture_has_a_latest_of_its_own_on_all_controllers(
    a: FakeController, b: FakeController
) -> None:
    pc = a.build("one").digest
    await until(lambda: link(b) == pc)
    arm = b.build("one", "aarch64").digest
    await until(lambda: latest(a.artefacts.root) == latest(b.artefacts.root) == {"x86_64": pc, "aarch64": arm})
    await until(lambda: all(one.replication.builds.latest("aarch64") == arm for one in (a, b)))
    for one in (a, b):
        assert (booted(one), booted(one, "aarch64")) == (pc, arm)
    newer = a.build("two", "aarch64").digest
    await until(lambda: latest(b.artefacts.root) == {"x86_64": pc, "aarch64": newer})


async def test_what_an_earlier_release_called_the_latest_is_that_of_its_architecture(
    site: FakeControllers, a: FakeController, b: FakeController
) -> None:
    arm = a.build("one", "aarch64").digest
    await until(lambda: latest(b.artefacts.root) == {"aarch64": arm})
    for one in (a, b):
        await one.stop()
        (one.artefacts.root / "latest-aarch64").rename(one.artefacts.root / "latest")
    key = f"{LATEST_KEY}aarch64"
    entry = await site.store.get(key)
    assert entry is not None
    await site.store.txn([Put(UNDIVIDED_KEY, entry.value), Delete(key)])
    for one in (a, b):
        await one.start()
    await until(lambda: all(one.replication.builds.latest("aarch64") == arm for one in (a, b)))
    pc = a.build("one").digest
    await until(lambda: latest(b.artefacts.root) == {"x86_64": pc, "aarch64": arm})
    newer = b.build("two", "aarch64").digest
    await until(lambda: latest(a.artefacts.root) == {"x86_64": pc, "aarch64": newer})
    assert a.replication.builds.latest("x86_64") == pc


async def test_a_build_that_is_changed_later_is_given_to_nobody_any_more(a: FakeController) -> None:
    digest = a.build("one").digest
    await until(lambda: a.replication.builds.latest("x86_64") == digest)
    with (a.artefacts.root / digest / "initrd").open("ab") as file:
        file.write(b"more")
    await until(lambda: a.replication.builds.latest("x86_64") == "")
    assert [(alarm.kind, alarm.about) for alarm in a.alarms] == [("minos-refused", digest)]
