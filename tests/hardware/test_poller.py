"""The poller: often where there is news, seldom where there is none, and never waiting for the dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.bmc.bmcs import Silence
from strata.hardware.bmc.protocol import LogEntry, Reading, Severity
from strata.hardware.events.inbox import Inbox
from strata.hardware.events.poller import Looker, Poller, PollSettings
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.site import Site


class FakeBmc:
    """A BMC that keeps a log, and may hang, fail or lack things."""

    def __init__(self, fleet: FakeFleet, name: str) -> None:
        self.fleet = fleet
        self.name = name
        self.entries: list[LogEntry] = []
        self.looks: list[float] = []
        self.hangs = False
        self.fails: Exception | None = None
        self.log_fails: Exception | None = None
        self.power_fails: Exception | None = None
        self.flaw = ""
        self.readings_: Sequence[Reading] = ()

    def write(self, ident: str, at: float, text: str = "fan is slow", log: str = "") -> None:
        name = f"X.1.M{ident}"
        self.entries.append(LogEntry(id=ident, time=at, severity="warning", message=text, message_id=name, log=log))

    async def log(self, *, after: str = "", limit: int = 1000) -> Sequence[LogEntry]:
        self.looks.append(time.monotonic())
        self.fleet.looked.append(self.name)
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails or self.log_fails:
            raise self.fails or self.log_fails  # type: ignore[misc]
        ids = [entry.id for entry in self.entries]
        return self.entries[ids.index(after) + 1 :] if after in ids else list(self.entries)

    async def readings(self) -> Sequence[Reading]:
        if self.fails:
            raise self.fails
        return self.readings_

    async def power(self) -> str | None:
        if self.fails or self.power_fails:
            raise self.fails or self.power_fails  # type: ignore[misc]
        return "on"


class FakeFleet:
    """As ``Controllers``."""

    def __init__(self, *names: str) -> None:
        self.bmcs = {f"http://{name}": FakeBmc(self, name) for name in names}
        self.looked: list[str] = []
        self.silences: dict[str, Silence] = {}
        self.clock = time.monotonic

    def open(self, address: str) -> FakeBmc:
        return self.bmcs[address]

    def silence(self, address: str) -> Silence | None:
        return self.silences.get(address)

    def silent(self, address: str) -> bool:
        return address in self.silences

    def flaw(self, address: str) -> str:
        return self.bmcs[address].flaw

    def failed(self, address: str, error: Exception) -> None: ...
    def missed(self, address: str, why: str) -> None: ...
    def answered(self, address: str) -> None: ...
    def saw(self, address: str, power: str | None) -> None: ...


class FakeListener:
    """Nobody pushes."""

    def __init__(self) -> None:
        self.pushing: set[str] = set()
        self.left: list[str] = []
        self.error: Exception | None = None
        self.arranging = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def way(self, root: str) -> str:
        return "push" if root in self.pushing else "poll"

    async def arrange(self, site: Site) -> str:
        self.arranging.set()
        await self.goes_on.wait()
        if self.error:
            raise self.error
        return self.way(site.root)

    async def leave(self, site: Site) -> None:
        self.left.append(site.root)

    async def stop(self) -> None: ...


class Marks(dict[str, str]):
    def mark(self, name: str) -> str:
        return self.get(name, "")

    def set_mark(self, name: str, value: str) -> None:
        self[name] = value


class Bench:
    """A poller over fakes, and what it told."""

    def __init__(self, *names: str) -> None:
        self.fleet = FakeFleet(*names)
        self.listener = FakeListener()
        self.events: list[HardwareEvent] = []
        self.marks = Marks()
        self.sites = {address: Site(address, ((address, bmc.name),)) for address, bmc in self.fleet.bmcs.items()}

    def troubles(self, node: str) -> dict[str, Severity]:
        """As the alerts would have it."""
        found: dict[str, Severity] = {}
        for event in self.events:
            if event.node == node:
                found[event.key] = event.severity
        return {key: severity for key, severity in found.items() if severity != "ok"}

    def bmc(self, name: str) -> FakeBmc:
        return self.fleet.bmcs[f"http://{name}"]

    @asynccontextmanager
    async def polling(
        self,
        mine: Callable[[str], bool] = lambda _: True,
        turn: Callable[[float], Awaitable[None]] | None = None,
        **settings: float,
    ) -> AsyncIterator[Poller]:
        quick = {"fast": 0.01, "slow": 0.08, "per_second": 10_000.0, "silent_after": 2} | settings
        looker = Looker(
            self.fleet,  # type: ignore[arg-type]
            self.listener,  # type: ignore[arg-type]
            Inbox(b"k", self.events.extend),
            self.marks,
            troubles=self.troubles,
        )
        chosen = PollSettings(**quick)  # type: ignore[arg-type]
        poller = Poller(looker, self.events.extend, mine=mine, turn=turn, settings=chosen)
        await poller.know(self.sites)
        poller.start()
        try:
            yield poller
        finally:
            await poller.stop()


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_what_was_in_the_log_before_is_the_past_and_what_is_new_is_told_once() -> None:
    bench = Bench("n1")
    now = time.time()
    bench.bmc("n1").write("1", now - 100)
    async with bench.polling():
        await until(lambda: bench.marks)
        bench.bmc("n1").write("2", now)
        await until(lambda: bench.events)
        seen = len(bench.fleet.looked)
        await until(lambda: len(bench.fleet.looked) > seen + 2)
    assert [event.fields["entry"] for event in bench.events] == ["2"]
    # After a restart it goes on where it was.
    bench.bmc("n1").write("3", now + 5, "another")
    async with bench.polling():
        await until(lambda: len(bench.events) > 1)
    assert [event.fields["entry"] for event in bench.events] == ["2", "3"]


def blade(*systems: str) -> Bench:
    """One BMC with several nodes behind it."""
    root, paths = "http://blade", [f"/redfish/v1/Systems/{system}" for system in systems]
    bench = Bench(*(f"blade{path}" for path in paths))
    nodes = tuple((f"{root}{path}", system) for system, path in zip(systems, paths, strict=True))
    bench.sites = {root: Site(root, nodes)}
    return bench


async def test_behind_a_shared_bmc_each_nodes_own_log_is_read_and_what_is_in_it_is_that_nodes() -> None:
    bench = blade("Node0", "Node1", "Node2")
    first, second, without = bench.fleet.bmcs.values()
    without.log_fails = NotOffered("it keeps no log", node="Node2")
    logs = [f"/redfish/v1/Systems/{system}/LogServices/SEL/Entries" for system in ("Node0", "Node1")]
    for bmc, log in zip((first, second), logs, strict=True):
        bmc.write("1", time.time() - 100, log=log)
    async with bench.polling():
        await until(lambda: len(bench.marks) == 2)
        second.write("2", time.time(), "DIMM 3 failed", log=logs[1])
        await until(lambda: bench.events)
        first.write("2", time.time(), "fan 1 failed", log=logs[0])
        await until(lambda: len(bench.events) > 1)
        seen = len(bench.fleet.looked)
        await until(lambda: len(bench.fleet.looked) > seen + 4)
    told = [(event.node, event.message) for event in bench.events]
    assert told == [("Node1", "DIMM 3 failed"), ("Node0", "fan 1 failed")]
    assert len(without.looks) == 1, "one that keeps none is not asked again"


@pytest.mark.slow
async def test_a_log_that_nodes_share_is_told_once_also_after_a_restart_and_when_the_first_node_goes() -> None:
    bench = blade("Node0", "Node1")
    first, second = bench.fleet.bmcs.values()
    second.entries = first.entries
    log = "/redfish/v1/Managers/BMC/LogServices/SEL/Entries"
    first.write("1", time.time() - 100, log=log)
    for ident in "23":
        async with bench.polling():
            await until(lambda: len(bench.marks) == 2)
            first.write(ident, time.time(), f"trouble {ident}", log=log)
            await until(lambda ident=ident: len(bench.events) == int(ident) - 1)
            seen = len(bench.fleet.looked)
            await until(lambda seen=seen: len(bench.fleet.looked) > seen + 4)
    [(root, site)] = bench.sites.items()
    bench.sites = {root: Site(root, site.nodes[1:])}
    async with bench.polling():
        first.write("4", time.time(), "trouble 4", log=log)
        await until(lambda: len(bench.events) > 2)
    assert [event.message for event in bench.events] == ["trouble 2", "trouble 3", "trouble 4"]


async def test_a_log_that_loses_an_entry_or_is_cleared_brings_nothing_twice_and_hides_nothing() -> None:
    bench = Bench("n1")
    now = time.time()
    for ident in "12":
        bench.bmc("n1").write(ident, now - 100)
    async with bench.polling():
        await until(lambda: bench.marks)
        bench.bmc("n1").write("3", now)
        await until(lambda: bench.events)
        lost = bench.bmc("n1").entries.pop()  # as after a reading that was cut short
        bench.bmc("n1").write("4", now - 5000)  # and its clock was set back
        await until(lambda: len(bench.events) > 1)
        bench.bmc("n1").entries = []
        bench.bmc("n1").write("1", now + 10, "after it was cleared")
        await until(lambda: len(bench.events) > 2)
        seen = len(bench.fleet.looked)
        await until(lambda: len(bench.fleet.looked) > seen + 2)
    assert lost.id == "3"
    assert [event.fields["entry"] for event in bench.events] == ["3", "4", "1"]


@pytest.mark.slow
async def test_news_makes_looks_frequent_and_quiet_makes_them_rare() -> None:
    bench = Bench("busy", "quiet", "pushes")
    bench.listener.pushing = {"http://pushes"}
    busy = bench.bmc("busy")
    async with bench.polling(fast=0.02, slow=0.5):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            busy.write(str(len(busy.entries)), time.time())
            await asyncio.sleep(0.01)
    looks = {name: len(bench.bmc(name).looks) for name in ("busy", "quiet", "pushes")}
    assert looks["busy"] > 2 * looks["quiet"] >= 2 * looks["pushes"], looks


@pytest.mark.slow
async def test_the_slow_and_the_dead_hold_up_nobody() -> None:
    dead = [f"d{i}" for i in range(100)]
    bench = Bench(*dead, *(f"n{i}" for i in range(200)))
    for name in dead:
        bench.bmc(name).hangs = True
    async with bench.polling(at_once=4, yields=0.01, slow=1000.0, fast=1000.0):
        await until(lambda: len({name for name in bench.fleet.looked if name[0] == "n"}) == 200)


async def test_a_bmc_that_is_left_alone_is_not_asked_and_said_to_be_silent() -> None:
    bench = Bench("n1", "n2")
    bench.fleet.silences["http://n1"] = Silence(0.0, float("inf"))
    async with bench.polling():
        await until(lambda: bench.events)
        assert "n1" not in bench.fleet.looked
        bench.fleet.silences.clear()
        await until(lambda: len(bench.events) == 2)
    assert [(event.key, event.severity, event.node) for event in bench.events] == [
        ("bmc/silent", "warning", "n1"),
        ("bmc/silent", "ok", "n1"),
    ]


async def test_why_a_bmc_is_left_alone_is_told_where_that_is_known() -> None:
    bench = Bench("n1", "n2")
    bench.fleet.silences["http://n1"] = Silence(0.0, float("inf"), "its password cannot be opened")
    bench.fleet.silences["http://n2"] = Silence(0.0, float("inf"))
    async with bench.polling():
        await until(lambda: len(bench.events) == 2)
    assert {event.node: event.message for event in bench.events} == {
        "n1": "cannot be looked at: its password cannot be opened",
        "n2": "cannot be looked at: it does not answer",
    }


async def test_what_a_bmc_does_badly_does_not_keep_us_from_the_rest() -> None:
    bench = Bench("n1", "n2")
    bench.listener.error = DeviceError("500 from the event service")
    bench.bmc("n1").log_fails = DeviceError("its log is HTML")
    bench.bmc("n2").log_fails = NotOffered("no log")
    hot = Reading(name="CPU", kind="temperature", unit="Cel", value=99.0, health="critical")
    bench.bmc("n1").readings_ = bench.bmc("n2").readings_ = [hot]
    async with bench.polling():
        await until(lambda: len(bench.events) == 3)
        seen = len(bench.bmc("n1").looks)
        await until(lambda: len(bench.bmc("n1").looks) > seen + 2)
    told = {(event.node, event.key) for event in bench.events}
    assert told == {("n1", "sensor/cpu"), ("n2", "sensor/cpu"), ("n1", "bmc/answers-badly")}
    assert len(bench.bmc("n2").looks) == 1  # what it does not offer is not asked for again


async def test_a_bmc_that_does_nothing_well_is_told_and_so_is_one_that_we_fail_with() -> None:
    bench = Bench("n1", "n2")
    bench.bmc("n1").fails = DeviceError("the password was refused")
    bench.bmc("n2").fails = ZeroDivisionError("oops")
    async with bench.polling():
        await until(lambda: len(bench.events) == 2)
    fault = "cannot be looked at: internal error while talking to the BMC: ZeroDivisionError (oops)"
    assert {(event.node, event.key, event.message) for event in bench.events} == {
        ("n1", "bmc/answers-badly", "cannot be looked at: the password was refused"),
        ("n2", "bmc/answers-badly", fault),
    }


@pytest.mark.parametrize("wrong", ["its power", "its log", "a flaw"])
async def test_a_bmc_that_answers_badly_in_one_thing_has_an_alert_until_it_does_well(wrong: str) -> None:
    bench = Bench("n1", "n2")
    bmc = bench.bmc("n1")
    if wrong == "its power":
        bmc.power_fails = NotOffered("it answered 501")
    elif wrong == "its log":
        bmc.log_fails = UnicodeDecodeError("utf-8", b"\xae", 0, 1, "invalid start byte")
    else:
        bmc.flaw = "its text is not UTF-8"
    async with bench.polling():
        await until(lambda: bench.events)
        bmc.power_fails = bmc.log_fails = None
        bmc.flaw = ""
        await until(lambda: len(bench.events) == 2)
    assert [(event.key, event.severity, event.node) for event in bench.events] == [
        ("bmc/answers-badly", "warning", "n1"),
        ("bmc/answers-badly", "ok", "n1"),
    ]
    assert bench.events[0].message.startswith("the BMC answers badly: ")


async def test_one_that_answers_again_though_badly_is_not_silent_any_more() -> None:
    bench = Bench("n1")
    bench.fleet.silences["http://n1"] = Silence(0.0, float("inf"))
    async with bench.polling():
        await until(lambda: bench.events)
        bench.bmc("n1").fails = DeviceError("the reply is not JSON")
        bench.fleet.silences.clear()
        await until(lambda: len(bench.events) == 3)
    assert [(event.key, event.severity) for event in bench.events] == [
        ("bmc/silent", "warning"),
        ("bmc/silent", "ok"),
        ("bmc/answers-badly", "warning"),
    ]


async def test_one_that_becomes_ours_after_the_start_is_looked_at_soon() -> None:
    # Nobody leads anything at the start of a process: whose turn came before that was put off for a quarter of an hour.
    bench = Bench("n1", "n2")
    ours: set[str] = set()
    async with bench.polling(mine=ours.__contains__, slow=1000.0, fast=1000.0, others=0.01) as poller:
        await until(lambda: poller._due and not bench.fleet.looked)
        ours.update(("n1", "n2"))
        await until(lambda: set(bench.fleet.looked) == {"n1", "n2"})


async def test_only_those_that_are_ours_are_looked_at_and_those_that_go_are_left() -> None:
    bench = Bench("n1", "n2")
    async with bench.polling(mine=lambda name: name == "n2") as poller:
        await until(lambda: len(bench.fleet.looked) > 3)
        await poller.know({"http://n2": bench.sites["http://n2"]})
        await until(lambda: bench.listener.left)
    assert set(bench.fleet.looked) == {"n2"}
    assert bench.listener.left == ["http://n1"]


@pytest.mark.slow
async def test_looks_are_bounded_per_second_over_all() -> None:
    bench = Bench(*(f"n{i}" for i in range(300)))
    begun = time.monotonic()
    async with bench.polling(per_second=100.0, fast=0.001, slow=0.001):
        await until(lambda: len(bench.fleet.looked) > 100)
        assert len(bench.fleet.looked) <= 15 + 100 * (time.monotonic() - begun)


async def test_a_bmc_that_goes_while_it_is_subscribed_to_is_left_when_that_is_done() -> None:
    bench = Bench("n1")
    bench.listener.goes_on.clear()
    async with bench.polling() as poller:
        await bench.listener.arranging.wait()
        await poller.know({})
        for _ in range(10):
            await asyncio.sleep(0)
        assert bench.listener.left == [], "what the look makes is not there yet"
        bench.listener.goes_on.set()
        await until(lambda: bench.listener.left == ["http://n1"])


async def test_a_look_waits_for_its_turn() -> None:
    bench, turns = Bench("n1", "n2", "n3", "n4"), asyncio.Semaphore(2)

    async def turn(cost: float) -> None:
        assert cost > 1, "it is several requests"
        await turns.acquire()

    async with bench.polling(turn=turn, fast=60.0, slow=60.0) as poller:
        await until(lambda: poller.looks == 2)
        turns.release()
        await until(lambda: poller.looks == 3)
        assert turns.locked()
