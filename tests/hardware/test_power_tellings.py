"""What BMCs say of power by themselves is a fact, without a look; where it is not clear or not new, one looks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.hardware.events.hub import FRESH
from strata.virtual.fleet.names import simulated_nodes
from support.told_power import ToldPower, told_power

pytestmark = pytest.mark.slow

NAMES = [node.name for node in simulated_nodes(2)]


class Site:
    """A controller over simulated BMCs, which counts how often nodes are looked at."""

    def __init__(self, told: ToldPower) -> None:
        self.server, self.fleet, self.hub, self.driver = told
        self.bmcs = self.driver._bmcs
        self.looks: list[str] = []
        self._observe = self.driver.observe
        self.driver.observe = self._counted  # type: ignore[method-assign]

    async def _counted(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        self.looks += batch.names
        return await self._observe(variables, batch)

    def fact(self, name: str) -> tuple[str, str]:
        found = self.fleet.view.node(self.fleet.registry.index_of(name)).facts["power"]
        return found.value, found.source

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await self.fleet.controller.stepped()

    async def ready(self) -> None:
        """Everything was looked at, and nobody is looked at any more for a while."""
        await self.until(lambda: all(self.fact(name) == ("off", "bmc") for name in NAMES))
        while True:
            seen = len(self.looks)
            await asyncio.sleep(0.5)
            if len(self.looks) == seen:
                break
        self.looks.clear()

    def push(self, name: str, message: str, *, ago: float = 0.0, args: Sequence[str] = ()) -> None:
        """The BMC pushes an event of its system."""
        root = self.server.url(name)
        record = {
            "MessageId": message,
            "Message": f"{message} {ago}",
            "MessageArgs": list(args),
            "EventTimestamp": datetime.fromtimestamp(time.time() - ago, UTC).isoformat(timespec="milliseconds"),
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        }
        self.hub.inbox.receive(self.hub.inbox.token(root), json.dumps({"Events": [record]}).encode())


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with told_power(tmp_path, len(NAMES), mine=lambda _: True) as found:
        yield Site(found)


async def test_an_event_of_power_is_a_fact_with_its_source_and_time_and_nobody_looks(site: Site) -> None:
    await site.ready()
    begun = time.time()
    site.push(NAMES[0], "ResourceEvent.1.3.ResourcePoweredOn", ago=0.2)
    await site.until(lambda: site.fact(NAMES[0])[0] == "on")
    assert site.fact(NAMES[0]) == ("on", "bmc event")
    seen = site.fleet.view.node(site.fleet.registry.index_of(NAMES[0])).facts["power"].seen
    assert seen is not None and seen < begun, "as old as the BMC says that it is"
    assert site.looks == []


async def test_a_real_bmc_that_is_listened_to_tells_it_itself(site: Site) -> None:
    await site.ready()
    async with asyncio.timeout(60):
        while not all(site.server.bmc(name).events.streams for name in NAMES):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    site.looks.clear()
    await site.bmcs.open(site.server.url(NAMES[1])).set_power("on")
    await site.until(lambda: site.fact(NAMES[1]) == ("on", "bmc event"))
    assert site.looks == []


async def test_power_that_is_told_to_be_gone_is_told_to_who_speaks_to_agents(site: Site) -> None:
    dark: list[str] = []
    await site.ready()
    site.driver.dark.append(dark.extend)
    site.push(NAMES[0], "ResourceEvent.1.3.ResourcePoweredOn", ago=0.2)
    await site.until(lambda: site.fact(NAMES[0])[0] == "on")
    site.push(NAMES[0], "ResourceEvent.1.3.ResourcePoweredOff")
    await site.until(lambda: site.fact(NAMES[0]) == ("off", "bmc event"))
    assert dark == [NAMES[0]]


@pytest.mark.parametrize(
    ("message", "ago"),
    [("ResourceEvent.1.3.ResourcePoweredOn", FRESH + 5.0), ("ResourceEvent.1.3.ResourcePoweringOn", 0.0)],
    ids=["old", "not there yet"],
)
async def test_what_is_not_clear_or_not_new_has_the_node_looked_at(site: Site, message: str, ago: float) -> None:
    await site.ready()
    site.push(NAMES[0], message, ago=ago)
    await site.until(lambda: site.looks)
    assert set(site.looks) == {NAMES[0]}
    assert site.fact(NAMES[0]) == ("off", "bmc"), "the BMC, asked, says otherwise"
