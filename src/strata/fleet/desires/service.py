"""Requests that say what is wanted: on nodes themselves, or by documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from strata.core import intset
from strata.core.errors import BadRequest, NotFound
from strata.fleet.access.principal import Principal, Right
from strata.fleet.columns import Indices, Mask
from strata.fleet.desires.bundles import BundleRequest
from strata.fleet.desires.documents import DesireDocument, Standing
from strata.fleet.desires.records import (
    ApplyReport,
    DesireChange,
    DesireResult,
    DocumentSpec,
    DocumentView,
)
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.results import NodeResult
from strata.fleet.operations.records import Operation, Step

AT_ONCE = 1000
"""More nodes than this make an operation."""

_CHUNK = 10_000  # nodes per step of an operation


class DesireService:
    """Desires and documents."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        fleet.operations.register("set-desires", self._set_many)

    async def set_desires(self, who: Principal, change: DesireChange, asynchronous: bool) -> DesireResult | Operation:
        """Set and unset, at once or as an operation."""
        nodes = self._fleet.owned(who, change.select)
        self._fleet.edits.checked_change(change.set, change.unset)
        if asynchronous or len(nodes) > AT_ONCE:
            arguments = {
                "uids": intset.pack(self._fleet.registry.uids[nodes]),
                "set": change.set,
                "unset": change.unset,
                "author": who.name,
                "if_match": change.if_match,
            }
            return (await self._fleet.operations.start("set-desires", who.name, len(nodes), arguments)).shown()
        names = self._fleet.view.names(nodes)  # before the wait: an index may be another node's after it
        done = await self._fleet.edits.set_desires(nodes, change.set, change.unset, who.name, change.if_match)
        await self._fleet.settled(done.revision)
        results = tuple(
            NodeResult(node=name, ok=False, status=409, error=done.conflicts[place])
            if place in done.conflicts
            else NodeResult(node=name, ok=True)
            for place, name in enumerate(names)
        )
        return DesireResult(results=results, changed=int(done.changed.sum()), revision=done.revision)

    async def _set_many(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        uids = intset.unpack(arguments["uids"])
        for start in range(position or 0, len(uids), _CHUNK):
            nodes: Indices = self._fleet.registry.indices_of(uids[start : start + _CHUNK])
            nodes = nodes[nodes >= 0]
            names = self._fleet.view.names(nodes)
            done = await self._fleet.edits.set_desires(
                nodes, arguments["set"], arguments["unset"], arguments["author"], arguments["if_match"]
            )
            await self._fleet.considered(done.revision)  # an operation that is done shows in the states
            failed = [(names[place], why) for place, why in done.conflicts.items()]
            yield Step(position=start + _CHUNK, done=len(nodes) - len(failed), failed=failed)

    async def documents(self, who: Principal) -> Sequence[DocumentView]:
        """All documents, by name (with a scope: those that mean a node of it)."""
        mask = self._fleet.scope(who)
        shown = [
            self._document(self._fleet.registry.desires.documents[name], mask)
            for name in sorted(self._fleet.registry.desires.documents)
        ]
        return shown if mask is None else [document for document in shown if document.matches]

    async def document(self, who: Principal, name: str) -> DocumentView:
        """One document."""
        standing, mask = self._fleet.registry.desires.documents.get(name), self._fleet.scope(who)
        if standing is None or (mask is not None and not (standing.mask & mask).any()):
            raise NotFound(f"no such document: {name[:80]}", where="document")
        return self._document(standing, mask)

    async def put_document(self, who: Principal, name: str, spec: DocumentSpec, expected: int | None) -> DocumentView:
        """Create or replace a document."""
        if spec.name != name:
            raise BadRequest("the name in the body is not the one in the path", where="name")
        self._fleet.need_whole_fleet(who, "a document")
        await self._fleet.settled(
            await self._fleet.edits.put_document(DesireDocument(**msgspec.structs.asdict(spec)), who.name, expected)
        )
        return await self.document(who, name)

    async def delete_document(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove a document."""
        self._fleet.need_whole_fleet(who, "a document")
        await self._fleet.settled(await self._fleet.edits.delete_document(name, who.name, expected))

    async def apply(self, who: Principal, request: BundleRequest) -> ApplyReport:
        """Make the documents be these (with ``prune``: only these), and nodes and groups what is said of them: all, or
        nothing. ``dry_run``: check it all, and only say what would change."""
        names = [document.name for document in request.documents]
        if len(set(names)) != len(names):
            raise BadRequest("a document is there twice", where=next(n for n in names if names.count(n) > 1))
        self._fleet.need_whole_fleet(who, "applying documents")
        if request.nodes:
            who.require(Right("change", "node"))
        if request.groups:
            who.require(Right("change", "group"))
        documents = [DesireDocument(**msgspec.structs.asdict(spec)) for spec in request.documents]
        report = await self._fleet.edits.apply(
            documents,
            who.name,
            nodes=request.nodes,
            groups=request.groups,
            prune=request.prune,
            dry_run=request.dry_run,
        )
        if not request.dry_run:
            await self._fleet.settled(report.revision)
        return report

    def _document(self, standing: Standing, scope: Mask | None) -> DocumentView:
        return DocumentView(
            **msgspec.structs.asdict(standing.document),
            revision=standing.revision,
            matches=int((standing.mask if scope is None else standing.mask & scope).sum()),
        )
