"""``strata up`` and ``down``: start, converge, stop, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_support import Run
from fake_server import FakeServer

from strata.cli import converge
from strata.cli.output import Output
from strata.cli.session import Session
from strata.cli.up import background
from strata.cli.up import commands as updown
from strata.cli.up import simulated as up_simulated
from strata.cli.up import virtual as up_virtual
from strata.core.host import process as ps
from strata.virtual.qemu import create

STAND_IN = Path(__file__).with_name("stand_in_serve.py")

pytestmark = [pytest.mark.slow]


@pytest.fixture
def state(short_dir: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory that is not there yet; whatever was started there is stopped."""
    directory = short_dir / "a" / "state"
    monkeypatch.setenv("STRATA_STATE", str(directory))
    monkeypatch.setattr(converge, "_SETTLED_FOR", 0.0)
    monkeypatch.setattr(converge, "_POLL", 0.01)
    stand_in(monkeypatch)
    yield directory
    for name in (background.SERVICE, up_simulated.SIMULATOR):
        left = ps.load(directory / name)
        if left is not None:
            ps.stop(left, grace=0.0)


def stand_in(monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path(updown.__file__).parents[3]}:{STAND_IN.parent}")
    """The service is a fake; the simulator is the real one."""

    def command(module: str, *arguments: str) -> list[str]:
        if module == "strata.cli":
            return [sys.executable, str(STAND_IN), *flags, *arguments]
        return [sys.executable, "-m", module, *arguments]

    monkeypatch.setattr(ps, "command", command)


