"""Rooms of the platform that behave, in memory, for the API's tests."""

from __future__ import annotations

from typing import Any

import msgspec

from strata.fleet.access.principal import Principal
from strata.platform.ansible.inventory import inventory
from strata.platform.ansible.service import AnsibleService


class FakeAnsible:
    """The nodes that the facade has, as an inventory."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade

    async def inventory(self, who: Principal, select: str) -> bytes:
        names = await self._facade.node_names(who, select)
        nodes = [self._facade.nodes[name] for name in names]
        return msgspec.json.encode(inventory(nodes, [node.state for node in nodes], {}))


def fake_platform(facade: Any) -> dict[type[Any], Any]:
    """Services by type."""
    return {AnsibleService: FakeAnsible(facade)}
