"""Building the minimal OS: reproducible, small, signed; and looking after builds."""

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from strata.cli.main import run
from strata.core.errors import BadRequest, Conflict, NotFound, Unavailable
from strata.provisioning.minos import elf
from strata.provisioning.minos.artefacts import Artefacts, Manifest, Part
from strata.provisioning.minos.build import build, compressed
from strata.provisioning.minos.recipe import RECIPES, recipe
from strata.provisioning.signing import Signer
from support import minos as support

LIMIT = 10_000_000
"""Bytes of the initrd: a rack of nodes fetches it at once."""


def manifest(kernel: bytes, initrd: bytes, **changes: Any) -> Manifest:
    def part(data: bytes) -> Part:
        return Part(size=len(data), sha256=hashlib.sha256(data).hexdigest())

    told: dict[str, Any] = {
        "arch": "x86_64",
        "kernel": "6.1.0",
        "inputs": (),
        "agent": "",
        "files": "",
        "modules": (),
        "unpacked": 1,
        "vmlinuz": part(kernel),
        "initrd": part(initrd),
    }
    return Manifest(**told | changes)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.open(tmp_path / "signing")


@pytest.fixture
def artefacts(tmp_path: Path) -> Artefacts:
    return Artefacts(tmp_path / "minos")


def test_the_last_build_is_the_latest_until_another_one_is_chosen(artefacts: Artefacts, signer: Signer):
    first = artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer)
    second = artefacts.add(manifest(b"k", b"2"), b"k", b"2", signer)
    assert artefacts.get("latest").digest == second.digest
    artefacts.choose(first.digest[:6])
    assert [one.digest for one in artefacts.all() if one.latest] == [first.digest]
    assert artefacts.problems("latest", signer.public_pem) == []


def test_the_latest_is_not_removed_and_another_one_is(artefacts: Artefacts, signer: Signer):
    old = artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer)
    new = artefacts.add(manifest(b"k", b"2"), b"k", b"2", signer)
    with pytest.raises(Conflict, match="latest"):
        artefacts.remove("latest")
    artefacts.remove(old.digest)
    assert [one.digest for one in artefacts.all()] == [new.digest]


@pytest.mark.parametrize("name", ["latest", "0123", "../signing", "", "g" * 12])
def test_a_build_that_is_not_there_is_not_found(artefacts: Artefacts, name: str):
    with pytest.raises(NotFound, match="no such build"):
        artefacts.get(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("vmlinuz", "vmlinuz is not as its manifest says"),
        ("initrd", "initrd is not as its manifest says"),
        ("manifest.sig", "manifest.sig is not by this site's key"),
    ],
)
def test_a_changed_file_is_noticed(artefacts: Artefacts, signer: Signer, name: str, problem: str):
    made = artefacts.add(manifest(b"kernel", b"initrd"), b"kernel", b"initrd", signer)
    path = made.path / name
    path.write_bytes(b"X" + path.read_bytes()[1:])
    assert artefacts.problems("latest", signer.public_pem) == [problem]


def test_a_manifest_of_another_build_under_this_name_is_noticed(artefacts: Artefacts, signer: Signer):
    made = artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer)
    other = artefacts.add(manifest(b"k", b"1", arch="aarch64"), b"k", b"1", signer)
    for name in ("manifest.json", "manifest.sig"):
        (made.path / name).write_bytes((other.path / name).read_bytes())
    assert artefacts.problems(made.digest, signer.public_pem) == [
        f"manifest.json is not the one that {made.digest} names"
    ]


def test_a_damaged_build_is_made_good_by_building_again(artefacts: Artefacts, signer: Signer):
    made = artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer)
    (made.path / "initrd").write_bytes(b"other")
    artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer)
    assert artefacts.problems("latest", signer.public_pem) == []
    assert not [path for path in artefacts.root.iterdir() if path.name.startswith(".")]


