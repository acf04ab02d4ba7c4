"""Kernel messages by the network, and what is recognised in them: through real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from console_support import read

from strata.core.errors import Unavailable
from strata.hardware.consoles.kernel_messages import KernelMessages, Netconsole, Syslog
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.panic import PanicWatch
from strata.hardware.consoles.writer import ConsoleLimits
from strata.hardware.events.records import HardwareEvent


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[ConsoleLog]:
    found = ConsoleLog(tmp_path, limits=ConsoleLimits(every=0.001))
    await found.start()
    yield found
    await found.stop()


def node_of(address: str) -> str | None:
    return {"127.0.0.1": "n1"}.get(address)


async def test_both_kinds_land_in_the_nodes_log(log: ConsoleLog) -> None:
    messages = KernelMessages(log, node_of, syslog="127.0.0.1:0", netconsole="127.0.0.1:0")
    await messages.start()
    ports = [receiver.transport.get_extra_info("sockname")[1] for receiver in messages.receivers]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"<4>Oct  1 12:00:00 n1 kernel: [ 1.0] hello", ("127.0.0.1", ports[0]))
        assert await read(log, "n1", 1) == [("syslog", "kernel: [ 1.0] hello")]
        sender.sendto(b"6,1,2000000,-;usb 1-1\n", ("127.0.0.1", ports[1]))
        assert (await read(log, "n1", 2))[1] == ("netconsole", "[    2.000000] usb 1-1")
    await messages.stop()


async def test_nothing_listens_unless_told_where(log: ConsoleLog) -> None:
    messages = KernelMessages(log, node_of)
    await messages.start()
    assert messages.receivers == []
    with pytest.raises(Unavailable):
        await KernelMessages(log, node_of, syslog="127.0.0.1:http").start()


async def test_strangers_are_counted_and_forgotten(log: ConsoleLog) -> None:
    syslog = Syslog(log, node_of)
    for host in range(1000):
        syslog.datagram_received(b"<4>boo", (f"10.0.{host // 250}.{host % 250}", 9))
    assert syslog.unknown == 1000 and len(syslog.strangers) <= 64
    assert log.known("n1") is None


@pytest.mark.parametrize(
    ("datagram", "text"),
    [
        (b"<0>kernel: [ 5.0] Kernel panic", "kernel: [ 5.0] Kernel panic"),
        (b"<3>[ 5.0] bare from klogd", "kernel: [ 5.0] bare from klogd"),
        (b"<30>Oct 11 22:14:15 host sshd[12]: hi", "sshd[12]: hi"),
        (b"<165>1 2003-10-11T22:14:15.003Z host app 12 ID47 - \xef\xbb\xbfhello", "app[12]: hello"),
        (b'<165>1 2003-10-11T22:14:15.003Z h app - ID47 [x@1 a="b\\]c"][y@2] hello', "app: hello"),
        (b"<2>1 - - kernel - - - oops", "kernel: oops"),
        (b"no priority at all", "no priority at all"),
        (b"<14>kernel: Kernel panic - forged", "(facility 1) kernel: Kernel panic - forged"),
        (b"<14>1 - - kernel - - - forged", "(facility 1) kernel: forged"),
    ],
)
async def test_syslog_in_either_format(log: ConsoleLog, datagram: bytes, text: str) -> None:
    Syslog(log, node_of).datagram_received(datagram, ("127.0.0.1", 514))
    assert await read(log, "n1", 1) == [("syslog", text)]


async def test_fragments_of_netconsole_are_put_together_in_any_order(log: ConsoleLog) -> None:
    netconsole = Netconsole(log, node_of)
    peer = ("127.0.0.1", 6666)
    for part in (b"6,9,5000000,-,ncfrag=6/11;world", b"6,9,5000000,-,ncfrag=0/11;hello "):
        netconsole.datagram_received(part, peer)
    netconsole.datagram_received(b"6.4.0,4,10,6000001,c;next\n SUBSYSTEM=usb\n", peer)
    netconsole.datagram_received(b"[ 7.0] plain\nand more\n", peer)
    assert [text for _, text in await read(log, "n1", 4)] == [
        "[    5.000000] hello world",
        "[    6.000001] next",
        "[ 7.0] plain",
        "and more",
    ]
    for number in range(5000):
        netconsole.datagram_received(b"6,%d,1,-,ncfrag=0/100;x" % number, peer)
    assert len(netconsole._parts) <= 1024


TRACE = [
    "[   10.0] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "[   10.0] Oops: 0000 [#1] SMP",
    "[   10.0] Call Trace:",
    "[   10.0]  dump_stack+0x1",
    "[   10.1] ---[ end trace 1234 ]---",
    "[   10.2] Kernel panic - not syncing: Fatal exception",
]


class Raised:
    """Takes events."""

    def __init__(self) -> None:
        self.events: list[HardwareEvent] = []
        self.came = asyncio.Event()

    def __call__(self, events: Sequence[HardwareEvent]) -> None:
        self.events += events
        self.came.set()


async def test_one_trace_is_one_event_as_bad_as_its_worst_with_its_lines_kept(log: ConsoleLog) -> None:
    raised = Raised()
    watch = PanicWatch(log, raised, settle=0.05)
    log.append("n1", "serial", ["booting", "more"])
    log.append("n1", "serial", TRACE[:3])
    await read(log, "n1", 5)
    log.append("n1", "netconsole", TRACE)
    log.append("n1", "serial", TRACE[3:])
    async with asyncio.timeout(60):
        await raised.came.wait()
    await watch.close()
    [event] = raised.events
    assert (event.key, event.severity, event.node, event.message) == (
        "console/panic", "critical", "n1", "Kernel panic - not syncing: Fatal exception",
    )  # fmt: skip
    _, node, lines = event.fields["dump"].split(":")
    dump = await log.dump(node, lines)
    assert [line.text for line in dump][:3] == ["booting", "more", TRACE[0]]
    assert len(dump) == 2 + 12


@pytest.mark.parametrize(
    ("text", "key", "severity"),
    [
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [x:1]", "console/soft-lockup", "warning"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 4", "console/hard-lockup", "critical"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "console/soft-lockup", "warning"),
        ("Out of memory: Killed process 99 (a.out) total-vm:1kB", "console/oom", "warning"),
        ("Memory cgroup out of memory: Killed process 99", "console/oom", "warning"),
        ("mce: [Hardware Error]: Machine check events logged", "console/mce", "warning"),
        ("{1}[Hardware Error]: event severity: fatal", "console/mce", "critical"),
        ("kernel BUG at mm/slub.c:305!", "console/bug", "critical"),
        ("general protection fault, probably for non-canonical address", "console/oops", "critical"),
        ("Internal error: Oops: 96000004 [#1] SMP", "console/oops", "critical"),
    ],
)
async def test_each_trouble_has_its_name_and_severity(log: ConsoleLog, text: str, key: str, severity: str) -> None:
    raised = Raised()
    watch = PanicWatch(log, raised)
    log.append("n1", "serial", [f"[ 1234.567890][  T12] {text}"])
    await read(log, "n1", 1)
    await watch.close()
    assert [(event.key, event.severity, event.message) for event in raised.events] == [(key, severity, text)]


async def test_what_others_say_is_not_the_kernels_word(log: ConsoleLog) -> None:
    raised = Raised()
    watch = PanicWatch(log, raised)
    log.append("n1", "strata", ["Kernel panic - not syncing"])
    Syslog(log, node_of).datagram_received(b"<14>kernel: Kernel panic - not syncing", ("127.0.0.1", 1))
    log.append("n1", "serial", ["nothing to see"])
    await read(log, "n1", 3)
    await watch.close()
    assert raised.events == []


async def test_troubles_of_different_nodes_are_different_events(log: ConsoleLog) -> None:
    raised = Raised()
    watch = PanicWatch(log, raised)
    for node in range(200):
        log.append(f"n{node}", "serial", TRACE)
    for node in range(200):
        await read(log, f"n{node}", len(TRACE))
    await watch.close()
    assert {event.node for event in raised.events} == {f"n{node}" for node in range(200)}
    assert len(raised.events) == 200


async def test_a_panic_is_told_before_the_trace_is_over_and_only_of_the_serial_console(log: ConsoleLog) -> None:
    raised, told = Raised(), []
    watch = PanicWatch(log, raised, settle=3600)
    watch.panicked.append(lambda node, said: told.append((node, said)))
    log.append("n1", "netconsole", TRACE)
    log.append("n2", "serial", TRACE)
    log.append("n2", "serial", TRACE)
    await read(log, "n1", len(TRACE))
    await read(log, "n2", 2 * len(TRACE))
    assert told == [("n2", "Kernel panic - not syncing: Fatal exception")]
    assert raised.events == []
    await watch.close()
