"""What people have said about the fleet, in memory: nodes, groups, desires, holds, freezes, as columns by node index.

A view of the store: ``load`` lists it at one revision, ``apply`` takes the changes that a watch brings and says what
they mean (``Changes``). It never writes (``edits`` does) and knows nothing of facts or of the engine.
The nodes are its own (``Roster``); what follows from the other records is worked out by its parts: ``groups``,
``desires`` and ``brakes``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from strata.core.errors import Compacted, NotFound, Unavailable
from strata.core.model import Model
from strata.core.node import Freeze, Group, Hold, Limit, Node
from strata.fleet.brakes.brakes import Brakes
from strata.fleet.columns import Indices, Mask
from strata.fleet.desires import overrides as rows
from strata.fleet.desires.desires import Desires
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.groups.groups import Groups
from strata.fleet.nodes.roster import Roster
from strata.fleet.nodes.unknown import unknown_nodes
from strata.fleet.registry.changes import Changes, Touched
from strata.fleet.selectors.language import parse
from strata.fleet.selectors.selectable import StateView
from strata.store.protocol import Event, Store

PREFIXES = ("node/", "group/", "desire/doc/", "desire/node/", "hold/", "freeze/", "limit/")
"""The keys that the registry holds. Events of other keys are ignored."""

_node = msgspec.msgpack.Decoder(Node).decode
_group = msgspec.msgpack.Decoder(Group).decode
_document = msgspec.msgpack.Decoder(DesireDocument).decode
_hold = msgspec.msgpack.Decoder(Hold).decode
_freeze = msgspec.msgpack.Decoder(Freeze).decode
_limit = msgspec.msgpack.Decoder(Limit).decode

_Record = TypeVar("_Record", bound=msgspec.Struct)
_Made = TypeVar("_Made")


class Registry(Roster):
    """The fleet as its owners describe it; what selectors ask (``selectable.Selectable``). Arrays that it
    hands out are valid until the next ``apply``."""

    def __init__(self, store: Store, model: Model) -> None:
        super().__init__()
        self.store = store
        self.model = model
        self.revision = 0
        """The store's revision up to which everything is in."""
        self.edition = 0
        """Counts when anything was said anew, of whatever is held here. The store's revision counts more than that."""
        self.groups = Groups(self)
        self.brakes = Brakes(self, self.groups)
        self.desires = Desires(self)
        self.departed: list[Callable[[str], None]] = []
        """Who is told the names of nodes that are gone, before another of that name is there."""
        self._modified: dict[str, int] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    # nodes

    def kept(self, make: Callable[[], _Made]) -> Callable[[], _Made]:
        """Gives what is made of the nodes' descriptions: the same until one of them is new, changed or gone."""
        stamp, made = (-1, -1), list[_Made]()

        def now() -> _Made:
            nonlocal stamp
            # A node that is new or changed has the highest revision; one that is gone is one less.
            current = (int(self.revisions.max(initial=0)), len(self))
            if current != stamp:
                made[:] = [make()]
                stamp = current
            return made[0]

        return now

    def index_of(self, name: str) -> int:
        """The index of a node; ``NotFound`` says what may have been meant."""
        index = self.find(name)
        if index < 0:
            raise unknown_nodes(self, [name])
        return index

    def node(self, name: str) -> Node:
        """A node's description."""
        return self.node_at(self.index_of(name))

    def node_at(self, index: int) -> Node:
        """The description of the node at an index that is some node's."""
        node = self.nodes[index]
        if node is None:
            raise NotFound("no node is at this index", where=str(index))
        return node

    def select(self, text: str, states: StateView | None = None) -> Indices:
        """The nodes that a selector names, as ascending indices."""
        return parse(text).indices(self, states)

    def wanted(self, variable: str, value: str) -> Mask:
        """Nodes that are desired to have ``value``."""
        return self.desires.goals(variable).where(value)

    # following the store

    def modified(self, key: str) -> int:
        """The revision of a key as last seen; 0: it is not there."""
        return self._modified.get(key, 0)

    async def load(self) -> Changes:
        """Take in the whole store as it is now; what that changed. Also the answer to ``Compacted`` from a watch: go on
        from ``revision`` + 1."""
        for _ in range(5):
            try:
                events, revision = await self._listing()
            except Compacted:
                continue
            return self._apply(events, revision)
        raise Unavailable("the store is compacted faster than it can be listed", hint="compact less often")

    def apply(self, events: Sequence[Event]) -> Changes:
        """Take in changes (whole revisions, in order: what one watch of all keys brings)."""
        return self._apply(events, events[-1].revision if events else self.revision)

    async def reached(self, revision: int, timeout: float = 10.0) -> None:
        """Wait until ``apply`` was given ``revision``; ``Unavailable`` after ``timeout`` seconds."""
        if self.revision >= revision:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, future))
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise Unavailable(
                f"the view is at revision {self.revision} and does not reach {revision}", hint="try again"
            ) from None
        finally:
            self._waiters = [waiter for waiter in self._waiters if waiter[1] is not future]

    async def _listing(self) -> tuple[list[Event], int]:
        """The store as events that turn this view into it."""
        events: list[Event] = []
        revision: int | None = None
        seen: set[str] = set()
        for prefix in PREFIXES:
            page = await self.store.range(prefix, revision=revision)
            revision = page.revision if revision is None else revision
            for entry in page.entries:
                seen.add(entry.key)
                if self._modified.get(entry.key) != entry.modified:
                    events.append(Event(entry.modified, entry.key, entry.value))
        gone = self._modified.keys() - seen
        return [*(Event(revision or 0, key, None) for key in sorted(gone)), *events], revision or 0

    def _apply(self, events: Sequence[Event], revision: int) -> Changes:
        self.begin_round()
        touched = Touched()
        for event in events:
            if event.key.startswith(PREFIXES):
                self.edition += 1
                self._take(event, touched)
        changes = self._settle(touched)
        self.revision = max(self.revision, revision)
        changes.revision = self.revision
        for wanted, future in self._waiters:
            if wanted <= self.revision and not future.done():
                future.set_result(None)
        return changes

    def _take(self, event: Event, touched: Touched) -> None:
        key, value = event.key, event.value
        if value is None:
            if self._modified.pop(key, None) is None:
                return
        else:
            self._modified[key] = event.revision
        kind, _, name = key.partition("/")
        if kind == "node":
            self._take_node(name, value, event.revision, touched)
        elif kind == "group":
            touched.groups.add(name)
            if value is None:
                self.groups.remove(name)
            else:
                self.groups.put(name, _group(value))
        elif key.startswith(rows.PREFIX):
            row = {} if value is None else rows.decode(value, key)
            chunk = rows.chunk_of(key)
            touched.chunks.setdefault(chunk, set()).update(self.desires.overrides.put(chunk, row, event.revision))
        elif kind == "desire":
            name = key.removeprefix("desire/doc/")
            touched.documents[name] = (None if value is None else _document(value), event.revision)
        elif kind == "hold":
            touched.holds.add(name)
            _keep(self.brakes.holds, name, None if value is None else _hold(value))
        elif kind == "limit":
            touched.limits = True
            _keep(self.brakes.limits, name, None if value is None else _limit(value))
        else:
            touched.freezes = True
            _keep(self.brakes.freezes, name, None if value is None else _freeze(value))

    def _take_node(self, name: str, value: bytes | None, revision: int, touched: Touched) -> None:
        node = None if value is None else _node(value)
        index = self.find(name)
        if index >= 0 and (node is None or node.uid != self.uids[index]):
            self.remove(name)
            touched.removed(index)
            for told in self.departed:
                told(name)
        if node is not None:
            touched.put(*self.put(node, revision))

    def _settle(self, touched: Touched) -> Changes:
        """Bring everything that follows from the taken changes up to date."""
        added, removed, replaced = touched.nodes()
        fresh = np.concatenate((added, removed, replaced))
        self.groups.settle(fresh)
        return Changes(
            added=added,
            removed=removed,
            nodes_changed=replaced,
            goals_changed=self.desires.settle(touched, fresh),
            holds_changed=self.brakes.settle_holds(touched, fresh),
            freezes_changed=self.brakes.settle_freezes(touched, fresh),
            groups_changed=bool(touched.groups),
            limits_changed=touched.limits,
        )


def _keep(table: dict[str, _Record], name: str, record: _Record | None) -> None:
    if record is None:
        table.pop(name, None)
    else:
        table[name] = record
