"""The nodes of a simulated fleet, as a controller that has none yet begins."""

from __future__ import annotations

from strata.control.service import Service
from strata.control.settings import Settings
from strata.virtual.fleet import simulated_fleet, simulated_groups, simulated_nodes


async def register_simulated(service: Service, settings: Settings) -> None:
    """Register the simulated nodes, unless the store has nodes already."""
    count = settings.simulated.nodes
    if not count or len(service.registry):
        return
    made = simulated_fleet if settings.simulated.feeds else simulated_nodes
    nodes = made(count, bmc_base=settings.simulated.address)
    await service.edits.create_nodes(nodes, "strata")
    await service.settled(await service.controller.store.revision())
    for group in simulated_groups(nodes):
        # Uids were given by the store; the group is made of names.
        wanted = {nodes[uid - nodes[0].uid].name for first, last in group.members for uid in range(first, last + 1)}
        members = service.registry.select(",".join(sorted(wanted)))
        await service.edits.put_group(group.name, members, "strata", description=group.description)
