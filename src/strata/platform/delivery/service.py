"""What nodes are to be configured with, level with desires, nodes and overlays; what they have; and what has drifted.

Every controller renders for all nodes of which a configuration is wanted: what comes of it is the same everywhere, so
that any of them can answer any agent. Where something cannot be rendered any more (a label that is gone), what was
rendered before stays.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core.errors import BadRequest, NotFound, StrataError, Unavailable
from strata.core.model import ABSENT
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.peers.door import PeerDoor, each
from strata.fleet.peers.leaders import ByLeader, LeaderClient
from strata.fleet.recurring import Recurring
from strata.fleet.registry.registry import Registry
from strata.platform.delivery.compose import Delivered, composed
from strata.platform.delivery.records import (
    FIELDS,
    NONE,
    VARIABLE,
    DriftItem,
    DriftList,
    Overlays,
    OverlaysIn,
    RenderedFile,
    RenderedOverlay,
    Revision,
    revision_of,
)
from strata.provisioning.agents.agent import Seen
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.driver import NodeDriver
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Drifted

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
"""Seconds between two looks whether nodes, groups or desires have changed."""
_MOST_STORED = 1_000_000
"""Bytes of a revision in the store: etcd takes a little more than that in one value."""
_KEPT = 5
"""Revisions that are kept beside those that are wanted."""
_ROUTE = "config-drift"


class _Wanted(msgspec.Struct, frozen=True):
    """What is wanted of one node."""

    revision: str
    delivered: Delivered


class DeliveryService:
    """Delivery to the nodes of this fleet; the agents' driver asks it what ``configure`` means."""

    variable = VARIABLE
    mutation = "configure"

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._revisions = fleet.records(
            Revision, kind="config-revision", prefix="config/revision/", changed=lambda *_: self._turn.soon()
        )
        self._overlays: dict[str, Overlays] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._stamp: tuple[Any, ...] = ()
        self._groups: tuple[Any, ...] = ()
        self._done = np.zeros((2, 0), dtype=np.int64)
        """By index of a node: the code of what was wanted of it, and the revision of its description, when it was
        rendered for; 0: it was not."""
        self._rendering = asyncio.Lock()
        self._told: dict[str, frozenset[str]] = {}
        self._turn = Recurring("delivery", self._round, lambda: _LOOK_EVERY, trouble="configuration is not rendered")
        self._bad: dict[str, dict[str, str]] = {}
        """Revision → nodes for which it cannot be rendered, and why: they are tried again when they are others."""
        self.failed: dict[str, str] = {}
        """Revision → why it cannot be rendered for some node now."""

    async def start(self) -> None:
        """Load the revisions; render once the fleet runs."""
        await self._revisions.start()
        driver = self._fleet.driver("node")
        if isinstance(driver, NodeDriver):
            driver.extend(self)
            self._fleet.of(AgentDoor).more["overlay"] = self._fetched
            self._fleet.of(Hub).changed.append(self._heard)
            if (door := self._fleet.services.find(PeerDoor)) is not None:
                door.routes[_ROUTE] = each(list[str], self._drift_here)
            self._fleet.edits.known = {**self._fleet.edits.known, VARIABLE: self._revisions.get}
            self._fleet.registry.departed.append(lambda name: self._forget([name]))
            self._fleet.begin(self._turn.start)

    async def stop(self) -> None:
        """Render no more."""
        await self._turn.stop()
        await self._revisions.stop()

    # revisions

    def overlays(self, revision: str) -> Overlays:
        """All overlays of a revision; none where it is not known."""
        kept = self._revisions.find(revision)
        if kept is None:
            return ()
        if revision not in self._overlays:
            self._overlays[revision] = msgspec.json.decode(zlib.decompress(kept.overlays), type=OverlaysIn)
        return self._overlays[revision]

    def check(self, overlays: Overlays) -> None:
        """That the store takes them."""
        self._packed(overlays)

    def _packed(self, overlays: Overlays) -> bytes:
        found = zlib.compress(msgspec.json.encode(overlays))
        if len(found) > _MOST_STORED:
            raise BadRequest(
                f"all overlays with their files come to {len(found) >> 10} KiB when they are compressed; "
                f"at most {_MOST_STORED >> 10} are kept",
                where="the repository",
                hint="large files belong into an image",
            )
        return found

    async def trial(self, overlays: Overlays, registry: Registry, about: str) -> frozenset[str]:
        """Render for all nodes of a registry; ``BadRequest`` names the template and its line, or the overlay. The nodes
        for which it comes to what is wanted of them now."""
        made = await composed(registry, overlays, np.flatnonzero(registry.alive), about)
        now = self._wanted
        return frozenset(name for name, one in made.items() if name in now and now[name].delivered.digest == one.digest)

    async def keep(self, who: str, overlays: Overlays, commit: str) -> str:
        """Put a revision there, before anybody can want it; its name."""
        revision = revision_of(overlays)
        if self._revisions.find(revision) is None:
            now = self._fleet.controller.clock.wall()
            record = Revision(overlays=self._packed(overlays), commit=commit, time=now)
            await self._revisions.put(who, revision, record, detail={"commit": commit})
        return revision

    async def tidy(self, who: str) -> None:
        """Forget revisions that nobody wants, but for the last few."""
        goals = self._fleet.registry.desires.goals(VARIABLE)
        wanted = {value for code in np.unique(goals.codes).tolist() for value in goals.table[code]}
        unwanted = [(kept.time, name) for name, kept in self._revisions.all.items() if name not in wanted]
        for _, name in sorted(unwanted)[:-_KEPT]:
            await self._revisions.delete(who, name)
            self._overlays.pop(name, None)

    # what nodes are told

    def word(self, name: str, seen: Seen) -> str:
        """The fact: the revision that is wanted, where what the node holds is what it should have of that. Who lacks
        what is wanted is not given to jobs; who has nothing, and shall have nothing, is."""
        if not seen.config:
            return ABSENT if self._is_wanted(name) else NONE
        wanted = self._wanted.get(name)
        if wanted is None:
            return seen.revision or seen.config[7:19]
        if seen.config == wanted.delivered.digest:
            return wanted.revision
        return f"{seen.revision}@{seen.config[7:19]}" if seen.revision == wanted.revision else seen.revision

    def _is_wanted(self, name: str) -> bool:
        """Whether somebody wants a configuration of the node."""
        registry = self._fleet.registry
        index = registry.find(name)
        return index >= 0 and bool(registry.desires.goals(VARIABLE).codes[index] > 0)

    async def ready(self, names: Sequence[str]) -> None:
        """Until it is known what these nodes get."""
        await self._round()

    def command(self, name: str, goal: str, seen: Seen | None) -> tuple[str, dict[str, Any]] | None:
        """What the node's agent is told; None: it has what it should have."""
        wanted = self._wanted.get(name)
        if wanted is None or wanted.revision != goal:
            why = self.failed.get(goal) or "there is no such revision, or it was not rendered yet"
            raise Unavailable(why, where=f"config {goal}")
        if seen is not None and seen.config == wanted.delivered.digest:
            return None
        return "configure", {"revision": goal, "digest": wanted.delivered.digest}

    async def _fetched(self, node: str, body: bytes) -> bytes:
        """What an agent gets: what is wanted now, whatever it was told before."""
        wanted = self._wanted.get(node)
        if wanted is None:
            raise NotFound("this node has no desire for config", where=node)
        return wanted.delivered.wire(wanted.revision)

    # rendering

    async def _round(self) -> None:
        """Render for those of whom something else is wanted, or who are others, since the last time."""
        async with self._rendering:
            registry = self._fleet.registry
            if VARIABLE not in registry.model.variables:
                return
            stamp = (registry.edition, tuple(self._revisions.all))
            if stamp == self._stamp:
                return
            groups = tuple(sorted((name, registry.modified(f"group/{name}")) for name in registry.groups))
            moved = await self._render(self._stale(anew=groups != self._groups))
            self._stamp, self._groups = stamp, groups
            there = [index for name in moved if (index := registry.find(name)) >= 0]
            if there:
                self._fleet.controller.renew_goal(np.array(there, dtype=np.int64))

    def _stale(self, *, anew: bool) -> dict[str, Indices]:
        """The nodes to render for, by revision. ``anew``: all."""
        registry = self._fleet.registry
        goals = registry.desires.goals(VARIABLE)
        if (more := registry.size - self._done.shape[1]) > 0:
            self._done = np.pad(self._done, ((0, 0), (0, more)))
        codes, stamps = self._done[:, : registry.size]
        wanted = registry.alive & (goals.codes > 0)
        self._forget([registry.names[index] for index in np.flatnonzero((codes > 0) & ~wanted).tolist()])
        self._done[:, : registry.size][:, ~wanted] = 0
        stale = wanted & ((codes != goals.codes) | (stamps != registry.revisions)) if not anew else wanted
        found: dict[str, Indices] = {}
        for code in np.unique(goals.codes[stale]).tolist():
            revision = goals.table[code][0]
            if self._revisions.find(revision) is not None:
                found[revision] = np.flatnonzero(stale & (goals.codes == code))
        return found

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._wanted.pop(name, None)
            self._told.pop(name, None)

    async def _render(self, stale: Mapping[str, Indices]) -> list[str]:
        """The nodes for which something else came of it."""
        registry = self._fleet.registry
        moved: list[str] = []
        for revision, nodes in stale.items():
            now = np.array([registry.desires.goals(VARIABLE).codes[nodes], registry.revisions[nodes]])
            failed: dict[str, str] = {}
            try:
                made = await composed(registry, self.overlays(revision), nodes, f"config {revision}", failed)
            except StrataError as error:
                self._refuse(revision, str(error))
                continue
            bad = self._bad.setdefault(revision, {})
            for name in made:
                bad.pop(name, None)
            bad.update(failed)
            for name in [name for name in bad if registry.find(name) < 0]:
                del bad[name]
            if bad:
                self._refuse(revision, next(iter(bad.values())))
            elif self.failed.pop(revision, ""):
                self._fleet.alarm(_refused(revision, "it can be rendered again", "ok"))
            for name, delivered in made.items():
                if registry.find(name) < 0:
                    continue  # it went meanwhile
                before = self._wanted.get(name)
                self._wanted[name] = _Wanted(revision, delivered)
                if before is not None and before.delivered.digest != delivered.digest:
                    moved.append(name)
            self._done[:, nodes] = now
        return moved

    def _refuse(self, revision: str, why: str) -> None:
        if self.failed.get(revision) != why:
            log.warning("nodes keep the configuration that they have", extra={"revision": revision, "reason": why})
            self._fleet.alarm(_refused(revision, why, "warning"))
        self.failed[revision] = why

    # asking

    async def rendered(self, who: Principal, node: str) -> RenderedOverlay:
        """What a node is to be configured with, as its agent gets it."""
        self._fleet.index(who, node)
        await self._round()
        wanted = self._wanted.get(node)
        if wanted is None:
            raise NotFound("this node has no desire for config", where=node, hint="set one: config=current")
        return shown(node, wanted.revision, wanted.delivered)

    async def drift(self, who: Principal, select: str = "*") -> DriftList:
        """What is not as it was delivered, on the selected nodes."""
        names = [self._fleet.registry.names[index] for index in self._fleet.seen(who, select).tolist()]
        elsewhere = self._fleet.services.find(LeaderClient)
        by_leader = elsewhere.sort(names) if elsewhere is not None else ByLeader(here=names, there={}, nowhere={})
        found = list(await self._drift_here(by_leader.here))
        silent = [*by_leader.nowhere, *self._unheard(by_leader.here)]
        for peer, theirs in by_leader.there.items():
            assert elsewhere is not None
            try:
                found += await elsewhere.ask(peer, _ROUTE, theirs, list[DriftItem])
            except StrataError:
                silent += theirs
        found.sort(key=lambda item: (item.node, item.what, item.where))
        return DriftList(items=tuple(found), silent=fold(silent))

    def _unheard(self, names: Sequence[str]) -> list[str]:
        """Nodes of which a configuration is wanted, and whose agents do not speak."""
        hub = self._fleet.of(Hub)
        return [name for name in names if name in self._wanted and not hub.attached(name)]

    async def _drift_here(self, names: Sequence[str]) -> Sequence[DriftItem]:
        hub = self._fleet.of(Hub)
        found = []
        for name in names:
            agent = hub.get(name)
            if agent is not None and agent.seen is not None:
                found += [DriftItem(**msgspec.structs.asdict(one), node=name) for one in agent.seen.drift]
        return found

    def _heard(self, names: Collection[str]) -> None:
        """Tell of drift that is new, and that is over."""
        hub = self._fleet.of(Hub)
        for name in names:
            agent = hub.get(name)
            drift = agent.seen.drift if agent is not None and agent.seen is not None else ()
            stands = {one for one in drift if not one.corrected}
            now = frozenset(_words(one) for one in stands)
            before = self._told.get(name, frozenset())
            if now == before:
                continue
            self._told[name] = now
            if not now:
                del self._told[name]
            message = "; ".join(sorted(now))[:500] or "everything is as it was delivered"
            severity: Any = "warning" if now else "ok"
            self._fleet.alarm(Alarm(kind="config-drift", message=message, node=name, severity=severity))


def shown(node: str, revision: str, delivered: Delivered) -> RenderedOverlay:
    """What a node gets, for people."""
    files = tuple(
        RenderedFile.of(entry, drift=entry.drift or "report", content=text)
        for entry, text in zip(delivered.merged.files, delivered.texts, strict=True)
    )
    rest = {field: delivered.merged.plain(field) for field in FIELDS if field != "files"}
    return RenderedOverlay(node=node, revision=revision, digest=delivered.digest, files=files, rest=rest)


def _words(drifted: Drifted) -> str:
    member = f"{drifted.member}: " if drifted.member else ""
    return f"{member}{drifted.what} {drifted.where}: {drifted.how}"


def _refused(revision: str, why: str, severity: Any) -> Alarm:
    return Alarm(kind="config-refused", message=why[:500], about=f"config {revision}", severity=severity)
