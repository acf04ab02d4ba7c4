"""Scripts, parameters, profiles and archives: pure parts of the boot service."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, NotFound, Refused
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.cpio import Member, archive
from strata.provisioning.boot.profiles import check_parameters, layered
from strata.provisioning.boot.records import Profile
from strata.provisioning.boot.script import Kernel, boot_script, waiting_script
from support.boot_site import booting
from support.signed_builds import open_builds, put_build

KERNEL = Kernel(base="http://10.0.0.1:4281/abc", parameters="console=ttyS0")


def test_a_script_fetches_the_fragment_last_and_frees_what_it_fetched_when_it_fails() -> None:
    lines = (
        boot_script("n1", 7, "http://10.0.0.1:4280", KERNEL, "http://10.0.0.1:4280/again?mac=x").decode().split("\n")
    )
    words = [line.split(" ")[0] for line in lines]
    assert words[:7] == ["#!ipxe", "echo", "imgfree", "kernel", "initrd", "initrd", "boot"]
    assert lines[5] == "initrd --name fragment http://10.0.0.1:4280/boot/fragment/n1/7 || goto failed"
    assert lines[7:9] == [":failed", "imgfree"]
    assert lines[-3:-1] == ["sleep 60", "goto ask"]


def test_a_script_that_waits_asks_anew_for_ever() -> None:
    text = waiting_script("node n1 is held", 30, "http://s/x?mac=y").decode()
    assert text.startswith(
        "#!ipxe\necho Strata: node n1 is held\nsleep 30\nchain --autofree --replace http://s/x?mac=y&wait=2 ||"
    )
    assert text.endswith(":ask\nchain --autofree --replace http://s/x?mac=y&wait=60 ||\nsleep 60\ngoto ask\n")


def test_what_a_later_layer_says_of_a_parameter_replaces_what_was_said_before() -> None:
    assert layered("console=ttyS0 panic=10", "quiet panic=30", "console=tty1 console=ttyS1") == (
        "quiet panic=30 console=tty1 console=ttyS1"
    )
    assert layered("console=ttyS0 panic=10", "-panic -nothing") == "console=ttyS0"


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "strata.token=abcdef",
        "api_key=123",
        "wifi.psk-secret=x",
        "url=http://user:pass@host/",
        "a=${net0/ip}",
        "a || shell",
        "a && reboot",
        "a;b",
        "quiet\nshell",
        'x="y"',
        "#",
        "x" * 2000,
    ],
)
def test_parameters_with_a_secret_or_with_a_meaning_for_a_boot_loader_are_refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_parameters(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "quiet", "console=tty0 console=ttyS1,115200n8 keymap=de", "-panic crashkernel=512M@0", "a.b=c:d/e,f+g"]
)
def test_ordinary_parameters_are_accepted(text: str) -> None:
    check_parameters(text)


async def test_profiles_stand_on_the_default_one(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        profiles = site.profiles
        await profiles.put("debug", Profile(parameters="panic=0 loglevel=7"), "anna")
        await profiles.put("default", Profile(parameters="quiet"), "anna")
        assert profiles.parameters("default") == "console=ttyS0,115200 panic=10 quiet"
        assert profiles.parameters("debug") == "console=ttyS0,115200 quiet panic=0 loglevel=7"
        before = profiles.label("debug", "x86_64")
        await profiles.put("default", Profile(), "anna")
        assert profiles.label("debug", "x86_64") != before
        await profiles.delete("debug", "anna")
        with pytest.raises(NotFound):
            profiles.get("debug")


async def test_profiles_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        profiles = site.profiles
        for name, profile in (
            ("../x", Profile()),
            ("x", Profile(minos="../../etc")),
            ("x", Profile(minos="1234")),
            ("x", Profile(parameters="root_password=x")),
        ):
            with pytest.raises(BadRequest):
                await profiles.put(name, profile, "anna")
        with pytest.raises(Refused):
            await profiles.delete("default", "anna")
        await profiles.put("used", Profile(), "anna")
        with pytest.raises(Refused):
            await profiles.delete("used", "anna", users=1)
        with pytest.raises(NotFound):
            await profiles.delete("unused", "anna")


def test_the_newest_minimal_os_is_the_one_that_the_link_names(tmp_path: Path) -> None:
    minos, signing = tmp_path / "minos", tmp_path / "signing"
    with pytest.raises(NotFound, match="strata minos build --arch x86_64"):
        open_builds(minos, signing).digest("latest", "x86_64")
    now = 0.0
    found = Builds(minos, open_builds(minos, signing).soundness, clock=lambda: now)
    one = put_build(minos, signing, b"one")
    assert found.digest("latest", "x86_64") == one
    two = put_build(minos, signing, b"two")
    assert found.digest("latest", "x86_64") == one, "it was looked up a moment ago"
    now = 5.0
    assert found.digest("latest", "x86_64") == two
    with pytest.raises(NotFound):
        found.digest("2" * 12, "x86_64")
    (minos / "latest-x86_64").unlink()
    (minos / "latest-x86_64").symlink_to("../../etc")
    now = 10.0
    with pytest.raises(NotFound):
        found.digest("latest", "x86_64")


def test_each_architecture_has_a_newest_minimal_os_of_its_own_and_gets_no_other(tmp_path: Path) -> None:
    minos, signing = tmp_path / "minos", tmp_path / "signing"
    pc = put_build(minos, signing)
    arm = put_build(minos, signing, arch="aarch64")
    found = open_builds(minos, signing)
    assert (found.digest("latest", "x86_64"), found.digest("latest", "aarch64")) == (pc, arm)
    assert found.by_architecture("latest") == {"x86_64": pc, "aarch64": arm}
    assert found.by_architecture(arm) == {"aarch64": arm}
    assert found.digest(arm, "aarch64") == arm
    with pytest.raises(Refused, match=f"{arm}: it is for aarch64, and cannot be booted on x86_64"):
        found.digest(arm, "x86_64")
    with pytest.raises(NotFound, match="no minimal OS was built yet for riscv64"):
        found.digest("latest", "riscv64")


def test_a_link_that_names_no_architecture_is_that_of_its_build(tmp_path: Path) -> None:
    """As earlier releases left it in the state directory."""
    minos, signing = tmp_path / "minos", tmp_path / "signing"
    arm = put_build(minos, signing, arch="aarch64")
    (minos / "latest-aarch64").rename(minos / "latest")
    found = open_builds(minos, signing)
    assert found.digest("latest", "aarch64") == arm
    with pytest.raises(NotFound):
        found.digest("latest", "x86_64")
    pc = put_build(minos, signing)
    assert (found.digest("latest", "x86_64"), found.digest("latest", "aarch64")) == (pc, arm)
    newer = put_build(minos, signing, b"newer", arch="aarch64")
    assert open_builds(minos, signing).by_architecture("latest") == {"x86_64": pc, "aarch64": newer}
    assert not (minos / "latest").is_symlink()


def test_an_archive_is_what_cpio_unpacks_and_the_same_every_time(tmp_path: Path) -> None:
    members = [
        Member(path="etc/strata/boot.json", data=b"{}", mode=0o600),
        Member(path="etc/empty"),
        Member(path="bin/sh", data=b"#!x", mode=0o755),
        Member(path="bin/link", data=b"sh", mode=stat.S_IFLNK | 0o777),
    ]
    data = archive(members)
    assert data == archive(members)
    assert len(data) % 4 == 0
    subprocess.run(["cpio", "-idm", "--quiet"], input=data, cwd=tmp_path, check=True)
    found = tmp_path / "etc/strata/boot.json"
    assert found.read_bytes() == b"{}"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert (tmp_path / "etc/empty").is_dir()
    assert (tmp_path / "bin/link").readlink() == Path("sh")
    for path in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(BadRequest):
            archive([Member(path=path, data=b"")])
