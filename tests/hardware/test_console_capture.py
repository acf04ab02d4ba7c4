"""Capturing consoles: what is printed is written down, what is lost is sought again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from console_support import read

from strata.core.driver import Batch
from strata.core.errors import DeviceError, NotOffered
from strata.hardware.consoles.capture import CaptureSettings, ConsoleCapture
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.writer import ConsoleLimits

QUICK = CaptureSettings(retry=0.001, retry_most=0.002, prompt=0.01, refresh=0.01, opening=0.2)


class FakeConsole:
    """A BMC whose console a test speaks through."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.opened = 0
        self.open = 0

    async def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
        self.opened += 1
        self.open += 1
        try:
            yield b""
            while True:
                said = await self.said.get()
                if isinstance(said, Exception):
                    raise said
                yield said
        finally:
            self.open -= 1


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[ConsoleLog]:
    found = ConsoleLog(tmp_path, limits=ConsoleLimits(every=0.001))
    await found.start()
    yield found
    await found.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_what_is_printed_is_written_down(log: ConsoleLog) -> None:
    fake = FakeConsole()
    capture = ConsoleCapture(log, lambda address: fake, lambda: {"n1": "ipmi://a"}, settings=QUICK)
    await capture.start()
    for piece in (b"Linux ver", b"sion 6.1\r\nsecond\nlogin: "):
        fake.said.put_nowait(piece)
    assert await read(log, "n1", 3) == [("serial", "Linux version 6.1"), ("serial", "second"), ("serial", "login:")]
    status = capture.status.get("n1")
    assert status is not None and status.connected and status.way == "ipmi"
    await capture.stop()
    assert fake.open == 0


async def test_a_lost_console_is_regained_and_both_are_told(log: ConsoleLog) -> None:
    fake = FakeConsole()
    capture = ConsoleCapture(log, lambda address: fake, lambda: {"n1": "https://a"}, settings=QUICK)
    await capture.start()
    fake.said.put_nowait(b"before\nhalf")
    fake.said.put_nowait(DeviceError("the connection broke\x1b[2J", node="a"))
    fake.said.put_nowait(b"after\n")
    assert await read(log, "n1", 5) == [
        ("serial", "before"),
        ("serial", "half"),
        ("strata", "console lost: the connection broke"),
        ("strata", "console regained"),
        ("serial", "after"),
    ]
    await capture.stop()


async def test_a_bmc_without_a_console_is_left_alone(log: ConsoleLog) -> None:
    class Without:
        asked = 0

        async def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
            self.asked += 1
            raise NotOffered("it has none", node="a")
            yield b""

    without = Without()
    capture = ConsoleCapture(log, lambda address: without, lambda: {"n1": "https://a"}, settings=QUICK)
    await capture.start()
    await until(lambda: (status := capture.status.get("n1")) and status.trouble)
    for _ in range(20):
        capture.refresh()
        await asyncio.sleep(0)
    await capture.stop()
    assert without.asked == 1 and not capture._running
    assert await log.tail("n1", 9) == []


async def test_nodes_come_go_and_move(log: ConsoleLog) -> None:
    fakes = {"ipmi://a": FakeConsole(), "ipmi://b": FakeConsole()}
    nodes = {"n1": "ipmi://a"}
    capture = ConsoleCapture(log, fakes.__getitem__, lambda: nodes, settings=QUICK)
    await capture.start()
    await until(lambda: fakes["ipmi://a"].open)
    nodes["n1"] = "ipmi://b"
    await until(lambda: fakes["ipmi://b"].open and not fakes["ipmi://a"].open)
    nodes.clear()
    await until(lambda: not fakes["ipmi://b"].open)
    assert capture.status.get("n1") is None
    await capture.stop()


async def test_a_virtual_serial_port_is_a_socket(log: ConsoleLog, tmp_path: Path) -> None:
    hung_up = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SeaBIOS\r\n")
        await writer.drain()
        await reader.read()
        writer.close()
        hung_up.set()

    server = await asyncio.start_unix_server(speak, tmp_path / "serial")
    capture = ConsoleCapture(log, lambda address: FakeConsole(), lambda: {"n1": f"unix:{tmp_path / 'serial'}"})
    await capture.start()
    assert await read(log, "n1", 1) == [("serial", "SeaBIOS")]
    status = capture.status.get("n1")
    assert status is not None and status.way == "socket"
    await capture.stop()
    async with asyncio.timeout(60):
        await hung_up.wait()
    server.close()
    await server.wait_closed()