def strata(state: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[int, str]:
    monkeypatch.setenv("STRATA_STATE", str(state))
    code = run(["minos", *arguments])
    return code, capsys.readouterr().out


def test_each_architecture_has_a_latest_of_its_own(
    tmp_path: Path,
    artefacts: Artefacts,
    signer: Signer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    old = artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer).digest
    new = artefacts.add(manifest(b"k", b"2"), b"k", b"2", signer).digest
    arm = artefacts.add(manifest(b"k", b"1", arch="aarch64"), b"k", b"1", signer).digest

    def told(*arguments: str, code: int = 0) -> str:
        found, text = strata(tmp_path, *arguments, monkeypatch=monkeypatch, capsys=capsys)
        assert found == code, text
        return text

    def chosen() -> dict[str, str]:
        return {row["arch"]: row["digest"] for row in json.loads(told("list", "--json")) if row["latest"]}

    assert chosen() == {"x86_64": new, "aarch64": arm}
    assert told("choose", old) == f"{old} is the latest for x86_64\n"
    assert chosen() == {"x86_64": old, "aarch64": arm}
    assert json.loads(told("show", "latest-aarch64", "--json"))["digest"] == arm
    with pytest.raises(BadRequest, match="name one of latest-aarch64, latest-x86_64"):
        artefacts.get("latest")
    for digest in (old, arm):
        with pytest.raises(Conflict, match="latest"):
            artefacts.remove(digest)
    artefacts.remove(new)


def test_the_command_lists_shows_verifies_chooses_and_removes(
    tmp_path: Path,
    artefacts: Artefacts,
    signer: Signer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    old = artefacts.add(manifest(b"k", b"1"), b"k", b"1", signer)
    new = artefacts.add(manifest(b"k", b"2"), b"k", b"2", signer)

    def told(*arguments: str, code: int = 0) -> Any:
        found, text = strata(tmp_path, *arguments, "--json", monkeypatch=monkeypatch, capsys=capsys)
        assert found == code, text
        return json.loads(text) if text else None

    assert {row["digest"]: row["latest"] for row in told("list")} == {old.digest: False, new.digest: True}
    assert told("show", old.digest)["kernel"] == "6.1.0"
    assert told("verify")["ok"]
    assert told("choose", old.digest) == {"latest": old.digest, "arch": "x86_64"}
    assert told("remove", new.digest) == {"removed": new.digest}
    (old.path / "initrd").write_bytes(b"X")
    assert told("verify", code=1)["problems"] == ["initrd is not as its manifest says"]
    told("remove", "latest", code=5)
    told("show", "abcdef", code=1)


def test_there_is_no_build_without_an_agent(tmp_path: Path, artefacts: Artefacts, signer: Signer):
    with pytest.raises(Unavailable, match="no agent to pack"):
        build(recipe("x86_64"), tmp_path, support.PACKAGES, artefacts, signer)


@pytest.mark.slow
def test_a_build_is_small_signed_and_says_what_it_was_made_of():
    artefacts = Artefacts(support.built())
    made = artefacts.get("latest")
    assert artefacts.problems("latest", Signer.open(support.built().parent / "signing").public_pem) == []
    assert made.manifest.initrd.size <= LIMIT
    inputs = {one.name for one in made.manifest.inputs}
    assert {"busybox", "crun", "libssl3", "openssl", "python3.11-minimal"} <= inputs
    assert not {"libreadline8", "libsqlite3-0", "libncursesw6", "libsystemd0", "libgcrypt20"} & inputs
    assert {"virtio_net", "overlay", "squashfs", "loop", "nbd"} <= set(made.manifest.modules)
    assert stat.S_IMODE((made.path / "initrd").stat().st_mode) == 0o644


@pytest.mark.slow
def test_the_same_inputs_give_the_same_digest_wherever_it_is_built_and_the_second_time_it_is_quick(tmp_path: Path):
    cache = support.packages_only(tmp_path / "cache")
    support.make(tmp_path / "another" / "minos", tmp_path / "signing", cache=cache)
    again = Artefacts(tmp_path / "another" / "minos").get("latest")
    assert again.manifest == Artefacts(support.built()).get("latest").manifest

    def written() -> set[tuple[str, int]]:
        return {(path.name, path.stat().st_mtime_ns) for path in cache.glob("initrd-*")}

    before = written()
    assert len(before) == 2
    support.make(tmp_path / "third" / "minos", tmp_path / "signing", cache=cache)
    assert Artefacts(tmp_path / "third" / "minos").get("latest").digest == again.digest
    assert written() == before


@pytest.mark.slow
def test_it_is_small_with_the_general_kernel_and_all_usual_drivers_too(tmp_path: Path):
    support.make(tmp_path / "minos", tmp_path / "signing", kernel="linux-image-amd64")
    made = Artefacts(tmp_path / "minos").get("latest")
    assert made.manifest.initrd.size <= LIMIT
    assert {"mlx5_core", "ice", "bnxt_en", "nvme", "ahci", "ipmi_si", "usbhid"} <= set(made.manifest.modules)


@pytest.mark.slow
def test_what_was_kept_compressed_is_not_trusted(tmp_path: Path):
    (tmp_path / "initrd-of-another.xz").write_bytes(b"nonsense")
    archive = b"an archive" * 1000
    first = compressed(archive, tmp_path)
    (kept,) = set(tmp_path.glob("initrd-*.xz")) - {tmp_path / "initrd-of-another.xz"}
    kept.write_bytes(b"nonsense")
    assert compressed(archive, tmp_path) == first
    assert len(first) % 4 == 0


@pytest.mark.slow
def test_the_other_architecture_is_built_of_its_own_programs_only(tmp_path: Path):
    support.make(tmp_path / "minos", tmp_path / "signing", arch="aarch64")
    made = Artefacts(tmp_path / "minos").get("latest")
    assert made.manifest.initrd.size <= LIMIT
    assert made.manifest.kernel.endswith("arm64")
    machines = {
        path: header.machine
        for path, data in support.unpack(made.path / "initrd").items()
        if (header := elf.read(data)) is not None
    }
    assert {"bin/busybox", "usr/bin/crun", "usr/bin/python3.11"} <= machines.keys()
    assert set(machines.values()) == {RECIPES["aarch64"].machine}
