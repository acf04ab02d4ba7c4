"""One machine's process when things happen at the same time: it dies between two steps, or is switched meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from qemu_support import until

from strata.core.errors import DeviceError
from strata.core.host import process as ps
from strata.virtual.qemu import machine as module
from strata.virtual.qemu.command import CD_AT, CONSOLE_LOG, FIRST
from strata.virtual.qemu.description import Options, describe, guest_mark
from strata.virtual.qemu.machine import PROCESS, Lifeline, Machine
from strata.virtual.qemu.serial import Serial

pytestmark = [pytest.mark.server, pytest.mark.slow]
STAND_IN = Path(__file__).with_name("stand_in_qemu.py")


class Seen:
    """A machine, and what it told: ``on``, ``off``, ``boot``."""

    def __init__(self, home: Path) -> None:
        found = describe(Options(directory=home, nodes=1, host_link=False))
        self.mark = guest_mark(found.id)
        self.home = home
        self.told: list[str] = []
        self.machine = Machine(found.nodes[0], found.id, home, Serial(home / CONSOLE_LOG))
        self.machine.changed = lambda on: self.told.append("on" if on else "off")
        self.machine.booted = lambda: self.told.append("boot")

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in ps.with_argument(self.mark)]

    @property
    def pid(self) -> int:
        process = self.machine.process
        assert process is not None
        return process.pid

    def behave(self, words: str) -> None:
        (self.home / "behaviour").write_text(words)

    def asked(self) -> str:
        return (self.home / "asked").read_text()

    def reset_unheard(self) -> None:
        """The guest resets itself, and the loop has not heard of it yet."""
        os.kill(self.pid, signal.SIGUSR1)
        wait_for(lambda: (self.home / "told").exists())

    def die_unnoticed(self) -> None:
        """The process is killed, and the loop has not come to it yet."""
        os.kill(self.pid, signal.SIGKILL)
        self.end_unnoticed()

    def end_unnoticed(self) -> None:
        """Until the process has ended, without a turn of the loop."""
        record = ps.load(self.home / PROCESS)
        assert record is not None
        handle = os.pidfd_open(record.pid)
        os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOWAIT)
        os.close(handle)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    program = tmp_path / "qemu"
    program.write_text(f"#!{sys.executable} -IS\n{STAND_IN.read_text()}")
    program.chmod(0o755)
    monkeypatch.setattr(module, "tool", lambda *_: str(program))
    found = Seen(tmp_path)
    yield found
    for process in ps.with_argument(found.mark):
        ps.stop(process, grace=0)


async def test_a_machine_is_started_reset_and_killed_and_tells_of_it_in_order(seen: Seen) -> None:
    await seen.machine.start()
    await seen.machine.start()
    await seen.machine.restart()
    await until(lambda: seen.told.count("boot") == 2)
    await seen.machine.cycle()
    await seen.machine.kill()
    await seen.machine.kill()
    assert seen.told == ["on", "boot", "boot", "off", "on", "boot", "off"]
    assert seen.pids == []
    with pytest.raises(DeviceError, match="it is off"):
        await seen.machine.press()
    await seen.machine.leave()


@pytest.mark.parametrize(
    ("how", "words"), [("die", "tap device"), ("greet-die", "out of memory"), ("serve-die", "lost its mind")]
)
async def test_a_machine_that_dies_while_it_starts_was_never_on(seen: Seen, how: str, words: str) -> None:
    seen.behave(how)
    try:
        await seen.machine.start()
    except DeviceError as error:
        assert words in error.detail
        assert seen.told == []
    else:
        # The last of them may live long enough to count: then it was on, and is not any longer.
        assert how == "serve-die"
        await until(lambda: not seen.machine.alive)
        assert seen.told == ["on", "boot", "off"]
    assert not seen.machine.alive
    seen.behave("")
    seen.told.clear()
    await seen.machine.start()
    assert seen.told == ["on", "boot"]
    await seen.machine.kill()
    await seen.machine.leave()


async def test_a_start_that_cannot_be_written_down_leaves_no_process(seen: Seen) -> None:
    (seen.home / Path(PROCESS).with_suffix(".new")).mkdir()
    with pytest.raises(DeviceError, match="did not start"):
        await seen.machine.start()
    assert (seen.pids, seen.told) == ([], [])
    await seen.machine.leave()


async def test_a_start_after_a_death_that_nobody_noticed_starts_another(seen: Seen) -> None:
    await seen.machine.start()
    first = seen.pid
    seen.die_unnoticed()
    await seen.machine.start()
    assert seen.told == ["on", "boot", "off", "on", "boot"]
    assert seen.pids == [seen.pid] != [first]
    await seen.machine.kill()
    await seen.machine.leave()


@pytest.mark.parametrize("first", ["", "http"])
async def test_a_reset_that_is_heard_of_a_dead_machine_is_no_boot_and_no_start(seen: Seen, first: str) -> None:
    await seen.machine.start()
    await seen.machine.boot_from(first)  # over HTTP: a reset is another start of the process
    seen.reset_unheard()
    seen.die_unnoticed()
    await until(lambda: "off" in seen.told)
    await asyncio.sleep(0.2)
    assert seen.told == ["on", "boot", "off"]
    assert seen.pids == []
    await seen.machine.leave()


async def test_a_reset_just_before_power_off_does_not_bring_the_machine_back(seen: Seen) -> None:
    await seen.machine.start()
    await seen.machine.boot_from("http")
    seen.reset_unheard()
    await seen.machine.kill()
    await asyncio.sleep(0.2)
    assert seen.pids == []
    assert seen.told[-1] == "off"
    await seen.machine.leave()


async def test_a_guest_that_shuts_down_before_the_reply_is_read_has_replied(seen: Seen) -> None:
    await seen.machine.start()
    work = asyncio.create_task(seen.machine.press())
    await asyncio.sleep(0)  # it is asked
    seen.end_unnoticed()
    await work
    await until(lambda: seen.told == ["on", "boot", "off"])
    await seen.machine.leave()


async def test_a_guest_that_shuts_down_for_a_restart_is_started_again(seen: Seen) -> None:
    await seen.machine.start()
    await seen.machine.press_and_return(60.0)
    await until(lambda: seen.told == ["on", "boot", "off", "on", "boot"])
    await seen.machine.kill()
    await seen.machine.leave()


async def test_whoever_switches_off_during_a_graceful_restart_has_it_off(seen: Seen) -> None:
    seen.behave("stubborn")
    await seen.machine.start()
    await seen.machine.press_and_return(60.0)
    await seen.machine.kill()
    await asyncio.sleep(0.2)
    assert seen.pids == []
    assert seen.told == ["on", "boot", "off"]
    await seen.machine.leave()


@pytest.mark.parametrize("act", ["start", "cycle"])
async def test_what_was_begun_is_done_when_the_controller_ends_and_the_machine_is_found_again(
    seen: Seen, act: str
) -> None:
    if act == "cycle":
        await seen.machine.start()
    before, seen.told[:] = seen.pids, []
    seen.behave("wait")
    work = asyncio.create_task(getattr(seen.machine, act)())
    await until(lambda: seen.pids not in ([], before))
    work.cancel()
    leaving = asyncio.create_task(seen.machine.leave())
    await asyncio.sleep(0)
    (seen.home / "go").touch()
    await leaving
    assert work.cancelled()
    assert seen.told == [*(["off"] if act == "cycle" else []), "on", "boot"]

    again = Seen(seen.home)
    await again.machine.find()
    assert [again.pid] == seen.pids
    await again.machine.kill()
    assert again.told == ["off"]
    await again.machine.leave()


async def test_a_controller_does_not_wait_for_ever_for_a_machine_that_does_not_start(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_PATIENCE", 0.1)
    seen.behave("wait")
    work = asyncio.create_task(seen.machine.start())
    await until(lambda: bool(seen.pids))
    await seen.machine.leave()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert len(seen.pids) == 1  # it goes on, and can be found


async def test_what_is_set_while_a_machine_starts_is_set_when_it_has(seen: Seen) -> None:
    seen.behave("wait")
    work = asyncio.create_task(seen.machine.start())
    await until(lambda: bool(seen.pids))
    await seen.machine.boot_from("cd")
    seen.machine.medium.touch()
    await seen.machine.medium_changed()
    (seen.home / "go").touch()
    await work
    await until(lambda: "blockdev-change-medium" in seen.asked())
    await until(lambda: '"property": "bootindex", "value": 0' in seen.asked())
    await seen.machine.kill()
    await seen.machine.leave()


async def test_what_is_booted_first_is_changed_and_changed_back_while_the_machine_runs(seen: Seen) -> None:
    await seen.machine.start()
    for first in ("", "", "cd", "cd", "http", "cd", "", "http", ""):
        await seen.machine.boot_from(first)
    # Some at once, as a controller does when an override for once is over: the last word counts.
    await asyncio.gather(*(seen.machine.boot_from(first) for first in ("cd", "", "cd", "cd")))
    places = [json.loads(line.partition(" ")[2])["value"] for line in seen.asked().splitlines() if "qom-set" in line]
    assert places == [FIRST, CD_AT, FIRST, CD_AT, FIRST]

    await seen.machine.leave()

    again = Seen(seen.home)  # whoever finds it did not see what was set
    await again.machine.find()
    await again.machine.boot_from("cd")
    await again.machine.boot_from("")
    await again.machine.kill()
    await again.machine.leave()


async def test_a_record_of_a_process_that_is_gone_or_anothers_finds_nothing(seen: Seen) -> None:
    me = ps.find(os.getpid())
    assert me is not None
    for record in (me._replace(started=me.started + 1), me._replace(pid=2**22 - 1)):
        record.save(seen.home / PROCESS)
        await seen.machine.find()
        assert not seen.machine.alive
    await seen.machine.leave()


@pytest.fixture
def headless() -> Iterator[ps.Process]:
    """A process whose first thread has ended; another one runs."""
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        process = ps.find(child.pid)
        assert process is not None
        wait_for(lambda: Path("/proc", str(child.pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z")
        yield process
        child.kill()


async def test_a_process_has_ended_when_the_last_of_its_threads_has(headless: ps.Process) -> None:
    told: list[str] = []
    life = Lifeline(headless, lambda: told.append("ended"))
    assert headless.alive
    assert life.look()
    life.kill()
    await asyncio.wait_for(life.ended.wait(), 60)
    assert (life.look(), headless.alive, told) == (False, False, ["ended"])


def wait_for(true: Callable[[], bool]) -> None:
    """Without letting the loop do anything."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


async def test_a_machine_stands_still_until_its_serial_line_is_connected(seen: Seen) -> None:
    connected: list[str] = []
    connect = seen.machine.serial.connect

    async def noted(path: str) -> None:
        connected.append(seen.asked())
        await connect(path)

    seen.machine.serial.connect = noted  # type: ignore[method-assign]
    await seen.machine.start()
    assert "-S" in Path("/proc", str(seen.pid), "cmdline").read_bytes().decode().split("\0")
    [asked] = connected
    assert "cont" not in asked
    assert "cont" in seen.asked()
    await seen.machine.kill()
    await seen.machine.leave()
