"""What Ansible may know of the fleet."""

from __future__ import annotations

import asyncio

import msgspec

from strata.core.state import STATES
from strata.engine.explain import states
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.platform.ansible.inventory import inventory

_encode = msgspec.json.Encoder().encode


class AnsibleService:
    """The fleet as an inventory."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def inventory(self, who: Principal, select: str) -> bytes:
        """What ``--list`` prints, as JSON, of the selected nodes that the caller may see."""
        registry = self._fleet.registry
        indices = self._fleet.view.order(self._fleet.seen(who, select), "name")
        nodes = [registry.node_at(index) for index in indices.tolist()]
        words = [STATES[number] for number in states(self._fleet.controller.engine, indices).tolist()]
        groups = {
            name: [registry.names[index] for index in indices[registry.groups.mask(name)[indices]].tolist()]
            for name in registry.groups
            if not who.scope or name in who.scope
        }
        # All of it is put together elsewhere: a hundred thousand nodes take a second.
        return await asyncio.to_thread(lambda: _encode(inventory(nodes, words, groups)))
