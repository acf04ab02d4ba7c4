"""``bench/accelerators.py`` runs, and says so where there is nothing to measure."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest
from bench_support import BENCH, figures

from strata.jobs.accelerators.records import Accelerator, Found, Library, Support


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_told_that_there_is_nothing_to_measure(scratch: Path) -> None:
    found = figures(scratch, "accelerators.py", "--rounds", "1", "--size", "256")
    assert found["accelerators"] or "nothing to measure" in found["said"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the benchmark is root's")
def test_a_container_has_the_device_that_was_given_and_one_without_has_only_the_drivers_files(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a device of this machine in the place of a GPU, and a look for it in the place of the product."""
    bench = _module(monkeypatch)
    device, library = _device(), Path("/etc/os-release").resolve()
    card = Accelerator(address="0000:01:00.0", make="nvidia", kind="gpu", id="GPU-1", devices=(device,))
    other = Accelerator(address="0000:00:01.0", make="", devices=("/dev/null",))
    support = Support(libraries=(Library(name="libcuda.so.1", path=str(library)),))
    found = Found(accelerators=(other, card), support={"nvidia": support})
    seen = f"import os; n = os.path.exists({device!r}); l = os.path.exists('/usr/local/nvidia/lib64/libcuda.so.1'); "
    monkeypatch.setattr(bench, "_PRODUCT", f"{seen} print(100 * n + 10 * l)")
    monkeypatch.setattr(bench, "_VISIBLE", f"{seen} print(100 * n + 10 * l)")
    told = bench.measured(scratch, found, 1, 2)
    assert told["native_tflops"] in (100, 110)
    assert told["each"]["container_tflops"] == [110, 110]
    assert told["visible_unassigned"] == 10
    assert capfd.readouterr().err.count("container_tflops") == 2


def test_what_the_detector_says_is_held_against_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _module(monkeypatch)
    monkeypatch.setattr(bench, "_said", lambda _: "00000000:01:00.0, NVIDIA H200, GPU-1, 143771, 580.1")
    card = Accelerator(
        address="0000:01:00.0", make="nvidia", name="NVIDIA H200", id="GPU-1", memory_bytes=143_771 << 20
    )
    support = {"nvidia": Support(driver="580.1")}
    right = bench.facts(Found(accelerators=(card,), support=support))
    assert right["facts_right"]
    assert right["detected"] == right["nvidia_smi"] == {"0000:01:00.0": ["NVIDIA H200", "GPU-1", "143771", "580.1"]}
    assert not bench.facts(Found(accelerators=(card,), support={"nvidia": Support(driver="580.2")}))["facts_right"]


def _device() -> str:
    """A device of this machine that containers do not have unless it was given to them."""
    for path in sorted(Path("/dev").iterdir()):
        everybody = path.name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "console")
        if not everybody and not path.is_symlink() and stat.S_ISCHR(path.stat().st_mode):
            return str(path)
    pytest.fail("this machine has no device that could stand in for a GPU")


def _module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    described = importlib.util.spec_from_file_location("bench_accelerators", BENCH / "accelerators.py")
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    monkeypatch.setitem(sys.modules, "bench_accelerators", module)
    described.loader.exec_module(module)
    return module
