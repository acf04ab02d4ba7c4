"""A simulated machine whose power is kept: controllers on sockets, the engine, CAPMC, the site's limit, policies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from strata.core.model import Layer
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.power.accounting.intervals import Intervals
from strata.power.capmc.caps import set_power_cap
from strata.power.capmc.request import Ask
from strata.power.capmc.service import CapmcService
from strata.power.capping.sender import CapSender
from strata.power.layer import SitePowerDriver
from strata.power.model import LAYER as POWER
from strata.power.policies.records import PolicyRecords, PolicySpec
from strata.power.policies.service import PolicyService
from strata.power.queue.service import PowerQueue
from strata.power.series.series import Series
from strata.power.settings import PowerSettings
from strata.power.site.running import RunningJobs
from strata.power.site.site import SitePower
from strata.power.telemetry.columns import PowerColumns
from strata.store.protocol import Store
from strata.virtual.redfish.power import MOST
from support.capmc_site import READY
from support.simulated_machine import SimulatedMachine, simulated_machine

NODES = 8
ASK_AGAIN = msgspec.structs.replace(
    POWER, guards=tuple(msgspec.structs.replace(guard, ask_again_after=0.1) for guard in POWER.guards)
)
"""The power layer, impatient."""


class Site:
    """A machine under a limit; ``peak`` is the most that its caps ever added up to, since it was last set to 0."""

    def __init__(self, machine: SimulatedMachine, directory: Path, settings: PowerSettings) -> None:
        self.machine = machine
        self.service = machine.service
        self.columns = PowerColumns()
        self.series = Series.in_file(directory / "telemetry.db")
        self.intervals = Intervals(directory / "intervals.db")
        self.book = PolicyRecords(self.service.controller.store, self.service.ledger)
        self.sender = CapSender(self.service, machine.bmcs.open, self.columns)
        running = RunningJobs(self.series, self.intervals)
        self.queue = PowerQueue(self.service)
        self.site = SitePower(self.service, self.columns, self.sender, running, self.queue, self.book, settings)
        self.policies = PolicyService(self.service, self.book, self.site)
        self.capmc = CapmcService(self.service, self.columns, self.sender, site=self.site)
        self.peak = 0.0
        self._watch()

    def _watch(self) -> None:
        nodes, set_cap = self.machine.nodes, self.machine.nodes.electricity.set_cap

        def watched(idx: np.ndarray, watts: float | None) -> None:  # type: ignore[type-arg]
            set_cap(idx, watts)
            self.peak = max(self.peak, self.total)

        nodes.electricity.set_cap = watched  # type: ignore[method-assign, assignment]

    @property
    def caps(self) -> list[float]:
        """In force, as the nodes know; without one, the most that a node draws."""
        return np.minimum(self.machine.nodes.electricity.caps, float(MOST)).tolist()  # type: ignore[no-any-return]

    @property
    def total(self) -> float:
        return float(sum(self.caps))

    def measure(self) -> None:
        """What telemetry would see."""
        registry = self.service.registry
        uids = registry.uids[registry.roles.where("compute") & registry.alive]
        names = [registry.names[i] for i in registry.indices_of(uids).tolist()]
        caps = self.machine.nodes.electricity.caps[[self.machine.nodes.index[name] for name in names]]
        now = time.time()
        self.columns.put(uids, cap=np.where(np.isfinite(caps), caps, 0.0), cap_time=now, least=100.0, most=float(MOST))

    async def until(self, what: str, holds: Callable[[], bool], limit: float = 120.0) -> None:
        try:
            async with asyncio.timeout(limit):
                while not holds():  # noqa: ASYNC110 (facts have no event)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"not within {limit:g} s: {what}; {self.site.view()}")

    async def run(self, name: str, text: str) -> None:
        """Put a policy, and enable it."""
        await self.policies.put(LOCAL_ADMIN, name, PolicySpec(text=text, without_simulation="a test"))
        await self.policies.enable(LOCAL_ADMIN, name)

    async def cap(self, watts: dict[str, float]) -> object:
        """What a scheduler asks for by name; its reply, decoded."""
        nids = [{"nid": int(name[1:]), "controls": [{"name": "node", "val": int(w)}]} for name, w in watts.items()]
        reply = await set_power_cap(
            self.capmc.of(LOCAL_ADMIN), Ask(applet="set_power_cap", body={"nids": nids}, shasta=False)
        )
        return msgspec.json.decode(reply.body)


@contextlib.asynccontextmanager
async def site_of(
    directory: Path,
    settings: PowerSettings,
    *,
    store: Store | None = None,
    ready: bool = True,
    layer: Layer = POWER,
) -> AsyncIterator[Site]:
    """Started, with all nodes on (unless not ``ready``) and measured."""
    async with (
        simulated_machine(directory, NODES, on=True, layers=[layer], store=store) as machine,
        contextlib.AsyncExitStack() as parts,
    ):
        if ready:  # before anybody has looked: it is some time until the next look
            machine.nodes.put(machine.nodes.all, now=machine.server.clock(), **READY)
        site = Site(machine, directory, settings)
        await site.series.start()
        parts.push_async_callback(site.series.close)
        await site.intervals.start()
        parts.push_async_callback(site.intervals.stop)
        await site.book.start()
        parts.push_async_callback(site.book.stop)
        if ready:
            await site.until("ready", lambda: bool(site.capmc.of(LOCAL_ADMIN).nodes().ready.all()))
        else:  # or they would count as on at first, and be capped
            off = site.service.registry.select(",".join(compute(site)))
            await site.until("seen off", lambda: bool(site.service.view.fact_mask("power", "off")[off].all()))
        site.measure()
        await site.site.start()
        parts.push_async_callback(site.site.stop)
        driver = SitePowerDriver(site.site)
        driver.ready = True
        site.service.drive(driver)
        yield site


def compute(site: Site) -> list[str]:
    """The nodes that run jobs."""
    return [node.name for node in site.service.registry.nodes if node is not None and node.nid is not None]


def settled(site: Site) -> bool:
    """Whether nothing is too high or under way."""
    view = site.site.view()
    return view.allowed is not None and view.over == 0 and view.in_flight == 0
