"""What Slurm is told that nodes have, and the tree of switches that they are on."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.hardware.inventory.records import Component
from strata.platform.slurm.hardware import of_host, of_parts, rounded, together
from strata.platform.slurm.tree import by_fabric, by_location, declared
from strata.provisioning.agents.records import HostHardware
from strata.schedulers.slurm.conf import Gpus, Hardware, Switch

GIB = 1 << 30


def host(sockets: int, cores: int, threads: int, gib: float = 256, cards: tuple[str, ...] = ()) -> Hardware | None:
    told = {
        "cpu": {"model": "x", "sockets": sockets, "cores": cores, "threads": threads},
        "memory_bytes": int(gib * GIB),
        "accelerators": [{"address": "0000:01:00.0", "vendor": card, "device": "0x20b0"} for card in cards],
    }
    return of_host(msgspec.convert(told, HostHardware))


def part(kind: str, vendor: str = "", model: str = "", **facts: str | int) -> Component:
    return Component(id=f"/{kind}", kind=kind, vendor=vendor, model=model, facts=facts)  # type: ignore[arg-type]


CPU = part("processor", type="CPU", cores=64, threads=128)
DIMM = part("memory", capacity_mib=65536)
GPU = part("accelerator", "NVIDIA", "A100-SXM4-80GB", type="GPU")


def test_a_kernel_counts_all_cores_and_slurm_wants_those_of_a_socket() -> None:
    assert host(2, 128, 256) == Hardware(sockets=2, cores=64, threads=2, memory=262144)
    assert host(1, 12, 20) == Hardware(sockets=1, cores=20, threads=1, memory=262144), "some cores have two threads"
    assert host(0, 0, 0) is None and host(1, 4, 4, gib=0) is None


def test_cards_that_only_show_something_are_no_accelerators() -> None:
    has = host(1, 4, 4, cards=("0x1a03", "0x10de", "0x10de", "0x1234"))
    assert has is not None and has.gpus == (Gpus(count=2, files="/dev/nvidia[0-1]"),)


def test_what_drivers_tell_of_their_cards_is_what_slurm_is_told() -> None:
    told = msgspec.convert(
        {
            "cpu": {"sockets": 1, "cores": 8, "threads": 8},
            "memory_bytes": 64 * GIB,
            "accelerators": [
                {"vendor": "0x10de", "make": "nvidia", "name": "NVIDIA H200", "devices": [f"/dev/nvidia{minor}"]}
                for minor in (0, 1, 4)
            ]
            + [
                {
                    "make": "amd",
                    "name": "AMD Instinct MI210",
                    "devices": [f"/dev/dri/renderD{128 + at}", "/dev/dri/card1"],
                }
                for at in range(2)
            ],
        },
        HostHardware,
    )
    has = of_host(told)
    assert has is not None and has.gpus == (
        Gpus(count=3, type="nvidia_h200", files="/dev/nvidia[0-1],/dev/nvidia4"),
        Gpus(count=2, type="amd_instinct_mi210", files="/dev/dri/renderD[128-129]"),
    ), "the numbers are the driver's: the card in between is gone"
    assert together(has, of_parts([CPU, DIMM, GPU])) == has, "drivers know better than a BMC"


def test_a_bmc_tells_of_memory_that_the_kernel_does_not_have() -> None:
    has = of_parts([CPU, CPU, DIMM, DIMM, DIMM, DIMM, GPU, GPU, GPU, GPU])
    assert has == Hardware(
        sockets=2,
        cores=64,
        threads=2,
        memory=rounded(int(4 * 65536 * 0.95)),
        gpus=(Gpus(count=4, type="a100_sxm4_80gb", files="/dev/nvidia[0-3]"),),
    )
    assert of_parts([CPU]) is None, "no memory"
    assert of_parts([CPU, part("processor", type="CPU", cores=8), DIMM]) is None, "sockets that are not alike"
    assert of_parts([part("processor", type="CPU"), DIMM]) is None, "nobody said how many cores"


def test_accelerators_of_two_makes_have_devices_of_their_own() -> None:
    mixed = [CPU, DIMM, GPU, part("accelerator", "AMD", "MI250", type="GPU"), part("accelerator", type="FPGA")]
    has = of_parts(mixed)
    assert has is not None
    assert [(one.type, one.count, one.files) for one in has.gpus] == [
        ("mi250", 1, "/dev/dri/renderD128"),
        ("a100_sxm4_80gb", 1, "/dev/nvidia0"),
    ]


def test_two_models_of_one_make_are_just_gpus_as_nobody_knows_which_device_is_which() -> None:
    has = of_parts([CPU, DIMM, GPU, part("accelerator", "NVIDIA", "T4", type="GPU")])
    assert has is not None and has.gpus == (Gpus(count=2, files="/dev/nvidia[0-1]"),)


def test_the_kernels_word_counts_and_the_bmc_names_the_accelerators() -> None:
    kernel, bmc = host(2, 128, 128, gib=251.3), of_parts([CPU, CPU, DIMM, GPU])
    both = together(kernel, bmc)
    assert both is not None and kernel is not None and bmc is not None
    assert (both.threads, both.memory, both.gpus) == (1, kernel.memory, bmc.gpus)
    assert together(None, bmc) == bmc and together(kernel, None) == kernel and together(None, None) is None


@pytest.mark.slow
@given(st.integers(1, 1 << 40))
def test_memory_is_rounded_down_by_less_than_a_sixtyfourth(memory: int) -> None:
    assert memory - memory / 64 < rounded(memory) <= memory


def test_alike_nodes_whose_kernels_differ_by_some_megabytes_are_alike() -> None:
    assert host(2, 64, 64, gib=251.31) == host(2, 64, 64, gib=251.33)


def test_chassis_and_cabinets_make_a_tree_and_whoever_is_nowhere_is_on_it_too() -> None:
    places = {"n1": "x1000c0s0b0n0", "n2": "x1000c1s0b0n0", "n3": "x1001c0s0b0n0", "n4": "x1000c0s1b0n0", "n5": ""}
    assert by_location(places) == (
        Switch(name="x1000c0", names=("n1", "n4")),
        Switch(name="x1000c1", names=("n2",)),
        Switch(name="x1001c0", names=("n3",)),
        Switch(name="elsewhere", names=("n5",)),
        Switch(name="x1000", switches=("x1000c0", "x1000c1")),
        Switch(name="x1001", switches=("x1001c0",)),
        Switch(name="system", switches=("x1000", "x1001", "elsewhere")),
    )
    assert by_location({"n1": "x1000c0s0b0n0"})[-1].name == "x1000", "one cabinet is the top"


def test_a_node_on_two_switches_counts_for_one() -> None:
    assert by_fabric({"leaf2": ["n2", "n3"], "leaf1": ["n1", "n2", "other"]}, ["n1", "n2", "n3"]) == (
        Switch(name="leaf1", names=("n1", "n2")),
        Switch(name="leaf2", names=("n3",)),
        Switch(name="system", switches=("leaf1", "leaf2")),
    )


def test_declared_switches_without_nodes_are_left_out() -> None:
    said = [
        Switch(name="a", names=("n1", "gone")),
        Switch(name="b", names=("gone",)),
        Switch(name="top", switches=("a", "b")),
    ]
    assert declared(said, ["n1", "n2"]) == (
        Switch(name="a", names=("n1",)),
        Switch(name="top", switches=("a",)),
        Switch(name="elsewhere", names=("n2",)),
    )


@pytest.mark.parametrize(
    "said",
    [
        [Switch(name="a", switches=("b",)), Switch(name="b", switches=("a",))],
        [Switch(name="a", switches=("nobody",))],
        [Switch(name="a", names=("n1",)), Switch(name="a", names=("n2",))],
        [Switch(name="a", names=("n1",)), Switch(name="b", switches=("a",)), Switch(name="c", switches=("a",))],
    ],
)
def test_switches_that_are_no_tree_are_refused(said: list[Switch]) -> None:
    with pytest.raises(BadRequest):
        declared(said, ["n1"])
