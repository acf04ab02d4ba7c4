"""``bench/converge.py`` runs, says what is documented, and cleans up."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from bench_support import command, environment, figures

KEYS = {
    "nodes", "seconds", "peak_rss_mb", "mutations", "mutations_per_s", "create_s", "load_s", "acknowledge_s",
    "history_s", "engine_s", "steps", "cores", "store_revisions", "drivers", "lifted_budgets", "seed",
}  # fmt: skip


@pytest.mark.slow
def test_every_node_takes_seven_mutations_in_process(scratch: Path) -> None:
    found = figures(scratch, "converge.py", "--nodes", "300")
    assert found.keys() == KEYS
    assert (found["nodes"], found["mutations"], found["drivers"]) == (300, 2100, "in-process")
    assert found["lifted_budgets"] == ["bmc-rate"]
    assert 0 < found["engine_s"] < found["seconds"]


@pytest.mark.slow
@pytest.mark.server
def test_every_node_takes_seven_mutations_over_sockets(scratch: Path) -> None:
    found = figures(scratch, "converge.py", "--nodes", "100", "--sockets")
    assert found.keys() == KEYS | {"simulator_peak_rss_mb", "simulator_cores"}
    assert (found["mutations"], found["drivers"]) == (700, "sockets")


@pytest.mark.slow
def test_without_json_it_prints_a_table_and_tells_its_progress_apart(scratch: Path) -> None:
    done = subprocess.run(
        command("converge.py", "--nodes", "10"), env=environment(scratch), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("mutations ")] == ["70"]
    assert "ready" in done.stderr


@pytest.mark.slow
@pytest.mark.server
def test_when_it_is_stopped_it_leaves_neither_files_nor_processes(scratch: Path) -> None:
    # Far more nodes than can be done before it is stopped.
    with subprocess.Popen(
        command("converge.py", "--nodes", "20000", "--sockets"), env=environment(scratch), stderr=subprocess.DEVNULL
    ) as process:
        simulators: list[int] = []
        deadline = time.monotonic() + 300
        while not any(scratch.glob("*/history.db")):
            assert time.monotonic() < deadline and process.poll() is None
            simulators = _children(process.pid)
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert simulators
    assert not any(Path(f"/proc/{pid}").exists() for pid in simulators)
    assert list(scratch.iterdir()) == []


def _children(pid: int) -> list[int]:
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