async def test_only_so_many_are_kept_open(log: ConsoleLog) -> None:
    fake = FakeConsole()
    settings = CaptureSettings(most=3)
    nodes = {f"n{i}": "ipmi://a" for i in range(5)}
    capture = ConsoleCapture(log, lambda address: fake, lambda: nodes, settings=settings)
    await capture.start()
    await until(lambda: fake.open == 3)
    told = [status.trouble for node in nodes if (status := capture.status.get(node))]
    assert told.count("only 3 are kept open") == 2
    await capture.stop()


async def test_many_consoles_that_stay_silent_hold_nobody_up(log: ConsoleLog) -> None:
    class Mute:
        async def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
            await asyncio.sleep(3600)
            yield b""

    fake = FakeConsole()
    settings = CaptureSettings(at_once=4, opening=0.01)
    nodes = {**{f"m{i}": "ipmi://mute" for i in range(20)}, "z": "ipmi://a"}
    capture = ConsoleCapture(log, lambda a: fake if a == "ipmi://a" else Mute(), lambda: nodes, settings=settings)
    await capture.start()
    await until(lambda: fake.open)
    await capture.stop()


def about(*nodes: str, address: str = "ipmi://a") -> Batch:
    """Nodes that are about to be switched on."""
    return Batch(names=list(nodes), uids=np.arange(len(nodes)), bmcs=[address] * len(nodes))


async def looked(capture: ConsoleCapture) -> None:
    """It has looked once which nodes there are."""
    await capture.start()
    await asyncio.sleep(0)  # its first look
    await asyncio.sleep(0)


async def test_a_console_is_open_before_its_node_gets_power(log: ConsoleLog) -> None:
    """Whether or not anybody has looked yet which nodes there are."""
    fake = FakeConsole()
    slow = CaptureSettings(refresh=3600, before_power=20)
    capture = ConsoleCapture(log, lambda address: fake, dict, settings=slow)
    await looked(capture)
    await capture.before_power(about("n1"))
    assert fake.open == 1
    await capture.before_power(about("n1"))
    assert fake.opened == 1
    await capture.stop()


async def test_a_console_that_was_lost_is_sought_when_its_node_gets_power_and_not_when_it_is_its_turn(
    log: ConsoleLog,
) -> None:
    fake = FakeConsole()
    slow = CaptureSettings(refresh=3600, retry=3600, retry_most=3600, before_power=20)
    capture = ConsoleCapture(log, lambda address: fake, lambda: {"n1": "ipmi://a"}, settings=slow)
    await capture.start()
    await until(lambda: fake.open == 1)
    fake.said.put_nowait(DeviceError("gone", node="a"))
    await until(lambda: fake.open == 0)
    await until(lambda: "n1" in capture._pauses)
    await capture.before_power(about("n1"))
    assert fake.open == 1
    await capture.stop()


class Mute:
    """A BMC that does not answer, or has no console."""

    def __init__(self, wrong: Exception | None = None) -> None:
        self._wrong = wrong

    async def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
        if self._wrong is not None:
            raise self._wrong
        await asyncio.Event().wait()
        yield b""


@pytest.mark.parametrize("wrong", [None, DeviceError("refused", node="a"), NotOffered("none", node="a")])
async def test_nobody_is_kept_from_the_power_by_a_console(log: ConsoleLog, wrong: Exception | None) -> None:
    patience = 0.05 if wrong is None else 20
    capture = ConsoleCapture(log, lambda _: Mute(wrong), dict, settings=CaptureSettings(before_power=patience))
    await looked(capture)
    async with asyncio.timeout(120):
        await capture.before_power(about("n1"))
        await capture.before_power(about("n1", address=""))
    await capture.stop()
    await capture.before_power(about("n2"))
    assert capture.status.get("n2") is None, "nothing is begun that nobody ends"


async def test_where_many_are_switched_on_only_so_many_are_waited_for(log: ConsoleLog) -> None:
    mute = Mute()
    few = CaptureSettings(before_power=0.05, at_once=3, refresh=3600)
    capture = ConsoleCapture(log, lambda _: mute, dict, settings=few)
    await looked(capture)
    await capture.before_power(about(*(f"n{i}" for i in range(1000))))
    assert len(capture._running) == 3


async def test_a_console_is_opened_only_when_its_turn_has_come(log: ConsoleLog) -> None:
    fake, turns = FakeConsole(), asyncio.Semaphore(2)
    nodes = {f"n{i}": "ipmi://a" for i in range(5)}
    capture = ConsoleCapture(log, lambda address: fake, lambda: nodes, settings=QUICK, turn=turns.acquire)
    await capture.start()
    await until(lambda: fake.open == 2)
    turns.release()
    await until(lambda: fake.open == 3)
    assert fake.opened == 3
    await capture.stop()
