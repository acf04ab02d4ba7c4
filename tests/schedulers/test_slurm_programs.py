"""The programs that Slurm runs: what they say to the service, when they try again, and what they end with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from strata.slurm_cli import health
from support.slurm import slurm

pytestmark = pytest.mark.slow


@contextmanager
def service(path: Path, answers: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Answers one request after the other, and is gone then; an empty one breaks off."""
    heard: list[bytes] = []
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        for answer in answers:
            connection, _ = listening.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        thread.join(60)
        listening.close()


def reply(status: int, **body: object) -> bytes:
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)


class Machine:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "s"
        self.token = directory / "token"
        self.token.write_text("sesame\n")
        self.token.chmod(0o600)

    def run(self, action: str, *arguments: str, patience: str = "30", **more: str) -> int:
        given = {"url": f"unix:{self.socket}", "token_file": str(self.token), "workload": "main", "patience": patience}
        (self.directory / "slurm.json").write_text(json.dumps({**given, "log": str(self.directory / "log"), **more}))
        env = os.environ | {"STRATA_SLURM_CONFIG": str(self.directory / "slurm.json")}
        code = f"from strata.slurm_cli.power import {action}; {action}()"
        return subprocess.run([sys.executable, "-c", code, *arguments], env=env, timeout=120, check=False).returncode

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        yield Machine(Path(name))


def test_a_hostlist_is_handed_on_with_the_token_and_what_was_done_is_logged(machine: Machine) -> None:
    with service(machine.socket, [reply(200, done="n[1-4]", refused=[])]) as heard:
        assert machine.run("resume", "nid[00001-00004]") == 0
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/slurm/main/power ") and b"Authorization: Bearer sesame" in head
    assert json.loads(body) == {"action": "resume", "nodes": "nid[00001-00004]"}
    assert "resume nid[00001-00004]: n[1-4]" in machine.log and "sesame" not in machine.log


def test_while_the_service_is_away_it_is_tried_again(machine: Machine) -> None:
    answers = [b"", reply(503, detail="no controller leads"), reply(200, done="n1", refused=[])]
    with service(machine.socket, answers) as heard:
        assert machine.run("suspend", "n1") == 0
    assert len(heard) == 3 and "suspend n1: n1" in machine.log


def test_what_is_refused_is_not_tried_again_and_is_told(machine: Machine) -> None:
    with service(machine.socket, [reply(403, detail="the role lacks the right")]):
        assert machine.run("suspend", "n1") == 1
    assert "not done: the role lacks the right (403)" in machine.log
    machine.socket.unlink()
    with service(machine.socket, [reply(200, done="n1", refused=[{"nodes": "n2", "reason": "job 7 runs there"}])]):
        assert machine.run("suspend", "n[1-2]") == 1
    assert "suspend n[1-2]: n1; not n2: job 7 runs there" in machine.log


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("-h", 0), ("--nodes=n1", 2)])
def test_an_option_is_no_hostlist_and_nothing_is_asked_of_the_service(machine: Machine, option: str, code: int) -> None:
    assert [machine.run(action, option, patience="0.1") for action in ("resume", "suspend", "reboot")] == [code] * 3
    assert not (machine.directory / "log").exists()


def test_the_help_of_the_health_check_looks_at_nothing() -> None:
    def check(option: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "strata.slurm_cli.health", option]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env={})

    helped, wrong = check("--help"), check("--now")
    assert helped.returncode == 0 and helped.stdout.startswith("usage: strata-slurm-health") and not helped.stderr
    assert wrong.returncode == 2 and wrong.stderr == helped.stdout


def test_a_service_that_stays_away_is_given_up(machine: Machine) -> None:
    assert machine.run("resume", "n1", patience="0.1") == 1
    assert "resume n1: not done: Could not lookup the service" in machine.log


def test_a_token_that_others_can_read_is_not_used(machine: Machine) -> None:
    machine.token.chmod(0o644)
    assert machine.run("resume", "n1") == 1
    assert "chmod 600" in machine.log


def test_without_nodes_it_says_what_it_is(machine: Machine) -> None:
    assert machine.run("reboot") == 2


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_the_sites_checks_are_run_in_order_and_the_first_that_fails_is_told(tmp_path: Path) -> None:
    assert health.checked(str(tmp_path / "none")) == health.checked(str(tmp_path)) == ""
    script(tmp_path, "10-well", "exit 0")
    script(tmp_path, "20-gpu", "echo looking; echo 'gpu 3 fell\x07 off' >&2; exit 3")
    script(tmp_path, "30-later", "exit 1")
    (tmp_path / "00-notes").write_text("not a program")
    assert health.checked(str(tmp_path)) == "20-gpu: gpu 3 fell? off"


def test_a_check_that_does_not_end_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "EACH", 0.1)
    script(tmp_path, "hangs", "exec sleep 60")
    assert health.checked(str(tmp_path)) == "hangs does not end"


@pytest.mark.server
async def test_a_node_that_is_unwell_is_drained_and_resumed_but_not_what_a_person_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        checks = Path(name) / "checks"
        checks.mkdir()
        async with slurm(Path(name), "", real=("n1",)) as real:
            monkeypatch.setenv("SLURM_CONF", real.env["SLURM_CONF"])
            monkeypatch.setattr(health, "filesystem", lambda path: "")

            async def reason() -> str:
                return (await real.run("sinfo", "-h", "-n", "n1", "-o", "%E")).strip()

            script(checks, "gpu", "echo broken; exit 1")
            assert health.run("n1", str(checks)) == 1
            assert await real.state("n1") == "idle+drain" and await reason() == "health: gpu: broken"
            script(checks, "gpu", "exit 0")
            assert health.run("n1", str(checks)) == 0
            await real.until_state("n1", "idle")
            await real.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=bad DIMM")
            assert health.run("n1", str(checks)) == 0
            script(checks, "gpu", "exit 1")
            health.run("n1", str(checks))
            assert await real.state("n1") == "idle+drain" and await reason() == "bad DIMM"
