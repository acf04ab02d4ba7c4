"""Background processes: found again, stopped for certain, and never a stranger."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strata.core.host import process as ps

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_this_process_is_alive_and_its_record_reads_back(tmp_path: Path) -> None:
    me = ps.find(os.getpid())
    assert me is not None
    assert me.alive
    me.save(tmp_path / "p.json")
    assert ps.load(tmp_path / "p.json") == me


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pid": "x", "started": 1, "boot": ""}', "\xff"])
def test_a_spoilt_record_is_no_record(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content)
    assert ps.load(tmp_path / "p.json") is None
    assert ps.load(tmp_path / "absent.json") is None


def test_a_later_process_with_the_same_pid_is_never_signalled() -> None:
    bystander = subprocess.Popen(SLEEP)
    try:
        real = ps.find(bystander.pid)
        assert real is not None
        for impostor in (real._replace(started=real.started - 1), real._replace(boot="another boot")):
            assert not impostor.alive
            assert ps.stop(impostor, grace=0.1) is False
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_process_is_started_in_its_own_session_and_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = ps.spawn([sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(600)"], {}, log)
    until(lambda: log.read_text() == "hello\n")
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert log.stat().st_mode & 0o777 == 0o600
    assert ps.stop(process, grace=10.0) is True
    assert not process.alive
    assert ps.stop(process, grace=10.0) is False


def test_a_child_that_ended_gives_its_exit_code(tmp_path: Path) -> None:
    process = ps.spawn([sys.executable, "-c", "raise SystemExit(7)"], {}, tmp_path / "log")
    codes: list[int | None] = []
    until(lambda: codes.append(ps.reap(process)) or codes[-1] is not None)
    assert codes[-1] == 7


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    until(lambda: ps.find(child.pid) is None)
    child.wait()


@pytest.mark.slow
def test_one_that_will_not_stop_is_made_to_and_its_children_with_it(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"child = subprocess.Popen({SLEEP!r}); print(child.pid, flush=True); time.sleep(600)"
    )
    log = tmp_path / "log"
    process = ps.spawn([sys.executable, "-c", script], {}, log)
    until(lambda: log.read_text().endswith("\n"))
    child = ps.find(int(log.read_text()))
    assert child is not None
    assert child in ps.session_of(process.pid)
    assert ps.stop(process, grace=0.2) is True
    assert not process.alive
    until(lambda: not child.alive)
