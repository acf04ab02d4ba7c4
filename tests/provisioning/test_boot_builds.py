"""Nodes boot builds of their own architecture, as they were signed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import NotFound, Refused
from strata.fleet.alarm import Alarm
from strata.provisioning.boot.records import Profile
from strata.provisioning.identity.alarms import FoldedAlarms
from strata.provisioning.minos.artefacts import Artefacts
from support.boot_site import MINOS, Boots, booting, make_node
from support.signed_builds import put_build


def say_arm(site: Boots, number: int) -> None:
    """The node is an ARM machine."""
    others = [make_node(other) for other in (1, 2, 3) if other != number]
    site.directory.update([*others, msgspec.structs.replace(make_node(number), architecture="aarch64")])


def add_code(tmp_path: Path) -> None:
    """What an intruder does: another archive behind the one that was signed."""
    with (tmp_path / "minos" / MINOS / "initrd").open("ab") as file:
        file.write(b"070701")


async def test_a_build_for_arm_changes_nothing_for_other_nodes(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        before = site.profiles.label("default", "x86_64")
        say_arm(site, 2)
        _, script = await site.script(2)
        assert "cannot boot yet" in script and "vmlinuz" not in script
        with pytest.raises(NotFound, match="for aarch64"):
            await site.service.preview("n0002")
        arm = put_build(tmp_path / "minos", tmp_path / "signing", arch="aarch64")
        assert f"/{MINOS}/vmlinuz" in (await site.script(1))[1]
        assert f"/{arm}/vmlinuz" in (await site.script(2))[1]
        assert f"/{arm}/vmlinuz" in await site.service.preview("n0002")
        assert (await site.boot(2))["profile"] == site.profiles.label("default", "aarch64") != before
        assert site.profiles.label("default", "x86_64") == before, "it would be booted anew"


async def test_a_profile_that_pins_another_architectures_build_boots_nobody_and_says_why(tmp_path: Path) -> None:
    arm = put_build(tmp_path / "minos", tmp_path / "signing", arch="aarch64")
    async with booting(tmp_path, media=True) as site:
        await site.profiles.put("pinned", Profile(minos=arm), "anna")
        site.profile["n0001"] = "pinned"
        status, script = await site.script(1)
        assert status == 200 and "cannot boot yet, see strata boot script n0001" in script and "vmlinuz" not in script
        with pytest.raises(Refused, match=f"{arm}: it is for aarch64, and cannot be booted on x86_64"):
            await site.service.preview("n0001")
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 403
        with pytest.raises(Refused, match="aarch64"):
            await site.service.begin_from_medium("n0001")
        assert site.identity.record("n0001").generation == 0, "no boot has begun"


async def test_no_medium_is_made_for_a_machine_that_cannot_start_from_it(tmp_path: Path) -> None:
    put_build(tmp_path / "minos", tmp_path / "signing", arch="aarch64")
    async with booting(tmp_path, media=True) as site:
        say_arm(site, 1)
        with pytest.raises(Refused, match="boot media are made for x86_64"):
            await site.service.begin_from_medium("n0001")


async def test_a_build_that_somebody_changed_is_not_booted_and_an_alarm_says_which(tmp_path: Path) -> None:
    async with booting(tmp_path, media=True) as site:
        label = site.profiles.label("default", "x86_64")
        assert "vmlinuz" in (await site.script(1))[1]
        add_code(tmp_path)
        for _ in range(2):
            _, script = await site.script(1)
            assert "cannot boot yet" in script and "vmlinuz" not in script
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 403
        with pytest.raises(Refused, match="initrd is not as its manifest says"):
            await site.service.preview("n0001")
        with pytest.raises(Refused, match="initrd is not as its manifest says"):
            await site.service.begin_from_medium("n0001")
        assert [(alarm.kind, alarm.about) for alarm in site.alarms] == [("minos-refused", MINOS)]
        assert f"minOS {MINOS} is not booted any more: initrd" in site.alarms[0].message
        assert "strata minos build" in site.alarms[0].message
        assert site.profiles.label("default", "x86_64") == label, "nodes that run it go on"
        put_build(tmp_path / "minos", tmp_path / "signing")
        assert (await site.boot(1))["node"] == "n0001"


async def test_who_has_fetched_a_changed_initrd_does_not_get_the_token(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        assert "vmlinuz" in (await site.script(1))[1]
        add_code(tmp_path)
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 403
        assert site.kinds == ["minos-refused"]


async def test_a_build_of_another_key_is_not_booted(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        other = put_build(tmp_path / "minos", tmp_path / "elsewhere", b"other")
        assert "vmlinuz" not in (await site.script(1))[1]
        assert [alarm.about for alarm in site.alarms] == [other]
        assert "manifest.sig is not by this site's key" in site.alarms[0].message


def test_two_builds_that_were_changed_are_two_alarms() -> None:
    told: list[Alarm] = []
    alarms = FoldedAlarms(told.append)
    for digest in ("0" * 12, "1" * 12, "0" * 12):
        alarms(Alarm(kind="minos-refused", message=f"minOS {digest}", about=digest))
    assert [alarm.about for alarm in told] == ["0" * 12, "1" * 12]


async def test_a_file_is_read_once_and_again_when_it_is_another_one_also_of_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    problems = Artefacts.problems

    def counted(self: Artefacts, name: str, public_pem: str) -> list[str]:
        looks.append(name)
        return problems(self, name, public_pem)

    monkeypatch.setattr(Artefacts, "problems", counted)
    async with booting(tmp_path) as site:
        for number in (1, 2, 3, 1, 2, 3):
            assert "vmlinuz" in (await site.script(number))[1]
        await site.boot(1)
        assert looks == [MINOS]
        initrd = tmp_path / "minos" / MINOS / "initrd"
        seen = initrd.stat()
        initrd.write_bytes(b"y")
        os.utime(initrd, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        assert "vmlinuz" not in (await site.script(2))[1]
        assert looks == [MINOS] * 2
