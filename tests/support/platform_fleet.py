"""A fleet in memory with the platform's rooms for documents open: configuration, and those that keep parts of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from strata.core.node import Node
from strata.daemon.settings import Settings
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.platform.config.service import ConfigService
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet


@asynccontextmanager
async def platform_fleet(
    directory: Path,
    nodes: Sequence[Node],
    *rooms: Callable[[OpenFleet], Any],
    put: Sequence[Any] = (),
    fakes: Mapping[type[Any], Any] | None = None,
    sim: SimNodes | None = None,
) -> AsyncIterator[OpenFleet]:
    """``rooms``: what makes services, each put and started. ``put``: what they find there; ``fakes``: the same, by the
    type that each stands in for. ``sim``: nodes that have the names of ``nodes``; without, whatever is done to them
    fails."""
    settings = Settings(state_dir=directory / "state", controller_id="c1")
    settings.state_dir.mkdir()
    store = MemoryStore()
    sim = sim or SimNodes(len(nodes), timing=Timing(scale=0))
    controller = Controller(
        store,
        BUILT_IN,
        {**sim_drivers(sim, time.monotonic)},
        name="c1",
        history=settings.history_file,
        leadership=LeadershipSettings(shards=1),
    )
    fleet = OpenFleet(controller, settings)
    fleet.parts.push_async_callback(store.close)
    for one in put:
        fleet.put(one)
    for kind, fake in (fakes or {}).items():
        fleet.put(fake, kind)
    try:
        for room in (ConfigService, *rooms):
            await fleet.keep(fleet.put(room(fleet)))
        await fleet.start()
        await until(lambda: bool(controller.leadership.epochs))
        await fleet.edits.create_nodes(nodes, "test")
        await fleet.settled(await store.revision())
        yield fleet
    finally:
        await fleet.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes."""
    async with asyncio.timeout(120):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)
