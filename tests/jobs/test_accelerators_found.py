"""The detector: what it finds in machines' trees, what it says is wrong, and what it never takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import machine_trees as trees
import pytest
from fake_nvml import FakeNvml

from strata.agent.host.accelerators import Detector
from strata.agent.host.inventory import inventory
from strata.agent.host.libraries import cached, of_driver
from strata.agent.paths import Paths
from strata.core.errors import Unavailable
from strata.jobs.accelerators.detection import detect


def found(root: Path, library: object = None) -> Detector:
    return Detector(Paths(root=root), library)


@pytest.mark.slow
def test_a_recorded_h200_is_found_by_its_driver_s_own_words(tmp_path: Path) -> None:
    has = detect(trees.h200(tmp_path))
    (card,) = has.accelerators
    assert (card.cdi, card.name, card.id) == (
        "nvidia.com/gpu=0",
        "NVIDIA H200",
        "GPU-42f918aa-3b42-d330-5549-26a646efdc83",
    )
    assert card.devices == ("/dev/nvidia0",) and card.address == "0000:00:06.0"
    assert has.supports("nvidia").driver == "580.159.04"
    assert has.supports("nvidia").devices == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert not has.problems


def test_the_libraries_are_those_of_the_driver_that_runs_and_of_this_processor(tmp_path: Path) -> None:
    for folder, version in (("/usr/local/cuda/compat", "580.95.05"), ("/usr/lib/x86_64-linux-gnu", "580.159.04")):
        trees.library(tmp_path, f"{folder}/libcuda.so.{version}")
        trees.link(tmp_path, f"{folder}/libcuda.so.1", f"libcuda.so.{version}")
    trees.library(tmp_path, "/usr/lib32/libcuda.so.580.159.04", alien=True)
    trees.link(tmp_path, "/usr/lib32/libcuda.so.1", "libcuda.so.580.159.04")
    folders = ("/usr/local/cuda/compat", "/usr/lib32", "/usr/lib/x86_64-linux-gnu")
    trees.cache(tmp_path, [("libcuda.so.1", f"{folder}/libcuda.so.1") for folder in folders])
    assert of_driver(tmp_path, ("libcuda.so",), "580.159.04") == [
        {"name": "libcuda.so.1", "path": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"}
    ]
    assert of_driver(tmp_path, ("libcuda.so",), "590.1") == [], "rather none than one that fails at the first call"


def test_the_linker_s_cache_is_read_as_ldconfig_reads_it() -> None:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    told = [(line.split()[0], line.rpartition(" => ")[2]) for line in listed if " => " in line]
    assert told and cached(Path("/")) == told


def test_amd_infiniband_and_slingshot_are_read_from_sysfs_and_a_bmc_s_display_is_no_accelerator(tmp_path: Path) -> None:
    machine = found(trees.mi250(tmp_path))
    first, second = machine.accelerators()
    assert first["devices"] == ["/dev/dri/renderD128", "/dev/dri/card0"] and second["index"] == 1
    assert (first["make"], first["memory_bytes"], second["numa"]) == ("amd", 68702699520, 1)
    hca, nic = machine.fabric()
    assert hca["devices"] == ["/dev/infiniband/uverbs0"] and hca["address"] == "0000:41:00.0"
    assert hca["ports"] == [{"port": 1, "state": "ACTIVE", "gbit_s": 200, "layer": "InfiniBand"}]
    assert (nic["name"], nic["devices"], nic["ports"][0]["gbit_s"]) == ("cxi0", ["/dev/cxi0"], 200)
    assert machine.support(["amd"])["amd"]["devices"] == ["/dev/kfd"]
    assert not machine.problems() and not machine.fabric_problems()


def test_what_a_processor_shows_pictures_by_is_no_accelerator_and_a_card_of_its_make_is(tmp_path: Path) -> None:
    for address in ("0000:00:02.0", "0000:3a:00.0"):
        pci = f"sys/bus/pci/devices/{address}"
        trees.put(tmp_path, {f"{pci}/class": "0x038000", f"{pci}/vendor": "0x8086", f"{pci}/device": "0x0bd5"})
        trees.put(tmp_path, {f"{pci}/drm/card1/gt/gt0/throttle_reason_status": 1})
        trees.put(tmp_path, {f"{pci}/drm/card1/gt/gt0/throttle_reason_thermal": 1})
    (card,) = found(tmp_path).accelerators()
    assert (card["address"], card["make"]) == ("0000:3a:00.0", "intel")
    assert found(tmp_path).problems() == {"0000:3a:00.0": ["is slowed down: thermal"]}


def test_a_rule_of_the_site_makes_an_accelerator_of_what_nobody_knows(tmp_path: Path) -> None:
    rule = {"make": "tpu", "kind": "tpu", "pci": ["1ae0:0063"], "name": "TPU v4", "devices": ["/dev/accel{index}"]}
    trees.put(tmp_path, {"etc/strata/accelerators.json": json.dumps([rule, "nonsense", {"make": "../x"}])})
    for address in ("0000:05:00.0", "0000:06:00.0"):
        pci = f"sys/bus/pci/devices/{address}"
        trees.put(tmp_path, {f"{pci}/class": "0xff0000", f"{pci}/vendor": "0x1ae0", f"{pci}/device": "0x0063"})
    trees.devices(tmp_path, "/dev/accel0", "/dev/accel1")
    cards = found(tmp_path).accelerators()
    assert [card["devices"] for card in cards] == [["/dev/accel0"], ["/dev/accel1"]]
    assert {card["name"] for card in cards} == {"TPU v4"}


def test_an_accelerator_that_no_rule_names_is_listed_without_a_make_and_hides_no_other(tmp_path: Path) -> None:
    trees.h200(tmp_path)
    pci = "sys/bus/pci/devices/0000:07:00.0"
    trees.put(tmp_path, {f"{pci}/class": "0x120000", f"{pci}/vendor": "0x1ae0", f"{pci}/device": "0x0063"})
    shown = found(tmp_path).all()
    assert [card.get("make") for card in shown["accelerators"]] == ["nvidia", None]
    assert shown["accelerators"][1]["vendor"] == "0x1ae0" and list(shown["support"]) == ["nvidia"]


def test_what_nvidia_s_library_says_counts_and_what_is_wrong_is_said_in_words(tmp_path: Path) -> None:
    trees.h200(tmp_path)
    card = {
        "address": "0000:00:06.0",
        "memory": 143771 << 20,
        "nvmlDeviceGetName": "NVIDIA H200 SXM",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetMinorNumber": [0],
        "nvmlDeviceGetTotalEccErrors": [2],
        "nvmlDeviceGetRemappedRows": [0, 0, 1, 0],
        "nvmlDeviceGetCurrentClocksThrottleReasons": [0x1 | 0x40],
    }
    machine = found(tmp_path, FakeNvml(card))
    (entry,) = machine.accelerators()
    assert (entry["name"], entry["id"], entry["memory_bytes"]) == ("NVIDIA H200 SXM", "GPU-1", 143771 << 20)
    assert machine.problems() == {
        "0000:00:06.0": [
            "2 uncorrectable memory errors since its driver started",
            "needs a reset: a memory row is to be replaced",
            "is slowed down: too hot (hardware)",
        ]
    }
    lost = found(tmp_path, FakeNvml({**card, "lost": True}))
    assert lost.accelerators()[0]["name"] == "NVIDIA H200", "a card that its library has lost is told of by the kernel"
    assert not lost.problems()


def test_lost_lanes_a_card_off_the_bus_memory_errors_and_an_absent_subnet_manager_are_problems(tmp_path: Path) -> None:
    trees.mi250(tmp_path)
    first, second = (f"sys/bus/pci/devices/0000:{bus}:00.0" for bus in ("c1", "c6"))
    trees.put(tmp_path, {f"{first}/max_link_width": 16, f"{first}/current_link_width": 4})
    trees.put(tmp_path, {f"{first}/ras/umc_err_count": "ue: 1\nce: 3\n"})
    (tmp_path / second / "config").write_bytes(b"\xff\xff\xff\xff")
    trees.put(tmp_path, {"sys/class/infiniband/mlx5_0/ports/1/state": "2: INIT"})
    assert found(tmp_path).problems() == {
        "0000:c1:00.0": ["has 4 of 16 lanes", "1 uncorrectable errors (umc)"],
        "0000:c6:00.0": ["has fallen off the bus"],
    }
    told = found(tmp_path).fabric_problems()["mlx5_0"]
    assert told == ["port 1 is INIT: no subnet manager has brought it up"]


def test_an_agent_tells_what_the_detector_finds(tmp_path: Path) -> None:
    told = inventory(Paths(root=trees.mi250(tmp_path)))
    assert [card["make"] for card in told["accelerators"]] == ["amd", "amd"]
    assert [adapter["name"] for adapter in told["fabric"]] == ["mlx5_0", "cxi0"]


@pytest.mark.slow
def test_a_driver_that_hangs_keeps_nobody_and_a_detector_that_fails_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    with pytest.raises(Unavailable, match="did not answer"):
        detect(tmp_path, patience=0.1)
    hanging.write_text("#!/bin/sh\necho it broke >&2; exit 3\n")
    with pytest.raises(Unavailable, match="it broke"):
        detect(tmp_path)
