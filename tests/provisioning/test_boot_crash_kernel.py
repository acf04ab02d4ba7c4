"""What a node needs of its boot for a crash kernel: reserved memory, and where its own kernel and initrd are."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.cli.main import run
from strata.provisioning.boot.parameters import check_parameters, layered
from strata.provisioning.minos import build as build_module
from strata.provisioning.minos.artefacts import MANIFEST, Manifest, Part, encode
from support import minos as support
from support.boot_site import MINOS, boot_json, booting


@pytest.mark.parametrize(
    "parameters",
    ["crashkernel=160M", "crashkernel=1G-64G:256M,64G-:512M", "crashkernel=512M,high crashkernel=128M,low"],
)
def test_memory_for_a_crash_kernel_can_be_reserved_by_a_profile(parameters: str) -> None:
    check_parameters(parameters)
    assert layered("panic=10 crashkernel=64M", parameters) == f"panic=10 {parameters}"


async def test_boot_data_says_where_the_kernel_and_initrd_are_and_what_they_must_be(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        manifest = Manifest(
            arch="x86_64", kernel="6.1", inputs=(), agent="", files="", modules=(), unpacked=1,
            vmlinuz=Part(size=1, sha256="a" * 64), initrd=Part(size=1, sha256="b" * 64),
        )  # fmt: skip
        (tmp_path / "minos" / MINOS / MANIFEST).write_bytes(encode(manifest))
        _, script = await site.script(1)
        told = boot_json((await site.get("/boot/fragment/n0001/1"))[1])["minos"]
        assert f"{told.pop('url')}/vmlinuz" in script
        assert told == {"vmlinuz": "sha256:" + "a" * 64, "initrd": "sha256:" + "b" * 64}


async def test_a_build_without_a_manifest_boots_all_the_same(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        assert boot_json((await site.get("/boot/fragment/n0001/1"))[1])["minos"] == {}


@pytest.mark.slow
def test_a_sites_own_crash_hook_is_built_in_and_makes_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = support.built()
    monkeypatch.setenv("STRATA_STATE", str(tmp_path))
    monkeypatch.setattr(build_module, "compressed", lambda archive, cache: archive)
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\necho a hook of the site's own\n")
    assert run(["minos", "build", "--cache", str(support.PACKAGES), "--crash-hook", str(hook)]) == 0
    initrd = (tmp_path / "minos" / "latest" / "initrd").read_bytes()
    assert hook.read_bytes() in initrd
    assert b"last lines of the crashed kernel" not in initrd
    assert b"vmcore-dmesg" in support.unpack(usual / "latest" / "initrd")["etc/strata/crash-hook"]
