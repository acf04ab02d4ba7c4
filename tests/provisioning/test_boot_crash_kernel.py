"""What a node needs of its boot for a crash kernel: reserved memory, and where its own kernel and initrd are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from strata.cli.main import run
from strata.provisioning.boot.profiles import check_parameters, layered
from strata.provisioning.minos import build as build_module
from support import minos as support
from support.boot_site import boot_json, booting
from support.signed_builds import put_build


@pytest.mark.parametrize(
    "parameters",
    ["crashkernel=160M", "crashkernel=1G-64G:256M,64G-:512M", "crashkernel=512M,high crashkernel=128M,low"],
)
def test_memory_for_a_crash_kernel_can_be_reserved_by_a_profile(parameters: str) -> None:
    check_parameters(parameters)
    assert layered("panic=10 crashkernel=64M", parameters) == f"panic=10 {parameters}"


async def test_boot_data_says_where_the_kernel_and_initrd_are_and_what_they_must_be(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        put_build(tmp_path / "minos", tmp_path / "signing", b"kernel", b"initrd")
        _, script = await site.script(1)
        told = boot_json((await site.get("/boot/fragment/n0001/1"))[1])["minos"]
        assert f"{told.pop('url')}/vmlinuz" in script
        digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("kernel", "initrd")}
        assert told == {"vmlinuz": f"sha256:{digests['kernel']}", "initrd": f"sha256:{digests['initrd']}"}


@pytest.mark.slow
def test_a_sites_own_crash_hook_is_built_in_and_makes_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = support.built()
    monkeypatch.setenv("STRATA_STATE", str(tmp_path))
    monkeypatch.setattr(build_module, "compressed", lambda archive, cache, filters: archive)
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\necho a hook of the site's own\n")
    assert run(["minos", "build", "--cache", str(support.PACKAGES), "--crash-hook", str(hook)]) == 0
    initrd = (tmp_path / "minos" / support.LATEST / "initrd").read_bytes()
    assert hook.read_bytes() in initrd
    assert b"last lines of the crashed kernel" not in initrd
    assert b"vmcore-dmesg" in support.unpack(usual / support.LATEST / "initrd")["etc/strata/crash-hook"]
