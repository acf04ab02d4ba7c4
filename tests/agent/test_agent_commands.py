"""Commands on a node: each done once, in bounds, and none from a leader whose time is over."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.agent.commands import Commands, Job
from strata.agent.errors import CommandFailed
from strata.agent.host.execs import run_exec
from strata.agent.paths import Paths


class Desk:
    """Commands with handlers of the test's own, and a way to wait for results."""

    def __init__(self, folder: Path, **handlers: Callable[[Job], dict[str, Any]]) -> None:
        self._changed = threading.Event()
        self.commands = Commands(Paths(run=folder), handlers, self._changed.set)

    def give(self, *commands: dict[str, Any]) -> None:
        self.commands.take({"commands": list(commands)})

    def results(self, *names: str) -> dict[str, dict[str, Any]]:
        for _ in range(600):
            found = {result["id"]: result for result in self.commands.results()}
            if set(names) <= set(found):
                return found
            self._changed.wait(0.1)
            self._changed.clear()
        raise AssertionError(f"no results for {names}")


def test_a_command_sent_twice_is_done_once_and_its_result_stays_until_acknowledged(tmp_path: Path) -> None:
    done: list[str] = []
    desk = Desk(tmp_path, note=lambda job: done.append(job.id) or {})
    desk.give({"id": "a", "kind": "note"}, {"id": "a", "kind": "note"})
    assert desk.results("a")["a"]["ok"]
    desk.give({"id": "a", "kind": "note"})
    assert desk.results("a") and done == ["a"]
    desk.commands.take({"acked": ["a"]})
    assert desk.commands.results() == []


def test_a_leader_whose_time_is_over_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    done: list[str] = []
    desk = Desk(tmp_path, note=lambda job: done.append(job.id) or {})
    desk.give({"id": "a", "kind": "note", "epoch": 5}, {"id": "b", "kind": "note", "epoch": 4})
    assert desk.results("a", "b")["b"]["error"] == "fenced: epoch 4 is over, 5 was seen"
    again = Desk(tmp_path, note=lambda job: done.append(job.id) or {})
    again.give({"id": "c", "kind": "note", "epoch": 4})
    assert not again.results("c")["c"]["ok"]
    again.give({"id": "d", "kind": "note", "epoch": 0})
    assert again.results("d")["d"]["ok"], "a person's command has no epoch"
    assert done == ["a", "d"]


def test_a_command_that_ran_when_the_agent_was_killed_ends_as_unknown(tmp_path: Path) -> None:
    release = threading.Event()
    desk = Desk(tmp_path, slow=lambda job: {"ok": release.wait(60)})
    desk.give({"id": "a", "kind": "slow"})
    again = Desk(tmp_path, slow=lambda job: {})
    assert again.results("a")["a"]["unknown"]
    again.give({"id": "a", "kind": "slow"})
    assert not again.results("a")["a"]["ok"], "it is not done a second time"
    release.set()
    desk.results("a")


def test_unknown_kinds_and_handlers_that_fail_are_results_not_crashes(tmp_path: Path) -> None:
    def broken(job: Job) -> dict[str, Any]:
        raise ZeroDivisionError("oops")

    desk = Desk(tmp_path, broken=broken)
    desk.give({"id": "a", "kind": "dance"}, {"id": "b", "kind": "broken"}, {"kind": "no id"}, "junk")  # type: ignore[arg-type]
    results = desk.results("a", "b")
    assert "unknown command kind 'dance'" in results["a"]["error"]
    assert results["b"]["error"] == "ZeroDivisionError: oops"
    assert len(results) == 2


def test_a_running_command_can_be_cancelled(tmp_path: Path) -> None:
    desk = Desk(tmp_path, exec=lambda job: run_exec(job, ["sleep", "60"]))
    desk.give({"id": "a", "kind": "exec"})
    desk.give({"id": "b", "kind": "cancel", "of": "a"}, {"id": "c", "kind": "cancel", "of": "nothing"})
    results = desk.results("a", "b", "c")
    assert results["a"]["error"] == "cancelled"
    assert results["b"]["ok"] and not results["c"]["ok"]


def run(*argv: str, timeout: float = 20) -> dict[str, Any]:
    return run_exec(Job({"id": "x", "kind": "exec", "timeout": timeout}), list(argv))


def test_output_and_exit_status_come_back() -> None:
    result = run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert base64.b64decode(result["output"]) == b"out\nerr\n"
    assert (result["ok"], result["exit"], result["truncated"], result["error"]) == (False, 7, False, "exit status 7")


def test_what_a_command_is_given_to_read_reaches_it_whole(tmp_path: Path) -> None:
    data = os.urandom(200_000)
    job = Job({"id": "x", "kind": "exec", "timeout": 20, "stdin": base64.b64encode(data).decode()})
    assert run_exec(job, ["sh", "-c", 'cat > "$0"', str(tmp_path / "copy")])["ok"]
    assert (tmp_path / "copy").read_bytes() == data
    assert base64.b64decode(run("sh", "-c", "cat")["output"]) == b"", "and nothing where nothing is given"


def test_long_output_is_cut() -> None:
    result = run("head", "-c", "1000000", "/dev/zero")
    assert result["ok"] and result["truncated"] and base64.b64decode(result["output"]) == bytes(65536)


@pytest.mark.slow
def test_a_command_of_endless_output_is_stopped_with_its_children() -> None:
    child = f"sleep 3600.{os.getpid()}"
    result = run("sh", "-c", f"{child} & yes", timeout=0.3)
    assert not base64.b64decode(result["output"]).strip(b"y\n")
    assert result["error"] == "stopped after 0.3 s"
    deadline = time.monotonic() + 60
    while subprocess.run(["pgrep", "-f", f"^{child}$"], stdout=subprocess.DEVNULL).returncode == 0:
        assert time.monotonic() < deadline, "the child is still there"


def test_a_child_in_the_background_is_not_waited_for() -> None:
    result = run("sh", "-c", "sleep 3600 & echo $!", timeout=120)
    os.kill(int(base64.b64decode(result["output"])), signal.SIGKILL)
    assert result["ok"], "else it was stopped when its time was over"


def test_a_program_that_is_not_there_is_said_plainly() -> None:
    with pytest.raises(CommandFailed, match="'/no/such' cannot be run: No such file"):
        run("/no/such")
