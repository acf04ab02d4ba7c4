"""A simulated fleet in place of a real one: drivers, power, nodes. The simulator is a process of its own."""

from __future__ import annotations

from functools import partial

from strata.daemon.settings import SimulatedSettings
from strata.fleet.fleet import Fleet
from strata.hardware.bmc.redfish.client import Credentials
from strata.hardware.layer import Reach
from strata.platform.no_workload import Played
from strata.power.limits.inband import VirtualNodes
from strata.power.telemetry.collector import BulkSource
from strata.virtual.bmc.server import SIMULATED_ACCOUNT
from strata.virtual.fleet.agents import AgentDriver
from strata.virtual.fleet.names import simulated_fleet, simulated_groups, simulated_nodes
from strata.virtual.fleet.power import FleetPower


async def open_simulated(fleet: Fleet) -> None:
    """In place of the provisioning layer: the simulator answers for agents, their checks and the workload manager."""
    address = fleet.section(SimulatedSettings).address
    account = Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password)
    fleet.of(Reach).give(f"{address.rstrip('/')}/", account)
    for name in ("node", "workload", "health"):
        driver = AgentDriver(name, address, SIMULATED_ACCOUNT)
        fleet.parts.push_async_callback(driver.close)
        fleet.drive(driver)
    fleet.put(
        Played(
            "the nodes are simulated and run no jobs, and the simulator plays their workload manager",
            "virtual machines have a Slurm that runs jobs, as root: strata up --virtual",
        )
    )
    power = FleetPower(address, SIMULATED_ACCOUNT)
    fleet.put(BulkSource(power.read, power.close, prefix=address))
    fleet.put(VirtualNodes(fleet.settings.state_dir / "inband"))
    fleet.begin(partial(_register, fleet))


async def _register(fleet: Fleet) -> None:
    """Register the simulated nodes, unless the store has nodes already."""
    simulated = fleet.section(SimulatedSettings)
    if not simulated.nodes or len(fleet.registry):
        return
    made = simulated_fleet if simulated.feeds else simulated_nodes
    nodes = made(simulated.nodes, bmc_base=simulated.address)
    await fleet.edits.create_nodes(nodes, "strata")
    await fleet.settled(await fleet.store.revision())
    for group in simulated_groups(nodes):
        # Uids were given by the store; the group is made of names.
        wanted = {nodes[uid - nodes[0].uid].name for first, last in group.members for uid in range(first, last + 1)}
        members = fleet.registry.select(",".join(sorted(wanted)))
        await fleet.edits.put_group(group.name, members, "strata", description=group.description)
