"""What the agent reads from the machine and sets on it, over file trees like the kernel's."""

from __future__ import annotations

import base64
import json
import os
import queue
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from strata.agent.boot import Boot
from strata.agent.errors import CommandFailed
from strata.agent.files import inside
from strata.agent.host.crash import report_crash
from strata.agent.host.health import Health
from strata.agent.host.inventory import inventory
from strata.agent.host.limits import Limits
from strata.agent.host.metrics import Metrics
from strata.agent.link.logs import Logs
from strata.agent.node import Node
from strata.agent.paths import Paths


@pytest.fixture
def machine(tmp_path: Path) -> Paths:
    paths = Paths(run=tmp_path / "run", root=tmp_path / "root")
    put(paths.proc("meminfo"), "MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n")
    put(paths.proc("cpuinfo"), "processor : 0\nmodel name : Fast\nphysical id : 0\nflags : fpu hypervisor\n")
    put(paths.proc("loadavg"), "0.50 0.40 0.30 1/100 1234\n")
    return paths


def put(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text))


def real_cpufreq(paths: Paths) -> Path:
    for number in range(2):
        policy = paths.sys(f"devices/system/cpu/cpufreq/policy{number}")
        for name, value in {
            "cpuinfo_min_freq": 800000, "cpuinfo_max_freq": 3500000, "scaling_min_freq": 800000,
            "scaling_max_freq": 3500000, "scaling_governor": "powersave",
            "scaling_available_governors": "performance powersave",
        }.items():  # fmt: skip
            put(policy / name, value)
        for state in range(4):
            put(paths.sys(f"devices/system/cpu/cpu{number}/cpuidle/state{state}/disable"), 0)
    return paths.sys("devices/system/cpu")


def in_force(result: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(base64.b64decode(result["output"]))
    return value


def test_limits_are_written_to_every_processor_and_read_back(machine: Paths) -> None:
    cpu = real_cpufreq(machine)
    told = {"governor": "performance", "min_khz": 1000000, "max_khz": 2000000, "cstate_max": 1}
    now = in_force(Limits(machine).apply(told))
    assert now == {**told, "hardware_khz": [800000, 3500000], "cstates": 4, "stand_in": False}
    for number in range(2):
        assert (cpu / f"cpufreq/policy{number}/scaling_max_freq").read_text() == "2000000"
        disabled = [(cpu / f"cpu{number}/cpuidle/state{state}/disable").read_text() for state in range(4)]
        assert disabled == ["0", "0", "1", "1"]


def test_null_takes_a_limit_back_and_what_is_not_named_stays(machine: Paths) -> None:
    real_cpufreq(machine)
    limits = Limits(machine)
    limits.apply({"max_khz": 2000000, "cstate_max": 0, "governor": "performance"})
    now = in_force(limits.apply({"max_khz": None, "cstate_max": None}))
    assert (now["max_khz"], now["cstate_max"], now["governor"]) == (3500000, 3, "performance")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"max_khz": 9000000}, "outside 800000 to 3500000"),
        ({"min_khz": 2000000, "max_khz": 1000000}, "above max_khz"),
        ({"governor": "turbo"}, "not offered"),
        ({"max_khz": "fast"}, "whole number"),
        ({"cstate_max": -1}, "whole number"),
        ({"cstate_max": 4}, "choose from 0 to 3"),
        ({"min_khz": 3000000}, "above the maximum in force"),
    ],
)
def test_a_limit_that_makes_no_sense_changes_nothing(machine: Paths, wanted: dict[str, Any], why: str) -> None:
    real_cpufreq(machine)
    limits = Limits(machine)
    limits.apply({"max_khz": 2500000})
    before = limits.in_force()
    with pytest.raises(CommandFailed, match=why):
        limits.apply(wanted)
    assert limits.in_force() == before


def test_a_virtual_machine_gets_a_stand_in_that_says_so_and_a_real_one_without_cpufreq_an_error(machine: Paths) -> None:
    assert in_force(Limits(machine).apply({"max_khz": 2000000}))["stand_in"]
    assert Limits(machine).in_force()["max_khz"] == 2000000, "it is kept"
    put(machine.proc("cpuinfo"), "processor : 0\nflags : fpu aes\n")
    with pytest.raises(CommandFailed, match="no frequency control"):
        Limits(machine)


