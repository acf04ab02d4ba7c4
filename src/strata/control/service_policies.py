"""Requests about power policies: putting, enabling, and what the site may draw.

A document is refused unless its very content was rehearsed, or somebody says why not.
"""

from __future__ import annotations

import msgspec

from strata.control.power_policies import PolicyBook, PolicyRecord, Rehearsal, digest_of
from strata.control.power_views.policies import (
    Policies,
    PolicyDetail,
    PolicySpec,
    PolicyView,
    RehearsalSpec,
    RehearsalView,
)
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.control.site_power import SitePower
from strata.core.errors import BadRequest, Refused
from strata.power.policy_file import parse


class PolicyService:
    """Answers from ``book`` and ``site``."""

    def __init__(self, nodes: ServiceBase, book: PolicyBook, site: SitePower) -> None:
        self._nodes = nodes
        self._book = book
        self._site = site

    async def policies(self, who: Principal) -> Policies:
        """All."""
        site = self._site.view()
        if who.scope:  # what all nodes draw, and how many are being capped, is more than their part of it
            site = msgspec.structs.replace(site, static=None, allowed=None, over=None, in_flight=None, error="")
        return Policies(items=tuple(self._view(one) for one in self._book.policies), site=site)

    async def policy(self, who: Principal, name: str) -> PolicyDetail:
        """One, with what it says."""
        return self._detail(self._book.get(name))

    async def put(self, who: Principal, name: str, spec: PolicySpec) -> PolicyDetail:
        """Create or replace."""
        self._nodes.need_whole_fleet(who, "a power policy")
        said = parse(spec.text, source=name)
        if said.name and said.name != name:
            raise BadRequest(f"the document calls itself {said.name[:80]!r}", where="name", hint="use that name")
        digest = digest_of(spec.text)
        if self._book.rehearsal(digest) is None and not spec.without_rehearsal:
            raise Refused(
                "this content was not rehearsed",
                by="rehearsal",
                where=f"power policy {name}",
                hint="strata power simulate --policy FILE does it; or say why not: --without-rehearsal REASON",
            )
        record = PolicyRecord(
            name=name,
            text=spec.text,
            digest=digest,
            enabled=False,
            author=who.name,
            time=self._now(),
            unrehearsed=spec.without_rehearsal,
        )
        return self._detail(await self._book.put(record))

    async def enable(self, who: Principal, name: str) -> PolicyDetail:
        """Let it run; another that did does not any more."""
        self._nodes.need_whole_fleet(who, "a power policy")
        return self._detail(await self._book.enable(who.name, name, self._now()))

    async def disable(self, who: Principal, name: str) -> PolicyDetail:
        """Let it run no longer; caps stay as they are."""
        self._nodes.need_whole_fleet(who, "a power policy")
        self._book.get(name)
        return self._detail(await self._book.disable(who.name, name, self._now()))

    async def delete(self, who: Principal, name: str) -> None:
        """Remove it."""
        self._nodes.need_whole_fleet(who, "a power policy")
        await self._book.delete(who.name, name)

    async def rehearsed(self, who: Principal, spec: RehearsalSpec) -> RehearsalView:
        """Note that a content was rehearsed."""
        parse(spec.text, source="text")
        if spec.peak > spec.limit:
            raise BadRequest("more was drawn than the limit allows", where="peak", hint="change the policy")
        rehearsal = Rehearsal(
            digest=digest_of(spec.text),
            author=who.name,
            time=self._now(),
            nodes=spec.nodes,
            days=spec.days,
            limit_w=spec.limit,
            peak_w=spec.peak,
        )
        await self._book.note_rehearsal(rehearsal)
        return _rehearsal(rehearsal)

    def _view(self, record: PolicyRecord) -> PolicyView:
        detail = self._detail(record)
        return PolicyView(**{name: getattr(detail, name) for name in PolicyView.__struct_fields__})

    def _detail(self, record: PolicyRecord) -> PolicyDetail:
        said, rehearsal = record.policy(), self._book.rehearsal(record.digest)
        return PolicyDetail(
            name=record.name,
            doc=said.doc,
            enabled=record.enabled,
            limit=None if said.limit is None else float(said.limit),
            author=record.author,
            time=record.time,
            digest=record.digest,
            rehearsed=None if rehearsal is None else _rehearsal(rehearsal),
            unrehearsed=record.unrehearsed,
            text=record.text,
        )

    def _now(self) -> float:
        return self._nodes.controller.clock.wall()


def _rehearsal(one: Rehearsal) -> RehearsalView:
    return RehearsalView(
        author=one.author, time=one.time, nodes=one.nodes, days=one.days, limit=one.limit_w, peak=one.peak_w
    )
