"""What ``why`` says of a node whose open alerts know the reason: bounded, and only to who may know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.model import Model
from strata.core.node import Node
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.controller.controller import Controller
from strata.hardware.alerts.alerts import Alerts
from strata.hardware.alerts.service import LONGEST, open_alerts
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.records import HardwareEvent
from strata.hardware.model import LAYER as HARDWARE
from strata.store.memory import MemoryStore
from support.rooms import OpenFleet

NAMES = ("n1", "n2", "n3")
BMC = "https://10.0.0.7"
SCOPED = Principal(name="eve", role="operator", scope=("mine",))
WORKLOAD = Principal(name="slurm", role="workload-manager")


class Site:
    """Nodes that nobody can look at: n1 and n2 share a controller."""

    def __init__(self, service: OpenFleet, alerts: Alerts) -> None:
        self.service = service
        self.alerts = alerts

    async def happens(self, *events: HardwareEvent) -> None:
        self.alerts.take(events)
        await self.alerts.settled()

    async def lines(self, name: str = "n1", who: Principal = LOCAL_ADMIN) -> Sequence[str]:
        why = await self.service.why(who, name)
        return [line for line in why.lines if "alert" in line]


def event(message: str, *, node: str = "n1", severity: Severity = "warning", key: str = "bmc/silent") -> HardwareEvent:
    return HardwareEvent(
        time=1.7e9, severity=severity, message=message, source="poll", key=key, node=node, bmc="" if node else BMC
    )


@asynccontextmanager
async def a_site(directory: Path) -> AsyncIterator[Site]:
    store = MemoryStore()
    controller = Controller(store, Model.of(HARDWARE), {}, name="c1")
    service = OpenFleet(controller, Settings(state_dir=directory))
    alerts = Alerts(store, service.ledger, owner="c1")
    service.reasons.append(open_alerts(alerts))
    await controller.start()
    await alerts.start()
    nodes = [Node(name=name, uid=0, bmc=f"{BMC}/redfish/v1/Systems/{name}") for name in NAMES]
    await service.edits.create_nodes(nodes, "test")
    await service.settled(await store.revision())
    everyone = service.registry.select("*")
    await service.edits.put_group("mine", everyone, "test", description="")
    await service.edits.set_desires(everyone[:2], {"power": "on"}, (), "test")
    await service.considered(await store.revision())
    yield Site(service, alerts)
    await alerts.stop()
    await controller.stop()
    await store.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path) as made:
        yield made


async def test_why_names_the_reason_that_an_open_alert_knows(site: Site) -> None:
    assert not await site.lines()
    await site.happens(event("cannot be looked at: its certificate has changed"), event("fan 3", node="n2"))
    assert await site.lines() == ["open alert (warning): cannot be looked at: its certificate has changed"]
    await site.happens(event("it answers again", severity="ok"))
    assert not await site.lines()


async def test_an_alert_of_the_controller_that_several_nodes_share_is_told_of_each(site: Site) -> None:
    await site.happens(event("cannot be looked at: it does not answer", node=""))
    assert len(await site.lines("n1")) == len(await site.lines("n2")) == 1


async def test_only_who_may_see_alerts_is_told_of_them(site: Site) -> None:
    await site.happens(event("fan 3 stands still"), event("cannot be looked at: it does not answer", node=""))
    assert await site.lines(who=SCOPED) == ["open alert (warning): fan 3 stands still"]
    assert await site.lines(who=WORKLOAD) == []


async def test_a_node_of_which_nothing_is_wanted_needs_no_reason(site: Site) -> None:
    await site.happens(event("fan 3 stands still", node="n3"))
    assert await site.lines("n3") == []


async def test_of_many_alerts_the_worst_are_told_and_none_at_length(site: Site) -> None:
    many = [event(f"trouble {number}", key=f"log/{number}") for number in range(7)]
    await site.happens(*many, event("x\x1b[2J" * 400, severity="critical", key="log/worst"))
    first, *others, last = await site.lines()
    assert first.startswith("open alert (critical): x") and len(first) < LONGEST + 40
    assert "\x1b" not in first
    assert len(others) == 2
    assert last == "and 5 more open alerts: strata alert list"


async def test_who_looks_after_an_alert_is_told(site: Site) -> None:
    await site.happens(event("fan 3 stands still"))
    [ident] = site.alerts.alerts
    await site.alerts.acknowledge("alice", [ident], "")
    assert await site.lines() == ["open alert (warning, alice looks after it): fan 3 stands still"]
