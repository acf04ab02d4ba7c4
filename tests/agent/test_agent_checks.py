"""The checks that an agent runs: what each finds, how often is often enough, and what bounds them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess
from fake_controller import Controller

from strata.agent.commands import Job
from strata.agent.errors import CommandFailed
from strata.agent.host.checks import Checks
from strata.agent.host.health import Health
from strata.agent.paths import Paths

Spec = dict[str, Any]


class Machine:
    """File trees like the kernel's, and the checks of an agent there."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(run=folder / "run", root=folder / "root")
        self.health = Health(self.paths)
        self.told = 0
        self.there = True
        self.put(self.paths.proc("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 500000 kB\n")
        (self.paths.proc("self") / "root").mkdir(parents=True)
        self.checks = Checks(self.paths, self.health, self._place, self._changed)

    def _place(self, where: str) -> tuple[list[str], Callable[[], None], Path]:
        if not self.there:
            raise CommandFailed("no member runs here")
        return [], lambda: None, self.paths.proc("self")

    def _changed(self) -> None:
        self.told += 1

    def put(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))

    def take(self, *specs: Spec, digest: str = "d1") -> None:
        self.checks.take(Job({"id": "1", "kind": "checks", "digest": digest, "checks": list(specs)}))

    def run(self, *specs: Spec) -> dict[str, str | None]:
        """All of them once, now."""
        if specs:
            self.take(*specs)
        done = threading.Event()

        def rounds() -> None:
            while not done.is_set():
                self.checks.step(0.05)

        turning = threading.Thread(target=rounds, daemon=True)
        turning.start()
        result = self.checks.now(Job({"id": "2", "kind": "check", "timeout": 60}))
        done.set()
        turning.join()
        found: dict[str, str | None] = json.loads(base64.b64decode(result["output"]))
        return found

    def one(self, **spec: Any) -> str | None:
        return self.run({"name": "it", "timeout": 30, **spec})["it"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_file_system_must_be_mounted_writable_and_not_full(machine: Machine) -> None:
    scratch = {"kind": "filesystem", "path": "/scratch", "mounted": True, "writable": True, "least_free": 0}
    machine.put(machine.paths.proc("self/mounts"), "tmpfs / tmpfs rw 0 0\n")
    assert machine.one(**scratch) == "/scratch is not mounted"
    machine.put(machine.paths.proc("self/mounts"), "/dev/sda1 /scratch ext4 ro,relatime 0 0\n")
    assert machine.one(**scratch) == "/scratch is read-only"
    machine.put(machine.paths.proc("self/mounts"), "/dev/sda1 /scratch ext4 rw 0 0\n")
    assert machine.one(**scratch) == "/scratch: No such file or directory"
    (machine.paths.proc("self") / "root/scratch").mkdir()
    assert machine.one(**scratch) == ""
    full = machine.one(**{**scratch, "least_free": 100})
    assert full and full.startswith("/scratch is full: ")


def test_memory_that_is_missing_or_loses_bits_is_told(machine: Machine) -> None:
    assert machine.one(kind="memory", least=2**30) == ""
    assert machine.one(kind="memory", least=2**31) == "it has 1024 MiB of memory; at least 2048 are expected"
    edac = machine.paths.sys("devices/system/edac/mc/mc0")
    machine.put(edac / "ce_count", 20)
    machine.put(edac / "ue_count", 0)
    assert machine.one(kind="memory", most_corrected=20) == ""
    assert machine.one(kind="memory", most_corrected=19) == "memory controller mc0: 20 corrected errors"
    machine.put(edac / "ue_count", 1)
    assert machine.one(kind="memory") == "memory controller mc0: 1 uncorrectable errors"


def test_accelerators_must_be_there_on_the_bus_with_all_their_lanes(machine: Machine) -> None:
    assert machine.one(kind="accelerators", count=1) == "0 of 1 accelerators"
    device = machine.paths.sys("bus/pci/devices/0000:17:00.0")
    machine.put(device / "class", "0x030200")
    (device / "config").write_bytes(b"\xde\x10")
    machine.put(device / "max_link_width", 16)
    machine.put(device / "current_link_width", 16)
    assert machine.one(kind="accelerators", count=1) == ""
    machine.put(device / "current_link_width", 8)
    assert machine.one(kind="accelerators", count=1) == "accelerator 0000:17:00.0 has 8 of 16 lanes"
    (device / "config").write_bytes(b"\xff\xff")
    assert machine.one(kind="accelerators", count=1) == "accelerator 0000:17:00.0 has fallen off the bus"


def test_a_link_must_be_up_and_fast(machine: Machine) -> None:
    assert machine.one(kind="network", interface="ib0") == "there is no ib0"
    machine.put(machine.paths.sys("class/net/ib0/operstate"), "down")
    assert machine.one(kind="network", interface="ib0") == "ib0 is down"
    machine.put(machine.paths.sys("class/net/ib0/operstate"), "up")
    machine.put(machine.paths.sys("class/net/ib0/speed"), 100000)
    assert machine.one(kind="network", interface="ib0", least_mbit=100000) == ""
    told = machine.one(kind="network", interface="ib0", least_mbit=200000)
    assert told == "ib0 runs at 100000 Mbit/s; at least 200000 are expected"


def test_a_clock_that_is_off_and_whatever_the_agent_finds_by_itself_are_told(machine: Machine) -> None:
    assert machine.one(kind="time", most=2) == ""
    machine.health.clock_off = 30.0
    assert machine.one(kind="time", most=2) == "the clock is +30.0 s off the controller's"
    assert machine.one(kind="machine") == "the clock is +30 s off the controller's"


@pytest.mark.slow
def test_a_script_fails_with_its_last_line_and_nothing_of_it_can_drive_a_terminal(machine: Machine) -> None:
    assert machine.one(kind="script", script="exit 0") == ""
    assert machine.one(kind="script", script="echo one; printf 'disk \\033[2J gone'; exit 3") == (
        "disk  [2J gone (exit status 3)"
    )
    assert machine.one(kind="script", command=["sh", "-c", "exit 1"]) == "exit status 1"
    missing = machine.one(kind="script", command=["/no/such/program"])
    assert missing and "cannot be run" in missing


@pytest.mark.slow
def test_a_script_has_so_much_memory_and_so_much_time_and_no_more(machine: Machine) -> None:
    hungry = "import sys; data = bytearray(1 << 30); sys.exit(0)"
    told = machine.one(kind="script", command=["python3", "-c", hungry], memory=256 << 20)
    assert told and "MemoryError" in told
    assert machine.one(kind="script", command=["python3", "-c", "pass"], memory=256 << 20) == ""
    assert machine.one(kind="script", script="sleep 600", timeout=0.2) == "stopped after 0.2 s"


def test_what_cannot_be_looked_at_yet_is_not_known_rather_than_wrong(machine: Machine) -> None:
    machine.there = False
    assert machine.one(kind="script", script="false") is None
    assert machine.one(kind="of a later version") is None
    assert machine.checks.report() == {"digest": "d1", "ran": False, "failing": {}}


def test_so_many_failures_in_a_row_make_it_fail_and_so_many_passes_make_it_pass(machine: Machine) -> None:
    machine.take({"name": "it", "kind": "memory", "tries": 2, "passes": 2})
    (check,) = machine.checks._checks.values()
    seen = []
    for reason in ("", "bad", "", "bad", "worse", "", "bad", "", ""):
        check.note(reason)
        seen.append(check.reason)
    assert seen == ["", "", "", "", "worse", "worse", "worse", "worse", ""]


def test_an_agent_that_is_started_again_goes_on_with_its_checks(machine: Machine) -> None:
    machine.take({"name": "it", "kind": "memory"}, digest="abc")
    again = Checks(machine.paths, machine.health, machine._place, machine._changed)
    assert again.report() == {"digest": "abc", "ran": False, "failing": {}}


def test_a_check_that_is_as_before_keeps_what_it_knows_when_others_change(machine: Machine) -> None:
    size = {"name": "size", "kind": "memory", "least": 2**40}
    machine.run(size)
    machine.take(size, {"name": "clock", "kind": "time"}, digest="d2")
    report = machine.checks.report()
    assert list(report["failing"]) == ["size"] and not report["ran"], "the new one has not run yet"


@pytest.mark.slow
@pytest.mark.server
def test_a_real_agent_runs_what_it_is_told_tells_when_that_changes_and_again_when_it_is_asked(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    mark = tmp_path / "broken"
    spec = {
        "name": "mark",
        "kind": "script",
        "script": f"! test -e {mark}",
        "every": 1,
        "timeout": 30,
        "where": "minos",
    }
    assert site.do("checks", digest="d1", checks=[spec])["ok"]
    site.wait(lambda: site.state().get("checks") == {"digest": "d1", "ran": True, "failing": {}})
    mark.touch()
    site.wait(lambda: site.state()["checks"]["failing"] == {"mark": "exit status 1"})
    mark.unlink()
    site.wait(lambda: site.state()["checks"]["failing"] == {})
    mark.touch()
    result = site.do("check")
    assert json.loads(base64.b64decode(result["output"])) == {"mark": "exit status 1"}
    assert site.do("checks", digest="", checks=[])["ok"]
    site.wait(lambda: site.state()["checks"] == {"digest": "", "ran": True, "failing": {}})