def test_the_stand_in_has_the_files_of_a_kernel_and_its_clock_follows_the_limits(machine: Paths) -> None:
    limits = Limits(machine)
    now = limits.in_force()
    assert now["available_khz"][0] == now["hardware_khz"][0] < now["khz"] == now["available_khz"][-1]
    assert in_force(limits.apply({"max_khz": 2100000}))["khz"] == 2000000, "one that it has"
    assert in_force(limits.apply({"governor": "powersave"}))["khz"] == 1000000
    policy = machine.run / "cpu/cpufreq/policy0"
    assert {path.name for path in policy.iterdir()} == {
        "cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_min_freq", "scaling_max_freq", "scaling_cur_freq",
        "scaling_available_frequencies", "scaling_governor", "scaling_available_governors",
    }  # fmt: skip


def test_a_kernel_that_lists_its_clocks_is_quoted(machine: Paths) -> None:
    cpu = real_cpufreq(machine)
    assert "available_khz" not in Limits(machine).in_force(), "any value in between will do"
    for number in range(2):
        put(cpu / f"cpufreq/policy{number}/scaling_available_frequencies", "3500000 2000000 800000 \n")
        put(cpu / f"cpufreq/policy{number}/scaling_cur_freq", 1900000 + number)
    now = Limits(machine).in_force()
    assert (now["available_khz"], now["khz"]) == ([800000, 2000000, 3500000], 1900001)


def test_energy_counters_are_named_by_package_and_absent_where_there_are_none(machine: Paths) -> None:
    assert "energy_j" not in Metrics(machine).read()
    for entry, name, energy in (("intel-rapl:0", "package-0", 5_000_000), ("intel-rapl:0:1", "dram", 250_000)):
        put(machine.sys(f"class/powercap/{entry}/name"), name)
        put(machine.sys(f"class/powercap/{entry}/energy_uj"), energy)
        put(machine.sys(f"class/powercap/{entry}/max_energy_range_uj"), 262_143_000_000)
    values = Metrics(machine).read()
    assert values["energy_j"] == {"package-0": 5.0, "dram-0": 0.25}
    assert values["energy_range_j"]["package-0"] == 262143.0
    assert values["load1"] == 0.5
    assert values["memory_free"] == 500000 * 1024


def test_a_healthy_machine_has_no_problems_and_an_ill_one_says_which(machine: Paths) -> None:
    health = Health(machine)
    assert health.read() == {"ok": True, "problems": []}
    put(machine.proc("meminfo"), "MemTotal: 1000000 kB\nMemAvailable: 5000 kB\n")
    put(machine.sys("devices/system/edac/mc/mc0/ue_count"), 2)
    put(machine.sys("block/sda/device/state"), "offline")
    put(machine.proc("sys/kernel/tainted"), 1 << 7)
    health.clock(formatdate(time.time() - 100, usegmt=True))
    problems = " / ".join(health.read()["problems"])
    for sign in ("memory is nearly full", "2 uncorrectable", "sda is offline", "oops", "clock is +10"):
        assert sign in problems
    health.clock("nonsense")
    assert "clock is +10" in " ".join(health.read()["problems"])


