"""Power policies as documents, which of their contents were simulated, and what the site may draw.

Kept at ``power/policy/NAME`` and ``power/simulated/DIGEST``. At most one policy is enabled. What is refused, and to
whom, is in ``service``.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import Conflict, Refused
from strata.core.texts import NAME, PLAIN, In, Out
from strata.power.policies.policy import Policy, parse
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records


class SitePowerView(Out, frozen=True, kw_only=True):
    """What the site may draw, and how that is kept. What only the controller that keeps it knows is None elsewhere."""

    limit: float | None
    ramp: float | None
    """Watts a minute."""
    band: float | None
    policy: str
    """The one that is enabled; empty: none."""
    controller: str
    """Who keeps it."""
    static: float | None
    """The most that all those draw that cannot be capped."""
    allowed: float | None
    """The most that may be drawn now, given all that is not known."""
    over: float | None
    """By how much that is above the limit; it is being lowered."""
    in_flight: int | None
    """Nodes with a command of which the outcome is not known."""
    error: str


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """That a content was simulated, and what came of it, as it is kept."""

    digest: str
    author: str
    time: float
    nodes: int
    days: float
    limit_w: float
    peak_w: float


class SimulationView(Out, frozen=True, kw_only=True):
    """What came of a simulation."""

    author: str
    time: float
    nodes: int
    days: float
    limit: float
    peak: float


class _Policy(Out, frozen=True, kw_only=True):
    name: str
    enabled: bool
    author: str
    time: float
    digest: str
    unsimulated: str = ""
    """Why it was taken without a simulation; empty: there was one."""


class PolicyRecord(_Policy, frozen=True, kw_only=True):
    """One document, as it is kept."""

    text: str

    def policy(self) -> Policy:
        return _parsed(self.text, self.name)


class PolicyView(_Policy, frozen=True, kw_only=True):
    """A power policy."""

    doc: str
    limit: float | None
    simulated: SimulationView | None
    """The newest simulation of this very content."""


class PolicyDetail(PolicyView, frozen=True, kw_only=True):
    """And what it says."""

    text: str


class Policies(Out, frozen=True, kw_only=True):
    """All policies, by name, and where the site stands."""

    items: tuple[PolicyView, ...]
    site: SitePowerView


PolicyText = Annotated[str, Meta(min_length=1, max_length=100_000)]
_Reason = Annotated[str, Meta(pattern=PLAIN, max_length=500)]


class PolicySpec(In, frozen=True, kw_only=True):
    """A document. ``without_simulation`` says why it was not simulated."""

    text: PolicyText
    without_simulation: _Reason = ""


class PolicyEntry(PolicySpec, frozen=True, kw_only=True):
    """A document with its name, and whether it runs: as the repository says it."""

    name: Annotated[str, Meta(pattern=NAME, max_length=63)]
    enabled: bool = False


class SimulationSpec(In, frozen=True, kw_only=True):
    """That a document was simulated, and what came of it."""

    text: PolicyText
    nodes: Annotated[int, Meta(ge=1, le=10_000_000)]
    days: Annotated[float, Meta(gt=0, le=366)]
    limit: Annotated[float, Meta(gt=0, le=1e12)]
    peak: Annotated[float, Meta(ge=0, le=1e12)]


class PolicyRecords:
    """All that is kept of policies, level with the store."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        kind, listed_by = "power-policy", "strata power policy list"
        self.records = Records(store, ledger, PolicyRecord, kind=kind, prefix="power/policy/", listed_by=listed_by)
        self._simulations = Records(store, ledger, Simulation, kind=kind, prefix="power/simulated/")
        self.get = self.records.get
        self.simulation = self._simulations.find
        """The newest simulation of a content, by its digest."""

    async def start(self) -> None:
        await self.records.start()
        await self._simulations.start()

    async def stop(self) -> None:
        await self.records.stop()
        await self._simulations.stop()

    @property
    def policies(self) -> list[PolicyRecord]:
        return [record for _, record in self.records.sorted]

    @property
    def enabled(self) -> PolicyRecord | None:
        """The one that runs."""
        return next((one for one in self.records.all.values() if one.enabled), None)

    def check_simulated(self, text: str, unsimulated: str, *, where: str, say: str) -> str:
        """The digest of a content; ``Refused`` where it was not simulated, and nobody says why not."""
        digest = digest_of(text)
        if self.simulation(digest) is None and not unsimulated:
            raise Refused(
                "this version of the policy has not been simulated yet",
                by="simulation",
                where=where,
                hint=f"run: strata power simulate --policy FILE; or say why not: {say}",
            )
        return digest

    async def put(self, record: PolicyRecord) -> PolicyRecord:
        """Create or replace. One that is enabled stays enabled, with its new content."""

        def kept(before: PolicyRecord | None) -> PolicyRecord:
            return msgspec.structs.replace(record, enabled=before is not None and before.enabled)

        detail = {"digest": record.digest, "unsimulated": record.unsimulated}
        await self.records.change(record.author, record.name, kept, detail=detail)
        return self.get(record.name)

    async def enable(self, author: str, name: str, now: float) -> PolicyRecord:
        """Make it the one that runs; another that did is disabled, in the same transaction."""

        def switched(found: Mapping[str, PolicyRecord]) -> Mapping[str, PolicyRecord]:
            if name not in found:
                self.get(name)
            return {
                one: msgspec.structs.replace(record, enabled=one == name, author=author, time=now)
                for one, record in found.items()
                if record.enabled != (one == name)
            }

        await self.records.change_all(author, name, switched, action="enable")
        return self.get(name)

    async def disable(self, author: str, name: str, now: float) -> PolicyRecord:
        """Let it run no longer. Caps stay as they are."""

        def off(before: PolicyRecord | None) -> PolicyRecord:
            return msgspec.structs.replace(before or self.get(name), enabled=False, author=author, time=now)

        await self.records.change(author, name, off, action="disable")
        return self.get(name)

    async def delete(self, author: str, name: str) -> None:

        def gone(before: PolicyRecord | None) -> None:
            if before is not None and before.enabled:
                hint = f"disable it first: strata power policy disable {name}"
                raise Conflict("it is the policy that runs now", where=f"power policy {name}", hint=hint)

        await self.records.change(author, name, gone, action="delete")

    async def note_simulation(self, found: Simulation) -> None:
        detail = {"nodes": found.nodes, "limit_w": found.limit_w, "peak_w": found.peak_w}
        await self._simulations.put(found.author, found.digest, found, action="simulate", detail=detail)


@functools.lru_cache(maxsize=64)
def _parsed(text: str, name: str) -> Policy:
    """It is asked for at every turn, and changes once a month."""
    return parse(text, source=name)


def digest_of(text: str) -> str:
    """What a content is known by: any change makes it another."""
    return hashlib.sha256(text.encode()).hexdigest()