def kill(process: ps.Process, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(process.pid, how)
    os.waitpid(process.pid, 0)


def both(state: Path) -> tuple[ps.Process, ps.Process]:
    service, simulator = ps.load(state / background.SERVICE), ps.load(state / up_simulated.SIMULATOR)
    assert service is not None
    assert simulator is not None
    return service, simulator


def test_up_brings_a_fleet_to_ready_and_says_where_to_look(state: Path, run: Run) -> None:
    result = run("up", "--simulated", "--nodes", "8", "--no-tls")
    assert result.code == 0, result.err
    assert result.lines[0].startswith("Strata is up after ")
    assert result.lines[0].endswith(": 8 ready.")
    assert str(state / "admin.sock") in result.out
    assert "strata stop" in result.out
    assert "at goal: 8/8" in result.err
    assert run("status", "--json").json["by_state"] == {"ready": 8}
    asked = (state / "arguments").read_text().split("\n")
    assert asked[:3] == ["serve", "--state-dir", str(state)]
    assert asked[asked.index("--simulated") + 1] == "8"
    simulator = asked[asked.index("--simulator") + 1]
    assert json.loads((state / up_simulated.SIMULATOR_LOG).read_text()) == {"address": simulator, "nodes": 8}
    assert simulator in result.out
    assert run("down", "--delete").code == 0


def test_down_stops_the_service_and_leaves_nothing(state: Path, run: Run, short_dir: Path) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    service, simulator = both(state)
    result = run("down", "--delete")
    assert result.lines == [
        f"stopped the service (pid {service.pid})",
        f"stopped the simulator (pid {simulator.pid})",
        f"removed {state}",
    ]
    assert not service.alive
    assert not simulator.alive
    assert list(short_dir.iterdir()) == []


def test_stop_keeps_everything_and_up_goes_on_with_it(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "3", "--no-tls")
    document = state / "mine.yaml"
    document.write_text("kind: desire\nname: up\nselect: '*'\nset: {power: off}\n")
    changed = run("apply", "-f", document)
    assert changed.code == 0, changed.err
    service, simulator = both(state)
    result = run("stop")
    assert result.lines == [
        f"stopped the service (pid {service.pid})",
        f"stopped the simulator (pid {simulator.pid})",
        f"kept {state}: 'strata up' goes on with it, 'strata down --delete' deletes it",
    ]
    assert not service.alive and not simulator.alive
    assert "started nothing" in run("stop").out
    again = run("up", "--no-tls")
    assert again.code == 0, again.err
    assert run("status", "--json").json["by_state"] == {"ready": 3}
    run("stop")
    assert json.loads((state / "documents.json").read_text())["up"]["set"] == {"power": ["off"]}, "as somebody made it"
    run("down", "--delete")


def test_jobs_on_this_machine_go_on_when_all_is_stopped_and_end_when_it_is_deleted(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    (state / "jobs" / "one").mkdir(parents=True)
    job = ps.spawn([sys.executable, "-c", "import time; time.sleep(1000)"], {}, state / "out")
    job.save(state / "jobs" / "one" / "job.pid")
    try:
        assert "1 job on this machine goes on meanwhile" in run("stop").lines
        assert job.alive
        result = run("down", "--delete")
        assert result.lines[-2:] == ["ended 1 job on this machine", f"removed {state}"]
        assert not job.alive
    finally:
        ps.stop(job, grace=0.0)


def test_down_without_a_terminal_keeps_what_it_stops(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    service, _ = both(state)
    assert "'strata down --delete' deletes it" in run("down", stdin="y\n").lines[-1]
    assert not service.alive
    assert (state / background.MARK).exists()
    assert run("down", "--delete").lines[-1] == f"removed {state}"


@pytest.mark.parametrize(("answer", "kept"), [("y\n", False), ("n\n", True), ("\n", True)])
def test_down_on_a_terminal_asks_before_it_deletes(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, kept: bool
) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    asked: list[str] = []
    monkeypatch.setattr(updown.click, "confirm", lambda text, **_: asked.append(text) or answer == "y\n")
    monkeypatch.setattr(updown, "_at_terminal", lambda: True)
    run("down")
    assert len(asked) == 1 and "images, keys, history and audit log" in asked[0]
    assert state.exists() is kept
    monkeypatch.setattr(updown, "_at_terminal", lambda: False)
    run("down", "--delete")


def test_another_size_for_a_fleet_that_is_there_is_refused_in_words(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "2", "--no-tls")
    result = run("up", "--simulated", "--nodes", "5", "--no-tls")
    assert result.code == 5
    assert "the simulated fleet here has 2 nodes; it cannot be resized" in result.err
    run("down", "--delete")


def test_an_empty_service_that_was_stopped_is_an_empty_one_again(state: Path, run: Run) -> None:
    run("up", "--empty", "--no-tls")
    run("stop")
    result = run("up", "--no-tls")
    assert (result.code, result.lines[0].endswith("no nodes.")) == (0, True), result.err
    run("down", "--delete")


@pytest.mark.parametrize("killed", [(0,), (1,), (0, 1)])
def test_down_works_when_a_process_was_killed(state: Path, run: Run, short_dir: Path, killed: tuple[int, ...]) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    processes = both(state)
    for number in killed:
        kill(processes[number])
    assert run("down", "--delete").code == 0
    assert not any(process.alive for process in processes)
    assert list(short_dir.iterdir()) == []


def test_up_again_starts_only_what_was_killed(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "4", "--seed", "3", "--no-tls")
    service, simulator = both(state)
    address = json.loads((state / up_simulated.SIMULATOR_LOG).read_text())
    kill(service, signal.SIGTERM)
    assert run("up", "--simulated", "--no-tls").code == 0
    assert both(state)[0] != service
    asked = (state / "arguments").read_text().split("\n")
    assert asked[asked.index("--simulated") + 1] == "4", "the fleet is as large as its simulator"
    assert both(state)[1] == simulator
    service = both(state)[0]
    kill(simulator)
    result = run("up", "--simulated", "--no-tls")
    assert result.code == 0
    assert "its nodes start from off" in result.err
    assert both(state)[0] == service
    assert both(state)[1] != simulator
    assert json.loads((state / up_simulated.SIMULATOR_LOG).read_text()) == address
    run("down", "--delete")


def test_down_twice_is_fine(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    assert run("down", "--delete").code == 0
    result = run("down", "--delete")
    assert (result.code, result.out) == (0, f"nothing to stop: there is no {state}\n")


def test_up_twice_keeps_the_one_that_runs(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "2", "--no-tls")
    first = ps.load(state / background.SERVICE)
    again = run("up", "--simulated", "--nodes", "2", "--no-tls")
    assert again.code == 0
    assert "already running" in again.err
    assert ps.load(state / background.SERVICE) == first
    run("down", "--delete")


def test_a_directory_that_was_there_before_is_kept(state: Path, run: Run) -> None:
    state.mkdir(parents=True)
    (state / "strata.db").write_text("precious")
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    result = run("down", "--delete")
    assert result.lines[-1] == f"kept {state}: 'strata up' did not make it"
    assert (state / "strata.db").read_text() == "precious"
    assert {path.name for path in state.iterdir()} == {"strata.db", "arguments", "documents.json"}


def test_an_empty_directory_that_was_there_before_is_emptied_again(state: Path, run: Run) -> None:
    state.mkdir(parents=True)
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    assert run("down", "--delete").lines[-1] == f"emptied {state}, which was there before"
    assert list(state.iterdir()) == []


def test_a_parent_that_others_use_by_now_is_kept(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    (state.parent / "other").touch()
    assert run("down", "--delete").code == 0
    assert not state.exists()
    assert (state.parent / "other").exists()


def test_down_never_stops_a_stranger(state: Path, run: Run) -> None:
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    running = ps.load(state / background.SERVICE)
    assert running is not None
    running._replace(started=running.started + 1).save(state / background.SERVICE)
    (state / background.MARK).unlink()
    result = run("down", "--delete")
    assert result.lines[0] == "the service was already stopped"
    assert running.alive
    ps.stop(running, grace=5.0)


def test_a_service_that_up_did_not_start_is_left_alone(short_dir: Path, run: Run) -> None:
    with FakeServer(short_dir / "admin.sock"):
        result = run("up", "--simulated", "--no-tls")
    assert result.code == 5
    assert "did not start" in result.err


def test_a_service_that_dies_at_its_start_is_told_with_its_last_words(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "--die")
    result = run("up", "--simulated", "--no-tls")
    assert result.code == 1
    assert "exit code 3" in result.err
    assert "port 8443 is in use" in result.err
    assert "serve.log" in result.err
    assert run("down", "--delete").lines[-1] == f"removed {state}"


def test_down_stops_a_deaf_service_and_its_children(state: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "STOP_GRACE", 0.2)
    stand_in(monkeypatch, "--deaf")
    assert run("up", "--simulated", "--nodes", "1", "--no-tls").code == 0
    child = ps.find(int((state / "child").read_text()))
    assert child is not None
    assert run("down", "--delete").code == 0
    assert not child.alive


def test_a_fleet_that_does_not_get_there_in_time_is_exit_code_1(state: Path, run: Run) -> None:
    result = run("up", "--simulated", "--nodes", "50", "--no-tls", "--timeout", "0s")
    assert result.code == 1
    assert "converging" in result.lines[0]
    assert "is converging: power-on is under way" in result.err
    run("down", "--delete")


def test_a_fleet_that_does_not_become_ready_is_a_failure_and_says_why(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "--breaks")
    result = run("up", "--simulated", "--nodes", "4", "--no-tls")
    assert result.code == 1
    assert "not all nodes are ready" in result.lines[0]
    assert result.lines[0].endswith(": 3 ready, 1 faulted.")
    assert "n0 is faulted: power-on failed 5 times: the supply is dead" in result.err
    run("down", "--delete")


def test_two_at_once_are_a_conflict_after_a_while(state: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LOCK_PATIENCE", 0.1)
    state.mkdir(parents=True)
    with background.locked(Output(), state):
        assert run("down", "--delete").code == 5
        assert run("up", "--simulated", "--no-tls").code == 5


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a command has said that it waits for another."""
    found, note = threading.Event(), Output.note

    def noted(self: Output, text: object) -> None:
        note(self, text)
        if "waiting for it" in str(text):
            found.set()

    monkeypatch.setattr(Output, "note", noted)
    return found


@pytest.fixture
def at_work(state: Path, waits: threading.Event) -> Iterator[Callable[..., None]]:
    """``at_work(then)``: another command has the state directory; as soon as somebody waits for it, it does ``then``
    and lets go."""
    ended: list[threading.Thread] = []

    def begin(then: Callable[[], object]) -> None:
        has_it = threading.Event()

        def other() -> None:
            with background.locked(Output(), state):
                has_it.set()
                waits.wait(60)
                then()

        state.mkdir(parents=True, exist_ok=True)
        ended.append(threading.Thread(target=other))
        ended[0].start()
        has_it.wait(60)

    yield begin
    ended[0].join(60)


def test_up_waits_for_a_down_that_is_at_work(state: Path, run: Run, at_work: Callable[..., None]) -> None:
    # What there was is gone afterwards: also what kind of fleet it was, and whose directory.
    state.mkdir(parents=True)
    (state / up_simulated.SIMULATOR_OPTIONS).write_text("[]")
    at_work(lambda: shutil.rmtree(state))
    result = run("up", "--empty", "--no-tls")
    assert (result.code, result.err.count("waiting for it")) == (0, 1), result.err
    assert (state / background.MARK).is_file()
    assert run("down", "--delete").lines[-1] == f"removed {state}"


def test_down_waits_for_another_and_finds_nothing_left(state: Path, run: Run, at_work: Callable[..., None]) -> None:
    at_work(lambda: shutil.rmtree(state))
    result = run("down", "--delete")
    assert (result.code, result.lines) == (0, [f"nothing to stop: there is no {state}"])
    assert "waiting for it" in result.err


def test_up_waits_for_a_service_that_is_ending_and_starts_another(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch, waits: threading.Event
) -> None:
    stand_in(monkeypatch, "--lingers")
    assert run("up", "--empty", "--no-tls").code == 0
    first = ps.load(state / background.SERVICE)
    assert first is not None
    os.kill(first.pid, signal.SIGTERM)
    while (state / "admin.sock").exists():
        time.sleep(0.01)
    stand_in(monkeypatch)
    later = threading.Thread(target=lambda: waits.wait(60) and (state / "let-go").touch())
    later.start()
    result = run("up", "--empty", "--no-tls")
    later.join()
    assert result.code == 0, result.err
    assert f"(pid {first.pid}) is just starting or ending: waiting for it" in result.err
    assert "it has ended: another one is started" in result.err
    assert ps.load(state / background.SERVICE) != first
    assert run("status").code == 0
    run("down", "--delete")


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_interrupted_before_anything_was_started_nothing_is_left(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "check_host", lambda **_: None)
    monkeypatch.setattr(up_virtual, "_minos", interrupt)
    result = run("up")
    assert result.code == 130
    assert result.err.splitlines()[-1] == "interrupted: nothing was started, and nothing is left"
    assert not state.parent.exists()


def test_interrupted_in_a_directory_with_other_things_those_are_kept(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.mkdir(parents=True)
    (state / "strata.db").write_text("precious")
    monkeypatch.setattr(background, "front_door", interrupt)
    result = run("up", "--simulated")
    assert (result.code, result.err) == (130, "interrupted: nothing was started\n")
    assert (state / "strata.db").read_text() == "precious"


def test_interrupted_before_the_service_the_simulator_is_told_of(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(updown.bg, "start", interrupt)
        result = run("up", "--simulated", "--nodes", "2", "--no-tls")
    assert (result.code, "no service was started; 'strata up' again does the rest" in result.err) == (130, True)
    simulator = ps.load(state / background.SIMULATOR)
    assert simulator is not None
    assert run("up", "--simulated", "--no-tls").code == 0
    assert ps.load(state / background.SIMULATOR) == simulator
    run("down", "--delete")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ((background, "wait_ready"), "the service runs, but not all is set up: 'strata up' again does the rest"),
        ((up_simulated, "bring_to_ready"), "the service goes on by itself; 'strata stop' stops it"),
    ],
)
def test_interrupted_when_the_service_runs_it_goes_on(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch, where: tuple[object, str], said: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(*where, interrupt)
        result = run("up", "--simulated", "--nodes", "2", "--no-tls")
    assert result.code == 130
    assert result.err.splitlines()[-1].startswith(f"interrupted: {said}")
    service = both(state)[0]
    assert service.alive
    assert run("up", "--simulated", "--no-tls").code == 0
    assert both(state)[0] == service
    run("down", "--delete")


def test_a_bad_address_makes_no_directory(state: Path, run: Run) -> None:
    assert run("up", "--simulated", "--listen", "nonsense").code == 2
    assert not state.exists()


def test_the_callers_token_is_not_handed_on(state: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_TOKEN", "strata_1_canary")
    run("up", "--simulated", "--nodes", "1", "--no-tls")
    running = ps.load(state / background.SERVICE)
    assert running is not None
    assert b"canary" not in Path(f"/proc/{running.pid}/environ").read_bytes()
    run("down", "--delete")


def test_an_empty_service_has_no_nodes(state: Path, run: Run) -> None:
    result = run("up", "--empty", "--no-tls")
    assert result.code == 0
    assert "--simulated" not in (state / "arguments").read_text()
    assert result.lines[0].endswith("no nodes.")
    run("down", "--delete")


def test_the_front_door_takes_a_free_port_when_the_usual_one_is_taken(
    state: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/sbin/nginx")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(background, "_PORT", port)
        result = run("up", "--simulated", "--nodes", "1")
    assert result.code == 0
    assert "https   https://127.0.0.1:0 (" in result.out  # what the stand-in made of it
    run("down", "--delete")


def test_a_front_door_stays_where_it_was_unless_somebody_else_is_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/sbin/nginx")

    def door(listen: str = "") -> str:
        return background.front_door(Session(), tmp_path, listen, no_tls=False)[1]

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(background, "_PORT", port)
        (tmp_path / background.DOOR).write_text(f"https://127.0.0.1:{port}\n")
        assert door() == "127.0.0.1:0"
        assert door("127.0.0.1:1") == "127.0.0.1:1"
    monkeypatch.setattr(background, "_PORT", 1)
    assert door() == f"127.0.0.1:{port}"
