"""Events of simulated BMCs over real sockets: pushed, streamed, polled; alerts come of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from strata.core.errors import StrataError
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.events import CONTEXT, REPORTS, RedfishSubscriptions
from strata.hardware.events.hub import EventHub, EventSettings
from strata.hardware.events.listen import DESTINATION
from strata.hardware.events.poller import PollSettings
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.words import plain
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes

NAMES = ("n1", "n2", "n3")
QUICK = PollSettings(fast=0.02, slow=0.1, per_second=1000.0, silent_after=2)
SELDOM = PollSettings(fast=3600.0, slow=3600.0, per_second=1000.0)


class Front:
    """Where BMCs push to: what the API does, without the API."""

    def __init__(self) -> None:
        self.url = ""
        self.receive: Callable[[str, bytes], int] = lambda *_: 0
        self.statuses: list[int] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post(DESTINATION + "{token}", self._push)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _push(self, request: web.Request) -> web.Response:
        try:
            self.receive(request.match_info["token"], await request.read())
            self.statuses.append(204)
        except StrataError as error:
            self.statuses.append(error.status)
        return web.Response(status=self.statuses[-1])


class Bench:
    """A simulated fleet, and a hub that listens to it."""

    def __init__(self, server: BmcServer, front: Front, path: Path) -> None:
        self.server = server
        self.front = front
        self.path = path
        self.store = MemoryStore()
        self.looked: list[str] = []
        self.addresses = {server.url(name): name for name in NAMES}
        self.hub: EventHub

    @contextlib.asynccontextmanager
    async def listening(
        self, *, push: bool = False, streams: int = 0, poll: PollSettings = SELDOM
    ) -> AsyncIterator[EventHub]:
        client = RedfishClient(Credentials("root", "simulated"), settings=RedfishSettings(timeout=2.0, quick=1.0))
        controllers = Bmcs(client)
        settings = EventSettings(public_url=self.front.url if push else "", streams=streams, poll=poll)
        self.hub = EventHub(
            self.path,
            self.store,
            Ledger(self.store),
            Seal([b"k" * 32]),
            controllers,
            RedfishSubscriptions(client),
            owner="c1",
            addresses=lambda: self.addresses,
            looked=self.looked.extend,
            settings=settings,
        )
        self.front.receive = lambda token, body: self.hub.inbox.receive(token, body)
        await self.hub.start()
        try:
            yield self.hub
        finally:
            await self.hub.stop()
            await controllers.close()

    @property
    def looks(self) -> int:
        assert self.hub.poller is not None
        return self.hub.poller.looks

    def subscriptions(self, name: str) -> list[str]:
        return [s.destination for s in self.server.bmc(name).events.subscriptions.values() if s.context == CONTEXT]

    async def events(self, true: Callable[[Sequence[HardwareEvent]], Any]) -> list[HardwareEvent]:
        """All events so far, oldest first, once ``true`` of them."""
        found: list[HardwareEvent] = []
        async with asyncio.timeout(60):
            while not true(found):
                await asyncio.sleep(0.01)
                found = [event for _, event in await self.hub.log.page(None, "ok", None, None, 1000)][::-1]
        return found


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    server = BmcServer(SimNodes(3, names=list(NAMES), timing=Timing(scale=0)))
    await server.start()
    front = Front()
    await front.start()
    yield Bench(server, front, tmp_path / "events.db")
    await server.stop()
    await front.stop()


def about(node: str) -> Callable[[Sequence[HardwareEvent]], list[HardwareEvent]]:
    return lambda events: [event for event in events if event.node == node]


@pytest.mark.slow
async def test_bmcs_push_what_happens_and_it_becomes_an_alert(bench: Bench) -> None:
    async with bench.listening(push=True) as hub:
        await until(lambda: all(bench.subscriptions(name) for name in NAMES))
        bench.server.bmc("n2").log("critical", "DIMM3 has failed", "OEM.1.0.MemoryFailure")
        [event, *_] = await bench.events(about("n2"))
        assert (event.source, event.severity, event.message) == ("push", "critical", "DIMM3 has failed")
        await until(lambda: hub.alerts.alerts)
        [alert] = hub.alerts.alerts.values()
        assert (alert.node, alert.key) == ("n2", "log/OEM.Memory")
        bench.server.bmc("n2").log("ok", "DIMM3 was replaced", "OEM.1.0.MemoryRestored")
        await until(lambda: [alert.over for alert in hub.alerts.alerts.values()] == [True])
    assert set(bench.front.statuses) == {204}


@pytest.mark.slow
async def test_bmcs_push_metric_reports_where_they_can(bench: Bench) -> None:
    told: dict[str, list[Any]] = {}
    async with bench.listening(push=True) as hub:
        hub.reported = lambda site, report: told.setdefault(site.nodes[0][1], []).append(report)
        await until(lambda: set(told) == set(NAMES))
        [value, *_] = told["n2"][0]["MetricValues"]
        assert value["MetricProperty"].endswith("/Sensors/TotalPower#/Reading")
        assert float(value["MetricValue"]) == pytest.approx(bench.server.bmc("n2").watts(bench.server.clock()), abs=1)
        held = bench.server.bmc("n2").events.subscriptions.values()
        assert sorted(one.context for one in held) == [CONTEXT, REPORTS]
        bench.server.bmc("n2").log("critical", "DIMM3 has failed", "OEM.1.0.MemoryFailure")
        found = await bench.events(about("n2"))
        assert [event.message for event in found] == ["DIMM3 has failed"], "a report is not an event, nor twice one"
    assert set(bench.front.statuses) == {204}


@pytest.mark.slow
async def test_a_subscription_is_made_once_and_again_when_the_bmc_forgot_it(bench: Bench) -> None:
    async with bench.listening(push=True, poll=QUICK):
        await until(lambda: all(bench.subscriptions(name) for name in NAMES))
        seen = bench.looks
        await until(lambda: bench.looks > seen + 12)
        assert [len(bench.subscriptions(name)) for name in NAMES] == [1, 1, 1]
        bench.server.bmc("n1").events.forget()
        await until(lambda: len(bench.subscriptions("n1")) == 1)
    first = bench.subscriptions("n1")
    bench.front.url += "/moved"  # our public address changes
    async with bench.listening(push=True, poll=QUICK):
        await until(lambda: bench.subscriptions("n1") not in ([], first))
        assert len(bench.subscriptions("n1")) == 1
        bench.addresses = {address: name for address, name in bench.addresses.items() if name != "n1"}
        await bench.hub.refresh()  # the node is gone: its BMC is told to stop
        await until(lambda: bench.subscriptions("n1") == [])


@pytest.mark.slow
async def test_without_a_way_in_bmcs_are_listened_to(bench: Bench) -> None:
    async with bench.listening(streams=10):
        await until(lambda: all(bench.server.bmc(name).events.streams for name in NAMES) and bench.looks == 3)
        bench.server.bmc("n3").set_reading("CPU1Temp", 99.0)
        [event, *_] = await bench.events(about("n3"))
        assert (event.source, event.severity, event.key) == ("sse", "critical", "sensor/cpu1temp")
        assert bench.subscriptions("n3") == []


@pytest.mark.slow
async def test_a_bmc_that_only_answers_is_polled(bench: Bench) -> None:
    bench.server.bmc("n1").log("critical", "an old story", "OEM.1.0.Past")
    async with bench.listening(poll=QUICK) as hub:
        await until(lambda: hub.log.mark(f"log/{bench.server.url('n1')}"))
        bench.server.bmc("n1").log("warning", "fan 2 is slow", "OEM.1.0.FanSlow")
        bench.server.bmc("n1").set_reading("CPU1Temp", 99.0)
        found = await bench.events(lambda events: len(events) >= 2)
        assert {(event.source, event.severity) for event in found} == {("log", "warning"), ("poll", "critical")}
        await until(lambda: len(hub.alerts.alerts) == 2)
    # While nobody looks the sensor gets well; whoever looks next knows that it was not.
    bench.server.bmc("n1").set_reading("CPU1Temp", 40.0)
    async with bench.listening(poll=QUICK) as hub:
        await until(lambda: {a.key for a in hub.alerts.alerts.values() if a.over} == {"sensor/cpu1temp"})
        found = await bench.events(lambda events: len(events) >= 3)
        assert [event.message for event in found if event.source == "log"] == ["fan 2 is slow"]


@pytest.mark.slow
async def test_what_was_pushed_is_not_told_again_from_the_log(bench: Bench) -> None:
    async with bench.listening(push=True, poll=QUICK) as hub:
        await until(lambda: all(bench.subscriptions(name) for name in NAMES))
        await until(lambda: hub.log.mark(f"log/{bench.server.url('n2')}"))
        bench.server.bmc("n2").log("warning", "fan 2 is slow", "OEM.1.0.FanSlow")
        await bench.events(about("n2"))
        seen = bench.looks
        await until(lambda: bench.looks > seen + 12)
        assert [event.source for event in await bench.events(about("n2"))] == ["push"]


@pytest.mark.slow
async def test_a_change_of_power_makes_somebody_look_at_once(bench: Bench) -> None:
    async with bench.listening(push=True):
        await until(lambda: all(bench.subscriptions(name) for name in NAMES))
        controller = bench.hub._bmcs.open(bench.server.url("n2"))
        await controller.set_power("on" if await controller.power() == "off" else "off")
        bench.server.beat()
        await until(lambda: bench.looked)
        assert set(bench.looked) == {"n2"}


@pytest.mark.slow
async def test_a_silent_bmc_is_said_to_be_and_the_others_are_looked_at_meanwhile(bench: Bench) -> None:
    bench.server.prank("n1").always.add(Trick.SILENT)
    async with bench.listening(poll=QUICK) as hub:
        bench.server.bmc("n2").set_reading("CPU1Temp", 99.0)
        await until(lambda: any(alert.node == "n2" for alert in hub.alerts.alerts.values()))
        await until(lambda: any(alert.key == "bmc/silent" for alert in hub.alerts.alerts.values()))
        assert [a.node for a in hub.alerts.alerts.values() if a.key == "bmc/silent"] == ["n1"]


@pytest.mark.slow
@pytest.mark.parametrize("trick", Trick, ids=lambda trick: trick.value)
async def test_whatever_one_bmc_does_the_others_are_heard_and_nothing_breaks(
    bench: Bench, trick: Trick, caplog: pytest.LogCaptureFixture
) -> None:
    bench.server.prank("n1").always.add(trick)
    async with bench.listening(push=True, poll=QUICK) as hub:
        await until(lambda: hub.log.mark(f"log/{bench.server.url('n2')}"))
        for name in ("n1", "n2"):
            bench.server.bmc(name).log("warning", "fan 2 is slow", "OEM.1.0.FanSlow")
        await until(lambda: any(alert.node == "n2" for alert in hub.alerts.alerts.values()))
        seen = bench.looks
        await until(lambda: bench.looks > seen + 6)
        found = await bench.events(about("n2"))
        for event in found:
            assert plain(event.message) == event.message
            assert all(plain(text, 400) == text for text in (event.key, event.message_id, *event.fields.values()))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
