"""What nodes' images are told by cloud-init: documents that select nodes, and what each node gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from strata.core.errors import NotFound
from strata.core.node import Node
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.platform.cloudinit.records import CloudInit, CloudInitSpec, CloudInitView, Rendered, check
from strata.platform.cloudinit.rendering import FILES, rendered
from strata.platform.config.keeper import Keeper
from strata.platform.config.service import ConfigService
from strata.platform.scopes import Scopes
from strata.provisioning.boot.http import Answer
from strata.provisioning.boot.service import BootService
from strata.provisioning.networks import Networks

KIND: Literal["cloud-init"] = "cloud-init"
_CALLED = "cloud-init document"
_NOTHING = Answer(b"cloud-init asks for meta-data, user-data, vendor-data and network-config\n", 404)


class CloudInitService:
    """The documents, and the answers to nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._scopes = Scopes(fleet.registry)
        self.records = fleet.records(CloudInit, kind=KIND, called=_CALLED, listed_by="strata cloud-init list")
        self.stop = self.records.stop

    async def start(self) -> None:
        """Load the documents; answer nodes where there are boot networks."""
        await self.records.start()
        self._fleet.of(ConfigService).keepers[KIND] = Keeper(self.records, self.made)
        if (boot := self._fleet.services.find(BootService)) is not None:
            boot.own[KIND] = self.answer

    # what people ask

    async def all(self, who: Principal) -> Sequence[CloudInitView]:
        """All documents, by name; for a caller with a scope those that are about its nodes."""
        return [self._view(who, record) for _, record in self.records.sorted if self._concerns(who, record)]

    async def one(self, who: Principal, name: str) -> CloudInitView:
        """One of them."""
        record = self.records.get(name)
        if not self._concerns(who, record):
            raise NotFound(f"no {_CALLED} named {name}", where=KIND, hint="list them with: strata cloud-init list")
        return self._view(who, record)

    async def put(self, who: Principal, name: str, spec: CloudInitSpec) -> CloudInitView:
        """Create or replace a document. What looks like a secret is refused: whoever has a node's address can read
        it."""
        record = self.made(CloudInit.of(spec, name=name))
        await self.records.put(who.name, name, record, detail={"select": spec.select[:200]})
        return self._view(who, record)

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a document."""
        await self.records.delete(who.name, name)

    async def render(self, who: Principal, name: str) -> Rendered:
        """The four files that a node gets."""
        return self._rendered(self._fleet.registry.node_at(self._fleet.index(who, name)))

    # what nodes ask

    def answer(self, node: Node, rest: Sequence[str]) -> Answer:
        """One of the four files, for a node that asks for its own."""
        field = FILES.get(rest[0]) if len(rest) == 1 else None
        return Answer(getattr(self._rendered(node), field).encode()) if field else _NOTHING

    # what the configuration says

    def made(self, spec: CloudInit, author: str = "") -> CloudInit:
        """The record of what the repository says; ``BadRequest`` where it cannot be."""
        check(spec, f"{KIND} {spec.name}")
        return spec

    # parts

    def _rendered(self, node: Node) -> Rendered:
        registry = self._fleet.registry
        index = registry.find(node.name)
        ours = [
            record
            for record in sorted(self.records.all.values(), key=lambda one: (one.priority, one.name))
            if self._scopes.has(record.select, index)
        ]
        groups = registry.groups.of(index) if index >= 0 else ()
        return rendered(node, groups, ours, self._fleet.services.find(Networks))

    def _concerns(self, who: Principal, record: CloudInit) -> bool:
        return not who.scope or self._fleet.count(who, self._scopes.mask(record.select)) > 0

    def _view(self, who: Principal, record: CloudInit) -> CloudInitView:
        return CloudInitView.of(record, nodes=self._fleet.count(who, self._scopes.mask(record.select)))
