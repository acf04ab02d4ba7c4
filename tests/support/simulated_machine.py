"""A whole controller over simulated hardware on real sockets: outlets, chassis, nodes, agents, a workload manager."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from strata.core.driver import Driver
from strata.core.model import Layer, Model
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from strata.store.protocol import Store
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_fleet
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.plant import Plant
from support.rooms import OpenFleet


class SimulatedMachine:
    """All of it; ``on`` says how outlets and chassis begin."""

    def __init__(self, count: int, *, on: bool) -> None:
        self.nodes = SimNodes(count, timing=Timing(scale=0))
        self.plant = Plant(self.nodes, on=on)
        self.server = BmcServer(self.nodes, plant=self.plant)
        self.service: OpenFleet
        self.bmcs: Bmcs

    def log(self) -> list[tuple[str, str]]:
        """(mutation, name) of everything that was switched, in order."""
        rows = self.nodes.effects.rows
        told = [(self.nodes.effects.mutations[row["mutation"]], self.nodes.names[row["node"]]) for row in rows]
        for effect in reversed(self.plant.effects):
            told.insert(effect.after, (effect.mutation, effect.name))
        return [(what, name) for what, name in told if what in ("power-on", "power-off")]

    def on(self, name: str) -> bool:
        """Whether a node has power in truth."""
        index = self.nodes.index[name]
        return self.nodes.observe("power", self.nodes.all[index : index + 1], self.server.clock()).values() == ["on"]


@contextlib.asynccontextmanager
async def simulated_machine(
    directory: Path,
    count: int,
    *,
    on: bool,
    store: Store | None = None,
    login: Callable[[str], Credentials] | None = None,
    layers: Sequence[Layer] = (),
    drivers: Sequence[Driver] = (),
) -> AsyncIterator[SimulatedMachine]:
    """Started, with every outlet, chassis and node described. It is not slowed down by budgets or long waits.
    ``layers`` and ``drivers`` are more of both."""
    machine = SimulatedMachine(count, on=on)
    guards = tuple(msgspec.structs.replace(guard, ask_again_after=0.05) for guard in HARDWARE.guards)
    hardware = msgspec.structs.replace(HARDWARE, guards=guards, budgets=())
    async with contextlib.AsyncExitStack() as parts:
        await machine.server.start()
        parts.push_async_callback(machine.server.stop)
        account = Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password)
        machine.bmcs = Bmcs(RedfishClient(login or account, settings=RedfishSettings(timeout=10.0)))
        parts.push_async_callback(machine.bmcs.close)
        bmc = BmcDriver(machine.bmcs)
        parts.push_async_callback(bmc.close)
        agents = sim_drivers(machine.nodes, machine.server.clock)
        controller = Controller(
            store or MemoryStore(),
            Model.of(hardware, PROVISIONING, PLATFORM, *layers),
            {**agents, "bmc": bmc, **{driver.name: driver for driver in drivers}},
            name="test",
            history=directory / "history.db",
            leadership=LeadershipSettings(shards=2),
            engine=EngineSettings(first_poll=0.02, blind_look=0.05),
        )
        machine.service = OpenFleet(controller, Settings(state_dir=directory))
        await controller.start()
        parts.push_async_callback(controller.stop)
        parts.push_async_callback(machine.service.operations.close)
        await machine.service.edits.create_nodes(simulated_fleet(count, bmc_base=machine.server.address), "test")
        await machine.service.settled(await controller.store.revision())
        yield machine
