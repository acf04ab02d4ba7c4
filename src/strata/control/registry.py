"""What people have said about the fleet, in memory: nodes, groups, desires, holds, freezes, as columns by node index.

A view of the store: ``load`` lists it at one revision, ``apply`` takes the changes that a watch brings and says what
they mean (``Changes``). It never writes (``strata.control.edits`` does) and knows nothing of facts or of the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from strata.control import overrides as rows
from strata.control.changes import Changes, Touched
from strata.control.columns import Indices, Mask, Words, grown
from strata.control.documents import DesireDocument, Standing, ValueSet
from strata.control.goals import GoalColumn, Precedence, resolve
from strata.control.roster import Roster
from strata.control.selectors import StateView, parse, unknown_nodes
from strata.core import intset
from strata.core.errors import Compacted, NotFound, Unavailable
from strata.core.model import Model
from strata.core.node import Freeze, Group, Hold, Node
from strata.core.state import Desire
from strata.store.protocol import Event, Store

PREFIXES = ("node/", "group/", "desire/doc/", "desire/node/", "hold/", "freeze/")
"""The keys that the registry holds. Events of other keys are ignored."""

_node = msgspec.msgpack.Decoder(Node).decode
_group = msgspec.msgpack.Decoder(Group).decode
_document = msgspec.msgpack.Decoder(DesireDocument).decode
_hold = msgspec.msgpack.Decoder(Hold).decode
_freeze = msgspec.msgpack.Decoder(Freeze).decode

_Record = TypeVar("_Record", bound=msgspec.Struct)


class Registry:
    """The fleet as its owners describe it. Arrays that it hands out are valid until the next ``apply``."""

    def __init__(self, store: Store, model: Model) -> None:
        self.store = store
        self.model = model
        self.revision = 0
        """The store's revision up to which everything is in."""
        self.groups: dict[str, Group] = {}
        self.documents: dict[str, Standing] = {}
        self.overrides = rows.Overrides()
        self.holds: dict[str, Hold] = {}
        """By node name."""
        self.freezes: dict[str, Freeze] = {}
        """By scope: ``fleet``, ``group:NAME`` or ``node:NAME``."""
        self._roster = Roster()
        self._modified: dict[str, int] = {}
        self._goals = {name: GoalColumn(name) for name in model.variables}
        self._precedence = Precedence(model)
        self._group_masks: dict[str, Mask] = {}
        self._held: Mask = np.zeros(0, dtype=np.bool_)
        self._frozen: Mask = np.zeros(0, dtype=np.bool_)
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    # nodes

    def __len__(self) -> int:
        return len(self._roster)

    @property
    def size(self) -> int:
        """All indices are below this; some may be free."""
        return self._roster.size

    @property
    def names(self) -> Sequence[str]:
        """Name by index; empty where the index is free."""
        return self._roster.names

    @property
    def uids(self) -> npt.NDArray[np.int64]:
        """Uid by index; -1 where the index is free."""
        return self._roster.uids

    @property
    def alive(self) -> Mask:
        """Which indices are some node's."""
        return self._roster.alive

    @property
    def revisions(self) -> npt.NDArray[np.int64]:
        """The store's revision of each node's description."""
        return self._roster.revisions

    @property
    def roles(self) -> Words:
        """Each node's role."""
        return self._roster.roles

    @property
    def architectures(self) -> Words:
        """Each node's architecture."""
        return self._roster.architectures

    @property
    def held(self) -> Mask:
        """Nodes that a person took out of automation."""
        return self._held[: self.size]

    @property
    def frozen(self) -> Mask:
        """Nodes for which nothing may be started."""
        return self._frozen[: self.size]

    @property
    def roster(self) -> Roster:
        """The nodes themselves."""
        return self._roster

    def find(self, name: str) -> int:
        """The index of a node, or -1."""
        return self._roster.find(name)

    def index_of(self, name: str) -> int:
        """The index of a node; ``NotFound`` says what may have been meant."""
        index = self._roster.find(name)
        if index < 0:
            raise unknown_nodes(self, [name])
        return index

    def node(self, name: str) -> Node:
        """A node's description."""
        return self.node_at(self.index_of(name))

    def node_at(self, index: int) -> Node:
        """The description of the node at an index that is some node's."""
        node = self._roster.nodes[index]
        if node is None:
            raise NotFound("no node is at this index", where=str(index))
        return node

    def indices_of(self, uids: npt.NDArray[np.int64]) -> Indices:
        """The index of each uid; -1 where that node is no more."""
        return self._roster.indices_of(uids)

    def label(self, key: str) -> Words:
        """The values of one label over the fleet."""
        return self._roster.label(key)

    def location(self, kind: str) -> Words:
        """The cabinet (chassis, slot...) that each node is in."""
        return self._roster.location(kind)

    def select(self, text: str, states: StateView | None = None) -> Indices:
        """The nodes that a selector names, as ascending indices."""
        return parse(text).indices(self, states)

    # groups, brakes

    def group_names(self) -> Iterable[str]:
        """The names of all groups."""
        return self.groups

    def group_mask(self, name: str) -> Mask:
        """The members of a group. Not to be written to."""
        mask = self._group_masks.get(name)
        if mask is None:
            group = self.groups.get(name)
            if group is None:
                raise NotFound(f"no such group: {name[:80]}", where="group", hint="list them with: strata group list")
            mask = self._group_masks[name] = intset.contains(group.members, self.uids)
        return mask

    def groups_of(self, index: int) -> tuple[str, ...]:
        """The groups that a node is in, by name."""
        return tuple(sorted(name for name in self.groups if self.group_mask(name)[index]))

    def frozen_by(self, index: int) -> str:
        """The widest scope that freezes a node; empty: none."""
        if "fleet" in self.freezes:
            return "fleet"
        if not self._frozen[index]:
            return ""
        scopes = [f"group:{name}" for name in self.groups_of(index)] + [f"node:{self.names[index]}"]
        return next((scope for scope in scopes if scope in self.freezes), "")

    # desires

    def goals(self, variable: str) -> GoalColumn:
        """What is wanted of one variable, over the fleet, after documents and overrides have been weighed."""
        return self._goals[variable]

    def wanted(self, variable: str, value: str) -> Mask:
        """Nodes that are desired to have ``value``."""
        return self._goals[variable].where(value)

    def desires_of(self, name: str) -> list[Desire]:
        """Everything that is wanted of one node, with who wants it."""
        index = self.index_of(name)
        found: dict[str, Desire] = {}

        def lay_on(desires: list[Desire]) -> None:
            """What comes later wins, also over what cannot be true together with it."""
            wanted = {desire.variable: desire.values for desire in desires}
            for moot in [variable for variable in found if self._precedence.rules_out(wanted, variable)]:
                del found[moot]
            found.update({desire.variable: desire for desire in desires})

        for standing in self._ranked(self.documents.values()):
            if standing.mask[index]:
                document = standing.document
                lay_on(
                    [
                        Desire(
                            variable=variable,
                            values=values,
                            author=document.author,
                            revision=standing.revision,
                            origin=document.name,
                        )
                        for variable, values in document.set.items()
                    ]
                )
        lay_on(
            [
                Desire(variable=variable, values=cell.values, author=cell.author, revision=cell.revision, origin="node")
                for variable, cell in self.overrides.of(int(self.uids[index])).items()
            ]
        )
        return [found[variable] for variable in self.model.variables if variable in found]

    def preview(
        self, nodes: Indices, wanted: Mapping[str, ValueSet], documents: Sequence[DesireDocument] = ()
    ) -> dict[str, list[ValueSet]]:
        """What would be wanted of ``nodes`` if these documents stood and ``wanted`` were set on them. Changes nothing.

        All values are checked ones (``documents.checked``, ``documents.value_sets``)."""
        standing = dict(self.documents)
        for document in documents:
            standing[document.name] = Standing(document, self.revision + 1, self)
        ranked = self._ranked(standing.values())
        found = {}
        for variable in self._goals:
            if variable in wanted:
                found[variable] = [wanted[variable]] * len(nodes)
            elif self._precedence.rules_out(wanted, variable):
                found[variable] = [()] * len(nodes)
            else:
                column = GoalColumn(variable)  # its own: that of the fleet keeps every value that it has met
                codes = resolve(column, ranked, self.overrides, self._precedence, nodes, self.uids[nodes])
                found[variable] = [column.table[code] for code in codes.tolist()]
        return found

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
        self._roster.begin_round()
        touched = Touched()
        for event in events:
            if event.key.startswith(PREFIXES):
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
            self._group_masks.pop(name, None)
            _keep(self.groups, name, None if value is None else _group(value))
        elif key.startswith(rows.PREFIX):
            row = {} if value is None else rows.decode(value, key)
            chunk = rows.chunk_of(key)
            touched.chunks.setdefault(chunk, set()).update(self.overrides.put(chunk, row, event.revision))
        elif kind == "desire":
            name = key.removeprefix("desire/doc/")
            touched.documents[name] = (None if value is None else _document(value), event.revision)
        elif kind == "hold":
            touched.holds.add(name)
            _keep(self.holds, name, None if value is None else _hold(value))
        else:
            touched.freezes = True
            _keep(self.freezes, name, None if value is None else _freeze(value))

    def _take_node(self, name: str, value: bytes | None, revision: int, touched: Touched) -> None:
        node = None if value is None else _node(value)
        index = self._roster.find(name)
        if index >= 0 and (node is None or node.uid != self._roster.uids[index]):
            self._roster.remove(name)
            touched.removed(index)
        if node is not None:
            touched.put(*self._roster.put(node, revision))

    def _settle(self, touched: Touched) -> Changes:
        """Bring everything that follows from the taken changes up to date."""
        added, removed, replaced = touched.nodes()
        self._resize()
        fresh = np.concatenate((added, removed, replaced))
        if len(fresh):
            for name, mask in self._group_masks.items():
                mask[fresh] = intset.contains(self.groups[name].members, self.uids[fresh])
        stale = self._stale_desires(touched, fresh)
        goals: dict[str, Indices] = {}
        ranked = self._ranked(self.documents.values()) if stale else []
        for variable, parts in stale.items():
            nodes = np.unique(np.concatenate(parts))
            column = self._goals[variable]
            changed = column.update(
                nodes, resolve(column, ranked, self.overrides, self._precedence, nodes, self.uids[nodes])
            )
            if len(changed := self._living(changed)):
                goals[variable] = changed
        return Changes(
            added=added,
            removed=removed,
            nodes_changed=replaced,
            goals_changed=goals,
            holds_changed=self._settle_holds(touched, fresh),
            freezes_changed=self._settle_freezes(touched, len(fresh) > 0),
            groups_changed=bool(touched.groups),
        )

    def _resize(self) -> None:
        size = self.size
        self._held, self._frozen = grown(self._held, size), grown(self._frozen, size)
        for name, mask in self._group_masks.items():
            if len(mask) < size:
                self._group_masks[name] = np.concatenate((mask, np.zeros(size - len(mask), dtype=np.bool_)))
        for column in self._goals.values():
            column.resize(size)

    def _stale_desires(self, touched: Touched, fresh: Indices) -> dict[str, list[Indices]]:
        """For each variable, whose goal must be looked at again."""
        stale: dict[str, list[Indices]] = {name: [fresh] for name in self._goals} if len(fresh) else {}

        def note(variables: Iterable[str], nodes: Indices) -> None:
            for variable in self._precedence.touched(variables):
                if variable in self._goals and len(nodes):
                    stale.setdefault(variable, []).append(nodes)

        for name, (document, revision) in touched.documents.items():
            before = self.documents.pop(name, None)
            if before is not None:
                note(before.document.set, np.flatnonzero(before.mask))
            if document is not None:
                self.documents[name] = now = Standing(document, revision, self)
                note(document.set, np.flatnonzero(now.mask))
        for standing in self.documents.values():
            if standing.document.name in touched.documents:
                continue
            if len(fresh) or "*" in standing.selector.groups or touched.groups & standing.selector.groups:
                old = standing.mask
                standing.evaluate(self)
                differs = standing.mask.copy()
                differs[: len(old)] ^= old
                note(standing.document.set, np.flatnonzero(differs))
        for chunk, variables in touched.chunks.items():
            uids = np.arange(chunk * rows.CHUNK, (chunk + 1) * rows.CHUNK, dtype=np.int64)
            nodes = self.indices_of(uids)
            note(variables, nodes[nodes >= 0])
        return stale

    def _settle_holds(self, touched: Touched, fresh: Indices) -> Indices:
        nodes = {index for name in touched.holds if (index := self.find(name)) >= 0}.union(fresh.tolist())
        if not nodes:
            return fresh
        at = np.array(sorted(nodes), dtype=np.int64)
        new = np.fromiter((self.names[index] in self.holds for index in at.tolist()), dtype=np.bool_, count=len(at))
        changed: Indices = at[(self._held[at] != new) | _members(at, touched.holds, self.names)]
        self._held[at] = new
        return self._living(changed)

    def _settle_freezes(self, touched: Touched, nodes_changed: bool) -> Indices:
        if not touched.freezes and not (self.freezes and (nodes_changed or touched.groups)):
            return np.empty(0, dtype=np.int64)
        new = self.alive if "fleet" in self.freezes else np.zeros(self.size, dtype=np.bool_)
        for scope in self.freezes:
            kind, _, name = scope.partition(":")
            if kind == "group" and name in self.groups:
                new = new | self.group_mask(name)
            elif kind == "node" and (index := self.find(name)) >= 0:
                new[index] = True
        changed = np.flatnonzero(self.frozen != new)
        self._frozen[: self.size] = new
        return self._living(changed)

    def _living(self, nodes: Indices) -> Indices:
        living: Indices = nodes[self.alive[nodes]]
        return living

    @staticmethod
    def _ranked(standings: Iterable[Standing]) -> list[Standing]:
        return sorted(standings, key=lambda standing: standing.rank)


def _keep(table: dict[str, _Record], name: str, record: _Record | None) -> None:
    if record is None:
        table.pop(name, None)
    else:
        table[name] = record


def _members(at: Indices, names: set[str], by_index: Sequence[str]) -> Mask:
    return np.fromiter((by_index[index] in names for index in at.tolist()), dtype=np.bool_, count=len(at))
