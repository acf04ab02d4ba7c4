"""Requests about the accelerators of nodes: what their agents told, by model."""

from __future__ import annotations

import asyncio
from collections import Counter

from strata.core.nodeset import fold
from strata.core.texts import ListOf
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.jobs.accelerators.records import AcceleratorClass
from strata.provisioning.agents.service import AgentService


class AcceleratorService:
    """Answers from what agents told; asks no node."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def all(self, who: Principal) -> ListOf[AcceleratorClass]:
        """Accelerators of the nodes that the caller may see, as their agents told, by model: which nodes have how many,
        and whether the driver runs."""
        seen = {self._fleet.registry.node_at(index).name for index in self._fleet.seen(who, "").tolist()}
        agents = self._fleet.services.find(AgentService)
        told = await agents.hardware() if agents is not None else {}

        def grouped() -> tuple[AcceleratorClass, ...]:
            alike: dict[tuple[str, str, int, bool, int], list[str]] = {}
            for name, has in told.items():
                if name not in seen:
                    continue
                cards = Counter(
                    (card.make or card.vendor, card.name, card.memory_bytes, bool(card.devices))
                    for card in has.accelerators
                )
                for model, each in cards.items():
                    alike.setdefault((*model, each), []).append(name)
            return tuple(
                AcceleratorClass(
                    make=make,
                    name=name,
                    memory_bytes=memory,
                    each=each,
                    running=running,
                    nodes=fold(sorted(names)),
                    count=len(names),
                )
                for (make, name, memory, running, each), names in sorted(alike.items())
            )

        return ListOf(items=await asyncio.to_thread(grouped))
