"""Requests for BASIL's inventory: the registry's nodes with what the inventory knows of their hardware."""

from __future__ import annotations

from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.platform.basil.records import BasilInventory, BasilNodes, State
from strata.platform.slurm.service import SlurmService
from strata.schedulers.slurm.conf import Hardware

_STATES: dict[str, State] = {"ready": "UP", "held": "UNAVAILABLE", "frozen": "UNAVAILABLE", "unknown": "UNKNOWN"}
_NOTHING = Hardware(sockets=0, cores=0, threads=0, memory=0)


class BasilService:
    """Answers from what is known; asks no node."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def inventory(self, who: Principal) -> BasilInventory:
        """The machine as ALPS BASIL's inventory query tells of it, nodes with a NID that are alike together. The
        command ``apbasil`` makes XML of it."""
        registry, view = self._fleet.registry, self._fleet.view
        nodes = [
            (node, _STATES.get(view.state(index), "DOWN"))
            for index in self._fleet.seen(who, "").tolist()
            if (node := registry.node_at(index)).nid is not None
        ]
        found = await self._fleet.of(SlurmService).hardware([node.name for node, _ in nodes])
        alike: dict[tuple[str, State, str, Hardware], list[tuple[int, str]]] = {}
        for node, state in nodes:
            role = "BATCH" if node.role == "compute" else "INTERACTIVE"
            key = role, state, node.architecture, found.get(node.name, _NOTHING)
            alike.setdefault(key, []).append((node.nid or 0, node.location or node.name))
        items = []
        for (role, state, architecture, has), members in alike.items():
            nids, names = zip(*sorted(members), strict=True)
            items.append(
                BasilNodes.of(
                    has,
                    role=role,
                    state=state,
                    architecture=architecture,
                    accelerators=tuple(one.type or "GPU" for one in has.gpus for _ in range(one.count)),
                    nids=nids,
                    names=names,
                )
            )
        return BasilInventory(time=self._fleet.controller.clock.wall(), items=tuple(items))
