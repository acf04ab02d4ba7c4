"""What befalls nodes becomes alerts that say so, and that end when it is over. A whole controller, simulated nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strata.core.model import Model
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.hardware.alerts import node_troubles
from strata.hardware.alerts.node_troubles import FAULTED, HUNG, POWER_LOST, NodeTroubles
from strata.hardware.alerts.records import Alert
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.bmc.service import BmcService
from strata.hardware.events.hub import EventHub
from strata.hardware.events.records import HardwareEvent
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.no_workload import NoWorkload
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Faults, Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet

pytestmark = pytest.mark.slow

UP = {"power": "on", "os": "up"}


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Site:
    """A fleet whose nodes do what the test says."""

    def __init__(self, sim: SimNodes, fleet: OpenFleet, hub: EventHub, troubles: NodeTroubles) -> None:
        self.sim = sim
        self.fleet = fleet
        self.hub = hub
        self.troubles = troubles
        self.names = list(fleet.registry.names)

    async def want(self, **wanted: str) -> None:
        await self.fleet.edits.set_desires(self.fleet.registry.select("*"), wanted, (), "test")

    def put(self, node: int, **values: str) -> None:
        """The node is like this now, by no doing of ours."""
        nodes = np.array([node], dtype=np.int64)
        self.sim.put(nodes, now=time.monotonic(), **values)
        self.fleet.controller.look_at(nodes)

    def state(self, node: int = 0) -> str:
        return self.fleet.view.state(node)

    def alerts(self, key: str) -> list[Alert]:
        return self.hub.alerts.open_of(key)


@asynccontextmanager
async def a_site(tmp_path: Path, *, nodes: int = 2, store: MemoryStore | None = None) -> AsyncIterator[Site]:
    sim = SimNodes(nodes, timing=Timing(scale=0))
    store = store or MemoryStore()
    engine = EngineSettings(first_poll=0.05, longest_poll=0.5, backoff=0.05, blind_look=0.1)  # type: ignore[arg-type]
    drivers = {**sim_drivers(sim, time.monotonic), "workload": NoWorkload()}
    controller = Controller(
        store,
        Model.of(HARDWARE, PROVISIONING),
        drivers,
        name="c1",
        engine=engine,
        leadership=LeadershipSettings(shards=2),
    )
    fleet = OpenFleet(controller, Settings(state_dir=tmp_path))
    client = RedfishClient(Credentials("root", "simulated"))
    bmcs = Bmcs(client)
    hub = EventHub(
        tmp_path / "events.db",
        store,
        fleet.ledger,
        Seal([b"k" * 32]),
        bmcs,
        RedfishSubscriptions(client),
        owner="c1",
        addresses=dict,
    )
    await controller.start()
    await fleet.edits.create_nodes(simulated_nodes(nodes), "test")
    await fleet.settled(await store.revision())
    await hub.start()
    troubles = NodeTroubles(fleet, hub)
    await troubles.start()
    try:
        yield Site(sim, fleet, hub, troubles)
    finally:
        await troubles.stop()
        await hub.stop()
        await controller.stop()
        await bmcs.close()


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(node_troubles, "EVERY", 0.05)
    async with a_site(tmp_path) as here:
        yield here


async def test_a_node_that_loses_its_power_is_an_alert_until_it_has_power_again(site: Site) -> None:
    await site.want(**UP)
    await until(lambda: site.state() == "ready")
    site.fleet.registry.brakes.frozen[:] = True  # nobody switches it on again at once
    site.fleet.controller.engine.progress.frozen[:] = True
    site.put(0, power="off")
    await until(lambda: site.alerts(POWER_LOST))
    [alert] = site.alerts(POWER_LOST)
    assert (alert.node, alert.severity) == (site.names[0], "critical")
    assert "its power went off, and nobody here asked for that (bmc says so)" in alert.message
    site.put(0, power="on")
    await until(lambda: not site.alerts(POWER_LOST))


async def test_power_that_was_switched_off_on_purpose_is_not_lost(site: Site) -> None:
    await site.want(**UP)
    await until(lambda: site.state() == "ready")
    await site.fleet.edits.set_desires(site.fleet.registry.select("*"), {"power": "off"}, ("os",), "test")
    await until(lambda: site.state() == "off")
    await site.hub.alerts.settled()
    assert not site.hub.alerts.alerts


async def test_power_that_a_person_switches_by_hand_is_not_lost(site: Site) -> None:
    await site.want(**UP)
    await until(lambda: site.state() == "ready")
    for told in site.fleet.controller.switched:
        told(np.array([0], dtype=np.int64))
    site.put(0, power="off")
    site.put(1, power="off")
    await until(lambda: site.alerts(POWER_LOST))
    assert [alert.node for alert in site.alerts(POWER_LOST)] == [site.names[1]]


async def test_the_power_of_a_node_of_which_nobody_wants_anything_is_nobodys_concern(site: Site) -> None:
    site.put(0, power="on")
    await until(lambda: site.fleet.view.node(0).facts["power"].value == "on")
    site.put(0, power="off")
    await until(lambda: site.fleet.view.node(0).facts["power"].value == "off")
    await site.hub.alerts.settled()
    assert not site.alerts(POWER_LOST)


async def test_a_node_that_is_power_cycled_because_it_hung_is_an_alert_until_it_is_up(site: Site) -> None:
    await site.want(**UP)
    await until(lambda: site.state() == "ready")
    seen: list[str] = []
    take = site.hub.take
    site.hub.take = lambda events: (seen.extend(e.key for e in events), take(events))[1]  # type: ignore[method-assign,func-returns-value]
    site.put(0, os="hung")
    await until(lambda: HUNG in seen)
    await until(lambda: site.state() == "ready" and not site.alerts(HUNG))
    [alert] = [alert for alert in site.hub.alerts.alerts.values() if alert.key == HUNG]
    assert alert.over and "power-cycled because it hung" in alert.message
    assert not site.alerts(POWER_LOST), "it was us"


async def test_a_faulted_node_is_an_alert_with_the_reason_and_ends_when_it_is_overcome(site: Site) -> None:
    site.sim.set_faults(Faults(refused=1.0), now=time.monotonic())
    await site.want(power="on")
    await until(lambda: len(site.alerts(FAULTED)) == 2)
    assert site.state() == "faulted"
    assert {alert.severity for alert in site.alerts(FAULTED)} == {"critical"}
    assert all("power-on" in alert.message and "refused" in alert.message for alert in site.alerts(FAULTED))
    site.put(0, power="on")
    site.put(1, power="on")
    await until(lambda: not site.alerts(FAULTED))


async def test_what_was_over_before_the_controller_came_back_ends_then(tmp_path: Path, monkeypatch: Any) -> None:
    store = MemoryStore()
    async with a_site(tmp_path, store=store) as site:
        name = site.names[0]
        site.hub.take(
            [HardwareEvent(time=1.0, severity="critical", message="x", source="strata", key=FAULTED, node=name)]
        )
        await site.hub.alerts.settled()
    monkeypatch.setattr(node_troubles, "EVERY", 0.05)
    async with a_site(tmp_path, store=store) as site:
        await until(lambda: not site.alerts(FAULTED))


async def test_the_panic_of_a_kernel_is_over_when_another_has_started(site: Site) -> None:
    await site.want(**UP)
    await until(lambda: site.state() == "ready")
    panic = HardwareEvent(
        time=time.time(),
        severity="critical",
        message="Kernel panic - not syncing",
        source="console",
        key="console/panic",
        node=site.names[0],
    )
    site.hub.take([panic])
    await until(lambda: site.alerts("console/panic"))
    site.put(0, os="down")
    await until(lambda: not site.alerts("console/panic"))


async def test_the_alerts_of_a_deleted_node_are_over(site: Site) -> None:
    name = site.names[0]
    for key in ("sensor/fan1", "node/whatever"):
        site.hub.take([HardwareEvent(time=1.0, severity="critical", message="x", source="poll", key=key, node=name)])
    await until(lambda: len(site.hub.alerts.open_on(name)) == 2)
    await site.fleet.edits.delete_node(name, "test")
    await until(lambda: not site.hub.alerts.open_on(name))


async def test_a_power_cut_of_a_whole_machine_is_told_of_in_slices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    names = [f"x{number}" for number in range(3 * node_troubles.SLICE + 1)]
    monkeypatch.setattr(site.hub, "take", lambda events: taken.append(len(events)))
    site.troubles._tell(names, POWER_LOST, "critical", "it went off")
    assert taken == [node_troubles.SLICE], "others have their turn in between"
    await until(lambda: sum(taken) == len(names))
    assert max(taken) == node_troubles.SLICE


async def test_who_switches_by_hand_says_so_before_it_is_done(site: Site) -> None:
    told: list[int] = []
    site.fleet.controller.switched.append(lambda nodes: told.extend(nodes.tolist()))
    service = BmcService(site.fleet, lambda address: None, Seal([b"k" * 32]))  # type: ignore[arg-type,return-value]
    await service.power(LOCAL_ADMIN, site.names[0], "cycle", force=True)
    assert told == [0]
