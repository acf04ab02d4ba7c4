"""Requests that say what is wanted: on nodes themselves, or by documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from strata.control.columns import Indices, Mask
from strata.control.documents import DesireDocument, Standing, value_sets
from strata.control.fleet_views.desires import (
    ApplyReport,
    ApplyRequest,
    DesireChange,
    DesireResult,
    DocumentSpec,
    DocumentView,
)
from strata.control.fleet_views.jobs import JobView
from strata.control.fleet_views.results import NodeResult
from strata.control.job_record import Step
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core import intset
from strata.core.errors import NotFound

AT_ONCE = 1000
"""More nodes than this make a job."""

_CHUNK = 10_000  # nodes per step of a job


class DesireService(ServiceBase):
    """Desires and documents."""

    def register_jobs(self) -> None:
        """Say how whole-fleet work is done."""
        self.jobs_.register("set-desires", self._set_many)

    async def set_desires(self, who: Principal, change: DesireChange, asynchronous: bool) -> DesireResult | JobView:
        """Set and unset, at once or as a job."""
        nodes = self.owned(who, change.select)
        self.edits.checked_change(change.set, change.unset)
        if asynchronous or len(nodes) > AT_ONCE:
            arguments = {
                "uids": intset.pack(self.registry.uids[nodes]),
                "set": change.set,
                "unset": change.unset,
                "author": who.name,
                "if_match": change.if_match,
            }
            return (await self.jobs_.start("set-desires", who.name, len(nodes), arguments)).view()
        names = self.view.names(nodes)  # before the wait: an index may be another node's after it
        done = await self.edits.set_desires(nodes, change.set, change.unset, who.name, change.if_match)
        await self.settled(done.revision)
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
            nodes: Indices = self.registry.indices_of(uids[start : start + _CHUNK])
            nodes = nodes[nodes >= 0]
            names = self.view.names(nodes)
            done = await self.edits.set_desires(
                nodes, arguments["set"], arguments["unset"], arguments["author"], arguments["if_match"]
            )
            await self.considered(done.revision)  # a job that is done shows in the states
            failed = [(names[place], why) for place, why in done.conflicts.items()]
            yield Step(position=start + _CHUNK, done=len(nodes) - len(failed), failed=failed)

    async def documents(self, who: Principal) -> Sequence[DocumentView]:
        """All documents, by name (with a scope: those that mean a node of it)."""
        mask = self.scope(who)
        shown = [
            self._document(self.registry.desires.documents[name], mask)
            for name in sorted(self.registry.desires.documents)
        ]
        return shown if mask is None else [document for document in shown if document.matches]

    async def document(self, who: Principal, name: str) -> DocumentView:
        """One document."""
        standing, mask = self.registry.desires.documents.get(name), self.scope(who)
        if standing is None or (mask is not None and not (standing.mask & mask).any()):
            raise NotFound(f"no such document: {name[:80]}", where="document")
        return self._document(standing, mask)

    async def put_document(self, who: Principal, spec: DocumentSpec, expected: int | None) -> DocumentView:
        """Create or replace."""
        self.need_whole_fleet(who, "a document")
        await self.settled(await self.edits.put_document(self._record(spec, who), who.name, expected))
        return await self.document(who, spec.name)

    async def delete_document(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove."""
        self.need_whole_fleet(who, "a document")
        await self.settled(await self.edits.delete_document(name, who.name, expected))

    async def apply(self, who: Principal, request: ApplyRequest) -> ApplyReport:
        """Make the documents be these."""
        self.need_whole_fleet(who, "applying documents")
        documents = [self._record(spec, who) for spec in request.documents]
        report = await self.edits.apply_documents(documents, who.name, prune=request.prune, dry_run=request.dry_run)
        if not request.dry_run:
            await self.settled(report.revision)
        return report

    def _record(self, spec: DocumentSpec, who: Principal) -> DesireDocument:
        wanted = value_sets(self.controller.model, spec.set)
        return DesireDocument(name=spec.name, select=spec.select, set=wanted, priority=spec.priority, author=who.name)

    def _document(self, standing: Standing, scope: Mask | None) -> DocumentView:
        document = standing.document
        return DocumentView(
            name=document.name,
            select=document.select,
            set=document.set,
            priority=document.priority,
            author=document.author,
            revision=standing.revision,
            matches=int((standing.mask if scope is None else standing.mask & scope).sum()),
        )
