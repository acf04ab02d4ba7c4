"""Requests about power policies: putting, enabling, and what the site may draw.

A document is refused unless its very content was simulated, or somebody says why not.
"""

from __future__ import annotations

import msgspec

from strata.core.errors import BadRequest
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.power.policies.policy import parse
from strata.power.policies.records import (
    Policies,
    PolicyDetail,
    PolicyRecord,
    PolicyRecords,
    PolicySpec,
    PolicyView,
    Simulation,
    SimulationSpec,
    SimulationView,
    digest_of,
)  # fmt: skip
from strata.power.site.site import SitePower


class PolicyService:
    """Answers from ``records`` and ``site``."""

    def __init__(self, nodes: Fleet, records: PolicyRecords, site: SitePower) -> None:
        self._nodes = nodes
        self._records = records
        self._site = site
        self._now = nodes.controller.clock.wall

    async def policies(self, who: Principal) -> Policies:
        """All policies, and what the site may draw."""
        site = self._site.view()
        if who.scope:  # what all nodes draw, and how many are being capped, is more than their part of it
            site = msgspec.structs.replace(site, static=None, allowed=None, over=None, in_flight=None, error="")
        return Policies(items=tuple(PolicyView.of(self._detail(one)) for one in self._records.policies), site=site)

    async def policy(self, who: Principal, name: str) -> PolicyDetail:
        """One policy, with what it says."""
        return self._detail(self._records.get(name))

    async def put(self, who: Principal, name: str, spec: PolicySpec) -> PolicyDetail:
        """Create or replace a policy. Refused unless this very content was simulated, or ``without_simulation`` says
        why not. One that is enabled stays enabled, with its new content."""
        self._nodes.need_whole_fleet(who, "a power policy")
        said = parse(spec.text, source=name)
        if said.name and said.name != name:
            raise BadRequest(f"the document calls itself {said.name[:80]!r}", where="name", hint="use that name")
        where, unsimulated = f"power policy {name}", spec.without_simulation
        digest = self._records.check_simulated(spec.text, unsimulated, where=where, say="--without-simulation REASON")
        record = PolicyRecord(
            name=name,
            text=spec.text,
            digest=digest,
            enabled=False,
            author=who.name,
            time=self._now(),
            unsimulated=unsimulated,
        )
        return self._detail(await self._records.put(record))

    async def enable(self, who: Principal, name: str) -> PolicyDetail:
        """Let it run. Another that did does not any more."""
        self._nodes.need_whole_fleet(who, "a power policy")
        return self._detail(await self._records.enable(who.name, name, self._now()))

    async def disable(self, who: Principal, name: str) -> PolicyDetail:
        """Let it run no longer. Caps stay as they are."""
        self._nodes.need_whole_fleet(who, "a power policy")
        self._records.get(name)
        return self._detail(await self._records.disable(who.name, name, self._now()))

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a policy that is not enabled."""
        self._nodes.need_whole_fleet(who, "a power policy")
        await self._records.delete(who.name, name)

    async def note_simulation(self, who: Principal, spec: SimulationSpec) -> SimulationView:
        """Note that a policy's content was simulated, and what came of it."""
        parse(spec.text, source="text")
        if spec.peak > spec.limit:
            raise BadRequest("more was drawn than the limit allows", where="peak", hint="change the policy")
        found = Simulation(
            digest=digest_of(spec.text),
            author=who.name,
            time=self._now(),
            nodes=spec.nodes,
            days=spec.days,
            limit_w=spec.limit,
            peak_w=spec.peak,
        )
        await self._records.note_simulation(found)
        return _simulated(found)

    def _detail(self, record: PolicyRecord) -> PolicyDetail:
        said, simulation = record.policy(), self._records.simulation(record.digest)
        return PolicyDetail(
            **msgspec.structs.asdict(record),
            doc=said.doc,
            limit=None if said.limit is None else float(said.limit),
            simulated=None if simulation is None else _simulated(simulation),
        )


def _simulated(one: Simulation) -> SimulationView:
    return SimulationView.of(one, limit=one.limit_w, peak=one.peak_w)
