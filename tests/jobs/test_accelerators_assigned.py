"""Which accelerators a job gets, and what its container is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import machine_trees as trees
import msgspec
import pytest

from strata.agent.host.accelerators import Detector
from strata.agent.paths import Paths
from strata.cli.main import run
from strata.core.errors import BadRequest, NotFound
from strata.jobs.accelerators.assignment import choose, given
from strata.jobs.accelerators.cdi import specifications
from strata.jobs.accelerators.records import Accelerator, Found, Support


def machine(root: Path) -> Found:
    return msgspec.convert(Detector(Paths(root=root)).all(), Found)


def gpu(index: int, *, make: str = "nvidia", named: bool = True, running: bool = True) -> Accelerator:
    return Accelerator(
        address=f"0000:{index + 1:02x}:00.0",
        make=make,
        kind="gpu",
        index=index,
        id=f"GPU-{make}-{index}" if named else "",
        devices=(f"/dev/{make}{index}",) if running else (),
    )


FOUR = Found(accelerators=tuple(map(gpu, range(4))), support={"nvidia": Support(devices=("/dev/nvidiactl",))})


def test_a_job_gets_those_that_are_named_by_number_by_id_or_all() -> None:
    assert [one.index for one in choose(FOUR, ["nvidia.com/gpu=2", "GPU-nvidia-0"]).accelerators] == [2, 0]
    assert len(choose(FOUR, ["nvidia.com/gpu=all"]).accelerators) == len(choose(FOUR, ["all"]).accelerators) == 4
    assert choose(FOUR, []).devices(FOUR) == () and choose(Found(), ["all"]).accelerators == ()
    assert choose(FOUR, ["nvidia.com/gpu=1"]).devices(FOUR) == ("/dev/nvidia1", "/dev/nvidiactl")


def test_one_that_is_not_there_or_whose_driver_does_not_run_is_refused_in_words() -> None:
    with pytest.raises(NotFound, match=r"there are nvidia\.com/gpu=0"):
        choose(FOUR, ["nvidia.com/gpu=9"])
    with pytest.raises(BadRequest, match="driver does not run"):
        choose(Found(accelerators=(gpu(0, running=False),)), ["nvidia.com/gpu=0"])


def test_what_the_workload_manager_gave_is_read_from_its_own_variables_first() -> None:
    inside_a_cgroup = {"SLURM_STEP_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert [one.index for one in given(FOUR, inside_a_cgroup).accelerators] == [2, 3]
    assert [one.index for one in given(FOUR, {"CUDA_VISIBLE_DEVICES": "GPU-nvidia-1"}).accelerators] == [1]
    assert given(FOUR, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}).accelerators == ()
    assert given(FOUR, {"SGE_HGR_gpu": "0 3"}).accelerators == (gpu(0), gpu(3))
    assert given(FOUR, {}).accelerators == (), "who was given nothing gets nothing"
    with pytest.raises(NotFound, match="SLURM_JOB_GPUS names '7'"):
        given(FOUR, {"SLURM_JOB_GPUS": "7"})


def test_programs_are_told_by_id_or_by_the_number_that_they_will_count() -> None:
    assert choose(FOUR, ["nvidia.com/gpu=3"]).variables(FOUR, hidden=True) == {"CUDA_VISIBLE_DEVICES": "GPU-nvidia-3"}
    intel = Found(accelerators=tuple(gpu(number, make="intel", named=False) for number in range(2)))
    second = choose(intel, ["intel.com/gpu=1"])
    assert second.variables(intel, hidden=False) == {"ZE_AFFINITY_MASK": "1"}
    assert second.variables(intel, hidden=True) == {"ZE_AFFINITY_MASK": "0"}
    assert choose(FOUR, []).variables(FOUR, hidden=False) == {"CUDA_VISIBLE_DEVICES": "-1"}, "none is none"


def test_cdi_names_each_device_and_the_files_of_the_driver_that_runs(tmp_path: Path) -> None:
    has = machine(trees.h200(tmp_path))
    (spec,) = specifications(has)
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "nvidia.com/gpu")
    assert [device["name"] for device in spec["devices"]] == ["0", has.accelerators[0].id, "all"]
    assert spec["devices"][0]["containerEdits"] == {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    mounts: dict[str, Any] = {one["containerPath"]: one["hostPath"] for one in spec["containerEdits"]["mounts"]}
    assert mounts["/usr/local/nvidia/lib64/libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.580.159.04"
    assert all("580.159.04" in path for path in mounts.values() if ".so" in path)


def test_cdi_has_programs_where_every_image_looks_for_some() -> None:
    support = {"nvidia": Support(programs=("/usr/local/nvidia/bin/nvidia-smi",))}
    (spec,) = specifications(msgspec.structs.replace(FOUR, support=support))
    (mount,) = spec["containerEdits"]["mounts"]
    assert mount["containerPath"] == "/usr/bin/nvidia-smi"
    assert mount["hostPath"] == "/usr/local/nvidia/bin/nvidia-smi"


@pytest.mark.slow
def test_the_command_lists_what_a_machine_has_writes_cdi_and_fails_where_something_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(trees.mi250(tmp_path / "machine"))

    def strata(*words: str) -> tuple[int, str]:
        return run(["accelerator", *words, "--root", root]), capsys.readouterr().out

    assert [one["device"] for one in json.loads(strata("list", "--json")[1])] == [
        "amd.com/gpu=0",
        "amd.com/gpu=1",
        "infiniband/hca=mlx5_0",
        "cxi/hca=cxi0",
    ]
    assert strata("cdi", "--into", str(tmp_path / "cdi"))[0] == 0
    assert sorted(path.name for path in (tmp_path / "cdi").iterdir()) == [
        "amd.com-gpu.json",
        "cxi-hca.json",
        "infiniband-hca.json",
    ]
    assert strata("health")[0] == 0
    trees.put(tmp_path / "machine", {"sys/class/infiniband/mlx5_0/ports/1/state": "2: INIT"})
    status, told = strata("health")
    assert status == 1 and "no subnet manager" in told
