"""Boot media: made for one boot, fetched by a secret name, gone when the node has arrived."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from strata.core.errors import NotFound, Refused, Unavailable
from strata.provisioning.boot import media as media_module
from strata.provisioning.boot.media import Media
from strata.provisioning.boot.records import Profile
from strata.provisioning.identity.identity import TOKEN_TTL
from support.boot_site import IPXE, MINOS, address_of, boot_json, booting, make_csr

pytestmark = pytest.mark.slow


def inside(iso: Path, path: str, scratch: Path) -> bytes:
    """A file of an ISO."""
    target = scratch / "extracted"
    target.unlink(missing_ok=True)
    subprocess.run(
        ["xorriso", "-osirrox", "on", "-indev", iso, "-extract", path, target], check=True, capture_output=True
    )
    target.chmod(0o600)
    return target.read_bytes()


def boot_entries(iso: Path) -> str:
    """What firmware finds to start."""
    command = ["xorriso", "-indev", iso, "-report_el_torito", "plain"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def name_of(address: str) -> str:
    return address.rsplit("/", 1)[1]


async def test_a_medium_holds_what_the_network_must_not_carry(tmp_path: Path) -> None:
    async with booting(tmp_path, media=True) as site:
        await site.profiles.put("quiet", Profile(method="media", parameters="quiet"), "anna")
        site.profile["n0001"] = "quiet"
        address = await site.service.begin_from_medium("n0001")
        assert address.startswith("https://127.0.0.1:8443/v1/boot/media/")
        file = site.service.medium(name_of(address))
        assert file is not None and name_of(address) not in file
        iso = tmp_path / "media" / file
        assert iso.stat().st_mode & 0o077 == 0
        told = boot_json(inside(iso, "/boot/fragment", tmp_path))
        assert told["node"] == "n0001" and told["generation"] == 1
        config = inside(iso, "/boot/grub/grub.cfg", tmp_path).decode()
        assert "linux /boot/vmlinuz console=ttyS0,115200 panic=10 quiet\n" in config
        assert told["token"] not in config
        listing = boot_entries(iso)
        assert " BIOS " in listing and " UEFI " in listing
        await site.identity.redeem(told["token"], make_csr("n0001")[0], address_of(1))
        assert site.service.medium(name_of(address)) is None
        assert not iso.exists()
    assert not (tmp_path / "media").exists()


async def test_a_node_that_boots_from_a_medium_gets_nothing_over_the_network(tmp_path: Path) -> None:
    async with booting(tmp_path, media=True) as site:
        await site.profiles.put("quiet", Profile(method="media"), "anna")
        site.profile["n0001"] = "quiet"
        status, script = await site.script(1)
        assert status == 200 and "medium" in script and "vmlinuz" not in script
        assert (await site.get("/boot/fragment/n0001/1", agent=IPXE))[0] == 403
        assert site.kinds == ["boot-data-refused"]


async def test_a_medium_ends_with_its_token_with_the_next_one_and_with_a_wrong_name(tmp_path: Path) -> None:
    async with booting(tmp_path, media=True) as site:
        first = name_of(await site.service.begin_from_medium("n0001"))
        second = name_of(await site.service.begin_from_medium("n0001"))
        assert site.service.medium(first) is None
        assert site.service.medium(second)
        for wrong in ("", "x.iso", "../" + second, second.upper(), "a" * 43 + ".iso"):
            assert site.service.medium(wrong) is None
        site.now += TOKEN_TTL
        assert site.service.medium(second) is None
        await site.service.begin_from_medium("n0002")
        assert len(list((tmp_path / "media").glob("*.iso"))) == 1


async def test_a_node_that_is_held_unknown_or_fails_too_often_gets_no_medium(tmp_path: Path) -> None:
    async with booting(tmp_path, media=True, attempts=1) as site:
        with pytest.raises(NotFound):
            await site.service.begin_from_medium("nobody")
        site.held["n0001"] = "broken"
        with pytest.raises(Refused):
            await site.service.begin_from_medium("n0001")
        await site.service.begin_from_medium("n0002")
        with pytest.raises(Refused):
            await site.service.begin_from_medium("n0002")
        await site.told.wait()
        assert "n0002" in site.held
    async with booting(tmp_path) as without:
        with pytest.raises(Unavailable):
            await without.service.begin_from_medium("n0001")


async def test_a_tool_that_is_missing_or_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media = Media(tmp_path / "media")
    await media.start()
    build = tmp_path / MINOS
    build.mkdir()
    with pytest.raises(Unavailable, match="xorriso failed"):
        await media.add("n1", 1, build, "", b"", 2e9)
    monkeypatch.setattr(media_module.subprocess, "run", _missing)
    with pytest.raises(Unavailable, match="apt-get install"):
        await media.add("n1", 1, build, "", b"", 2e9)
    await media.stop()


def _missing(*_: object, **__: object) -> None:
    raise FileNotFoundError


async def test_what_an_earlier_process_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "old.iso").write_bytes(b"secret")
    media = Media(folder)
    await media.start()
    assert not list(folder.iterdir())
    await media.stop()