def test_a_file_system_that_is_full_is_named_and_one_that_is_full_by_nature_is_not(
    machine: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: dict[str, tuple[int, int]] = {}
    real = os.statvfs

    def statvfs(place: str) -> os.statvfs_result:
        found = list(real("/"))
        blocks, files = left.get(place, (900, 900))
        found[0:4] = [4096, 1 << 20, 1000, blocks]
        found[4:8] = [blocks, 1000, files, files]
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", statvfs)
    memory = machine.members / "system-0123456789ab/memory"
    memory.mkdir(parents=True)
    put(
        machine.proc("mounts"),
        "/dev/sda2 / ext4 rw,relatime 0 0\n"
        "/dev/sda2 /again ext4 rw 0 0\n"
        "/dev/sdb1 /scratch\\040space xfs rw 0 0\n"
        "/dev/loop0 /image squashfs ro 0 0\n"
        "server:/home /home nfs4 rw 0 0\n",
    )
    health = Health(machine)
    assert health.read() == {"ok": True, "problems": []}
    left[str(memory)] = (3, 900)
    left[str(machine.root / "scratch space")] = (900, 0)
    left[str(machine.root / "image")] = left[str(machine.root / "home")] = (0, 0)
    assert health.read()["problems"] == [
        "the root of member system is full: 3 of 1000 MiB left",
        "sdb1 (/scratch space) is full: 0 of 1000 files left",
    ]
    left[str(machine.root)] = (0, 0)
    assert "sda2 (/) is full: 0 of 1000 MiB left" in health.read()["problems"]


def test_the_inventory_is_bounded_and_text_from_devices_is_harmless(machine: Paths) -> None:
    put(machine.sys("class/dmi/id/product_name"), "Evil\x1b[2J\x00Box" + "x" * 10000)
    for number in range(100):
        put(machine.sys(f"class/net/eth{number:03}/address"), "02:00:00:00:00:01")
        put(machine.sys(f"class/net/eth{number:03}/device/vendor"), "0x1")
    put(machine.sys("class/net/lo/address"), "00:00:00:00:00:00")
    seen = inventory(machine)
    assert len(seen["nics"]) == 64
    assert len(seen["dmi"]["product_name"]) <= 128
    assert "\x1b" not in seen["dmi"]["product_name"]
    assert len(json.dumps(seen)) < 32768
    assert seen["cpu"] == {"model": "Fast", "sockets": 1, "cores": 1, "threads": 1}


def test_what_an_earlier_kernel_left_behind_is_told_and_cleared(machine: Paths) -> None:
    put(machine.sys("fs/pstore/dmesg-ramoops-0"), "Kernel panic - not syncing: bad luck\n")
    logs = Logs()
    assert report_crash(machine, logs) == 1
    assert "bad luck" in logs.tail("crash")
    assert report_crash(machine, logs) == 0


def test_a_source_that_floods_is_cut_and_the_others_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs()
    for number in range(3000):
        logs.add("loud", f"line {number}")
    logs.add("quiet", "hello\x1b[31m")
    batches = [logs._take(), logs._take()]
    lines = [line for batch in batches for line in batch]
    assert sum(1 for line in lines if line[1] == "loud") < 1100
    assert any(source == "quiet" and text == "hello�[31m" for _, source, text in lines)
    assert any("lines dropped" in text for _, _, text in lines)
    assert all(len(batch) <= 1000 for batch in batches)


def test_no_link_in_an_image_leads_outside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "run").mkdir(parents=True)
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "out").symlink_to("../../..")
    (root / "loop").symlink_to("loop")
    assert inside(root, "/var/run/up") == root / "run/up"
    assert inside(root, "/out/etc/passwd") == root / "etc/passwd"
    assert inside(root, "../../etc/passwd") == root / "etc/passwd"
    with pytest.raises(OSError, match="symbolic links"):
        inside(root, "/loop/x")


def test_hardware_is_looked_at_again_when_what_the_node_runs_changes(
    machine: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.agent.node._INVENTORY_APART", 0.0)
    machine.run.mkdir()
    node = Node(Boot({"node": "n1", "controllers": ["https://c1"]}), machine)
    told: queue.Queue[dict[str, Any]] = queue.Queue()
    monkeypatch.setattr(node, "_post", lambda path, body: told.put(body))
    node._attached.set()
    threading.Thread(target=node._afterwards, daemon=True).start()
    assert told.get(timeout=60)["accelerators"] == []
    card = machine.sys("bus/pci/devices/0000:00:05.0")
    for name, value in {"class": "0x120000", "vendor": "0x1ae0", "device": "0x0063"}.items():
        put(card / name, value)
    node._member_changed()
    assert [one["address"] for one in told.get(timeout=60)["accelerators"]] == ["0000:00:05.0"]
