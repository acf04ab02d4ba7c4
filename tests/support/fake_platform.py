"""Rooms of the platform that behave, in memory, for the API's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from strata.core.errors import BadRequest, NotFound, Refused
from strata.fleet.access.principal import Principal
from strata.platform.ansible.inventory import inventory
from strata.platform.ansible.service import AnsibleService
from strata.platform.cloudinit.records import CloudInit, CloudInitSpec, CloudInitView, Rendered, check
from strata.platform.cloudinit.rendering import rendered
from strata.platform.cloudinit.service import CloudInitService
from strata.platform.secrets import records as r
from strata.platform.secrets.service import SecretService


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


class FakeSecrets:
    """Secrets that nobody holds, of a service that can open none."""

    def __init__(self) -> None:
        self._kept: dict[str, r.SecretView] = {}
        self._identity: r.IdentityView | None = None

    async def recipient(self, who: Principal) -> r.IdentityView:
        if self._identity is None:
            raise NotFound("the service has no age identity yet", where="secret")
        return self._identity

    async def init(self, who: Principal, *, another: bool) -> r.IdentityView:
        if self._identity is not None and not another:
            raise Refused("there is an identity already", by="identity", where="secret")
        self._identity = r.IdentityView(recipient="age1fake", made=1.0, author=who.name)
        return self._identity

    async def all(self, who: Principal) -> Sequence[r.SecretView]:
        return list(self._kept.values())

    async def one(self, who: Principal, name: str) -> r.SecretView:
        if name not in self._kept:
            raise NotFound(f"no such secret: {name}", where="secret")
        return self._kept[name]

    async def put(self, who: Principal, name: str, spec: r.SecretSpec) -> r.SecretView:
        r.check(spec, name)
        if spec.age:
            raise BadRequest("was encrypted for somebody else, or is damaged", where=name)
        self._kept[name] = r.SecretView.of(
            spec, name=name, nodes=0, source="vault", version=1, changed=1.0, author=who.name, trouble=""
        )
        return self._kept[name]

    async def rotate(self, who: Principal, name: str, new: r.NewValue) -> r.SecretView:
        await self.one(who, name)
        raise Refused("its value is in a Vault", by="vault", where=name)

    async def delete(self, who: Principal, name: str) -> None:
        await self.one(who, name)
        del self._kept[name]

    async def status(self, who: Principal, name: str) -> r.SecretStatus:
        await self.one(who, name)
        none = dict.fromkeys(("current", "older", "missing", "away", "leftover"), "")
        return r.SecretStatus(name=name, version=1, nodes=0, counts=dict.fromkeys(none, 0), **none)


def fake_platform(facade: Any) -> dict[type[Any], Any]:
    """Services by type."""
    return {
        AnsibleService: FakeAnsible(facade),
        CloudInitService: FakeCloudInit(facade),
        SecretService: FakeSecrets(),
    }
