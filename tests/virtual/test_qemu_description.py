"""What a virtual chassis will be, before anything is made: names, addresses, command lines, readings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Conflict, Denied, NotFound
from strata.core.host import process as ps
from strata.virtual.qemu import create as making
from strata.virtual.qemu import description
from strata.virtual.qemu.bmc import IDLE_WATTS, STANDBY_WATTS, Meter
from strata.virtual.qemu.command import command
from strata.virtual.qemu.description import Options, describe


def test_the_last_nodes_have_uefi_firmware_and_each_has_its_own_numbers(tmp_path):
    found = describe(Options(directory=tmp_path, nodes=4, uefi=2))
    assert [node.firmware for node in found.nodes] == ["bios", "bios", "uefi", "uefi"]
    assert [node.address for node in found.nodes] == ["10.77.0.11", "10.77.0.12", "10.77.0.13", "10.77.0.14"]
    for field in ("name", "mac", "uuid", "serial", "tap", "bmc"):
        assert len({getattr(node, field) for node in found.nodes}) == 4
    assert found == describe(Options(directory=tmp_path, nodes=4, uefi=2))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": 201}, "nodes"),
        ({"nodes": 2, "uefi": 3}, "uefi"),
        ({"memory": 64}, "memory"),
        ({"network": "10.77.0.1/24"}, "network"),
        ({"network": "10.77.0.0/28", "nodes": 10}, "network"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_option(tmp_path, wrong, field):
    with pytest.raises(BadRequest) as refused:
        describe(Options(directory=tmp_path, **wrong))
    assert refused.value.where == field


def test_a_description_is_read_back_and_half_of_one_is_told(tmp_path):
    with pytest.raises(NotFound):
        description.read(tmp_path)
    found = describe(Options(directory=tmp_path))
    description.write(tmp_path, found)
    assert description.read(tmp_path) == found
    whole = (tmp_path / description.FILE).read_bytes()
    (tmp_path / description.FILE).write_bytes(whole[:50])
    with pytest.raises(Conflict, match="not the description"):
        description.read(tmp_path)


def test_a_node_is_never_given_to_kvm_and_a_comma_in_a_path_does_no_harm(tmp_path):
    found = describe(Options(directory=tmp_path, nodes=1, uefi=1))
    told = command("qemu", found.nodes[0], found.id, Path("/a,b"), cd_first=True, http=True, medium=True)
    assert told[told.index("-accel") + 1].startswith("tcg")
    assert not any("kvm" in argument for argument in told)
    assert any("file=/a,,b/medium.iso" in argument for argument in told)


def test_without_root_it_says_so_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Denied, match="needs root"):
        making.create(Options(directory=tmp_path / "virtual"))
    assert not (tmp_path / "virtual").exists()


def test_a_missing_program_is_named_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(making.qemu, "PROGRAM", "qemu-system-of-nobody")
    with pytest.raises(Exception, match=r"qemu-system-of-nobody.*apt-get install qemu-system-x86"):
        making.check_host(uefi=False)


def test_the_meter_counts_what_is_drawn_off_idle_and_at_work():
    meter = Meter()
    meter.read(0.0, None)
    meter.read(10.0, None)
    assert (meter.watts, meter.joules) == (STANDBY_WATTS, 10 * STANDBY_WATTS)
    ours = ps.find(os.getpid())
    meter.read(20.0, ours)
    assert meter.watts == IDLE_WATTS
    meter.read(21.0, ours)
    assert meter.watts >= IDLE_WATTS
    assert meter.joules == pytest.approx(20 * STANDBY_WATTS + meter.watts)
