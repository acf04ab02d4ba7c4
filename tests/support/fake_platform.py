"""Rooms of the platform that behave, in memory, for the API's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from strata.core.errors import NotFound
from strata.fleet.access.principal import Principal
from strata.platform.ansible.inventory import inventory
from strata.platform.ansible.service import AnsibleService
from strata.platform.cloudinit.records import CloudInit, CloudInitSpec, CloudInitView, Rendered, check
from strata.platform.cloudinit.rendering import rendered
from strata.platform.cloudinit.service import CloudInitService


class FakeAnsible:
    """The nodes that the facade has, as an inventory."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade

    async def inventory(self, who: Principal, select: str) -> bytes:
        names = await self._facade.node_names(who, select)
        nodes = [self._facade.nodes[name] for name in names]
        return msgspec.json.encode(inventory(nodes, [node.state for node in nodes], {}))


class FakeCloudInit:
    """Documents that select nobody."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self._kept: dict[str, CloudInitView] = {}

    async def all(self, who: Principal) -> Sequence[CloudInitView]:
        return list(self._kept.values())

    async def one(self, who: Principal, name: str) -> CloudInitView:
        if name not in self._kept:
            raise NotFound(f"no such cloud-init: {name}", where="cloud-init")
        return self._kept[name]

    async def put(self, who: Principal, name: str, spec: CloudInitSpec) -> CloudInitView:
        check(spec, name)
        made = CloudInit(name=name, **{field: getattr(spec, field) for field in spec.__struct_fields__})
        self._kept[name] = CloudInitView.of(made, nodes=0)
        return self._kept[name]

    async def delete(self, who: Principal, name: str) -> None:
        await self.one(who, name)
        del self._kept[name]

    async def render(self, who: Principal, name: str) -> Rendered:
        return rendered(await self._facade.node(who, name), (), (), None)


def fake_platform(facade: Any) -> dict[type[Any], Any]:
    """Services by type."""
    return {AnsibleService: FakeAnsible(facade), CloudInitService: FakeCloudInit(facade)}
