"""Requests about the whole machine: how it is, what changes from now on, and how it was in the last hours.

Nothing here goes node by node: a moment is a few copies of columns, and what changed is where two moments differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.errors import StrataError
from strata.core.intset import Runs
from strata.core.state import STATES
from strata.engine.explain import states
from strata.engine.progress import Phase
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.history import transitions
from strata.fleet.machine.columns import Coded, differences, in_runs
from strata.fleet.machine.records import DOING, STATE, MachineChanges, MachineHistory, MachineView, PastChange
from strata.store.protocol import Entry

Uids = npt.NDArray[np.int64]

BEAT = 0.25
"""Seconds between two looks at what changed: often enough for eyes, seldom enough for a fleet that is coming up."""
MOST_CHANGES = 20_000
"""Changes in one answer of the past, each of which may be of thousands of nodes; older ones are left out."""
_PAGE = 500
_MOST_BYTES = 64 * 2**20
"""Of the log, in one answer."""


class Places(NamedTuple):
    """Which nodes are at which positions, for one caller."""

    edition: int
    """Of the registry, when it was looked at."""
    nodes: Indices
    names: tuple[str, ...]
    locations: tuple[str, ...]
    roster: str


class _Moment(NamedTuple):
    """The columns of one caller's nodes at a time, and how they differ from the moment before."""

    number: int
    time: float
    roster: str
    columns: Mapping[str, Coded]
    changes: Mapping[str, Mapping[str, Runs]]


class MachineService:
    """The machine as a whole."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[tuple[str, ...], Places] = {}
        self._moments: dict[tuple[str, ...], _Moment] = {}

    async def machine(self, who: Principal) -> MachineView:
        """All nodes with their places, groups, state and facts, in columns: some 3 MB for 100,000 nodes."""
        places = self.places(who)
        registry, columns = self._fleet.registry, self._columns(places.nodes)
        groups = {
            name: intset.pack(np.flatnonzero(registry.groups.mask(name)[places.nodes])) for name in self._groups(who)
        }
        runs = {name: in_runs(column) for name, column in columns.items()}
        return MachineView.of(places, groups=groups, columns=runs)

    async def follow(self, who: Principal, beat: float = BEAT) -> AsyncIterator[Sequence[MachineChanges]]:
        """What differs from beat to beat, from now on. First nothing, so that the caller knows from when; the same
        where other nodes are there than before, or elsewhere."""
        seen = self._moment(who, beat)
        yield [MachineChanges(roster=seen.roster, columns={})]
        while True:
            await asyncio.sleep(beat)
            now = self._moment(who, beat)
            if now.roster != seen.roster:
                yield [MachineChanges(roster=now.roster, columns={})]
            elif now.number == seen.number + 1:
                if now.changes:
                    yield [MachineChanges(roster=now.roster, columns=now.changes)]
            elif now.number != seen.number and (missed := differences(seen.columns, now.columns)):
                yield [MachineChanges(roster=now.roster, columns=missed)]
            seen = now

    async def history(self, who: Principal, since: float | None = None) -> MachineHistory:
        """Every change of a fact since a time, of all nodes: with it a client can show the machine as it was."""
        since = time.time() - 3600 if since is None else since
        with contextlib.suppress(StrataError):  # what is written can be read while the store takes nothing more
            await self._fleet.controller.recorder.flush()
        rows, whole = await self._log(since)
        places = self.places(who)
        uids = self._fleet.registry.uids[places.nodes]
        # In a thread: the changes of a busy night are many, and others want an answer too.
        found = await asyncio.to_thread(_changes, rows, uids, frozenset(self._fleet.controller.model.variables))
        if whole and len(found) <= MOST_CHANGES:
            return MachineHistory(roster=places.roster, since=since, changes=tuple(found))
        found = found[-MOST_CHANGES:]
        return MachineHistory(roster=places.roster, since=found[0].time, changes=tuple(found))

    async def _log(self, since: float) -> tuple[Sequence[transitions.Transition], bool]:
        """The rows of the log since then, and whether these are all of them: of too many, the newest."""
        after = transitions.key_of(int(since * 1e6))
        rows: deque[Entry] = deque()
        size, whole = 0, True
        while True:
            page = await self._fleet.controller.store.range(transitions.PREFIX, after=after, limit=_PAGE)
            rows.extend(page.entries)
            size += sum(len(entry.value) for entry in page.entries)
            while size > _MOST_BYTES:
                size -= len(rows.popleft().value)
                whole = False
            if len(page.entries) < _PAGE:
                return [transitions.decode(entry.value, entry.key) for entry in rows], whole
            after = page.entries[-1].key

    def _moment(self, who: Principal, beat: float) -> _Moment:
        """How the caller's nodes are. All that follow share a moment as long as it lasts: most of the work is once for
        all of them."""
        now = time.monotonic()
        last = self._moments.get(who.scope)
        if last is not None and now - last.time < beat / 2:
            return last
        places = self.places(who)
        columns = self._columns(places.nodes)
        same = last is not None and last.roster == places.roster
        changes = differences(last.columns, columns) if last is not None and same else {}
        number = 0 if last is None else last.number + 1
        moment = self._moments[who.scope] = _Moment(number, now, places.roster, columns, changes)
        return moment

    def _groups(self, who: Principal) -> list[str]:
        """The groups that the caller knows of."""
        return [name for name in self._fleet.registry.groups if not who.scope or name in who.scope]

    def _columns(self, nodes: Indices) -> Mapping[str, Coded]:
        engine = self._fleet.controller.engine
        found = {STATE: Coded(states(engine, nodes), STATES)}
        busy = engine.progress.phase[nodes] != Phase.IDLE
        words = ("", *(mutation.name for mutation in engine.in_flight.mutations))
        found[DOING] = Coded(np.where(busy, engine.progress.mutation[nodes] + 1, 0), words)
        for name, column in engine.table.columns.items():
            # The table of words grows with the fleet's life, and is only ever added to: it is not copied.
            found[name] = Coded(column.fact[nodes], column.words)  # type: ignore[arg-type]
        return found

    def places(self, who: Principal) -> Places:
        """Who is where; looked up anew only when something was said of the fleet."""
        registry = self._fleet.registry
        known = self._known.get(who.scope)
        if known is None or known.edition != registry.edition:
            nodes = self._fleet.view.order(self._fleet.seen(who, "*"), "name")
            content = hashlib.blake2b(digest_size=8)
            content.update(registry.uids[nodes].tobytes())
            content.update(registry.revisions[nodes].tobytes())
            for name in self._groups(who):
                content.update(repr((name, registry.groups[name].members)).encode())
            if known is not None and known.roster == content.hexdigest():
                known = known._replace(edition=registry.edition)
            else:
                described = [registry.node_at(index) for index in nodes.tolist()]
                names, locations = (node.name for node in described), (node.location for node in described)
                known = Places(registry.edition, nodes, tuple(names), tuple(locations), content.hexdigest())
            self._known[who.scope] = known
        return known


def _changes(rows: Sequence[transitions.Transition], uids: Uids, variables: frozenset[str]) -> list[PastChange]:
    """The changes of these nodes' facts (the log tells of desires and failures, too); a node's position is its place in
    ``uids``."""
    order = np.argsort(uids, kind="stable")
    known = uids[order]
    found = []
    for row in rows:
        for change in (change for change in row.changes if change.variable in variables):
            asked = intset.unpack(change.uids)
            places = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
            here = order[places[known[places] == asked]] if len(known) else known
            if len(here):
                found.append(PastChange.of(change, time=row.time, positions=intset.pack(here)))
    return found
