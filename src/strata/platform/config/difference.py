"""What a configuration differs in from what is there: the edit that makes it so, and that in words.

Of a node only the fields that the configuration says are compared. One that it said the last time and says no more
goes back to what it is by itself; what it never said is left alone, and so is everything that did not come from it.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from strata.core.errors import BadRequest
from strata.core.node import Node
from strata.core.nodeset import expand, fold
from strata.core.texts import wanted_values
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.nodes.edits import checked_node
from strata.fleet.nodes.interfaces import with_known_addresses
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.registry.registry import Registry
from strata.fleet.registry.whole_edits import GroupMembers, WholeEdit
from strata.platform.config.kept import KEPT
from strata.platform.config.records import (
    Action,
    Applied,
    ConfigChange,
    Configuration,
    KeptKind,
    Kind,
    Named,
    NodeEntry,
)
from strata.platform.config.repository import expanded
from strata.platform.delivery.records import Overlays, revision_of
from strata.provisioning.personalities.records import Personality

_S = TypeVar("_S", bound=msgspec.Struct)
_AT_A_TIME = 250
"""Nodes that are looked at before others have a turn."""
_OWN = {name: getattr(Node(name="n", uid=0), name) for name in NodeSpec.__struct_fields__ if name != "name"}
"""What a field of a node is where nobody says anything of it."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written, and what that changes."""

    edit: WholeEdit
    personalities: Mapping[str, Personality | None]
    """None: it goes."""
    kept: Mapping[KeptKind, Mapping[str, Named | None]]
    """The same of what rooms of their own keep, by kind."""
    changes: tuple[ConfigChange, ...]
    unchanged: int
    applied: Applied
    """What is there because of the configuration, once it is applied."""


class _Changes:
    """What differs, as it is found, and how much does not."""

    def __init__(self, configuration: Configuration) -> None:
        self.same = 0
        self._place = configuration.place
        self._nodes: dict[tuple[Action, str], list[str]] = {}
        """Those alike together."""
        self._others: list[ConfigChange] = []

    def note_node(self, name: str, action: Action, detail: str = "") -> None:
        self._nodes.setdefault((action, detail), []).append(name)

    def note(self, kind: Kind, name: str, action: Action, detail: str = "") -> None:
        place = "" if action == "removed" else self._place(kind, name)
        self._others.append(ConfigChange(kind=kind, name=name, action=action, detail=detail, place=place))

    def edits(
        self,
        kind: Kind,
        there: Mapping[str, _S],
        wanted: Mapping[str, _S],
        before: Iterable[str],
        words: Callable[[_S], str],
        alike: Callable[[_S, _S], bool] = operator.eq,
    ) -> dict[str, _S | None]:
        """Documents that are others than those there, or are gone. ``before``: those that came from the
        configuration."""
        edits: dict[str, _S | None] = {}
        for name, one in wanted.items():
            if name in there and alike(there[name], one):
                self.same += 1
                continue
            edits[name] = one
            self.note(kind, name, "changed" if name in there else "created", words(one))
        for name in before:
            if name not in wanted and name in there:
                edits[name] = None
                self.note(kind, name, "removed")
        return edits

    def all(self) -> tuple[ConfigChange, ...]:
        nodes = (
            ConfigChange(kind="node", name=fold(names), action=action, count=len(names), detail=detail)
            for (action, detail), names in self._nodes.items()
        )
        return (*nodes, *self._others)


async def difference(
    registry: Registry,
    personalities: Mapping[str, Personality],
    overlays: Overlays,
    kept: Mapping[KeptKind, Mapping[str, Named]],
    configuration: Configuration,
    applied: Applied,
    author: str,
) -> Difference:
    """How ``registry``, ``personalities``, ``overlays`` and what rooms have ``kept`` differ from the configuration,
    given what was applied before it."""
    seen = registry.revision
    changes = _Changes(configuration)
    before = {name: fields.split(",") for fields, names in applied.nodes.items() for name in expand(names)}
    nodes: list[Node] = []
    for at, entry in enumerate(configuration.nodes):
        if at % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        if (node := _node(registry, entry, before.get(entry.name, ()), changes)) is not None:
            nodes.append(node)
    named = {entry.name for entry in configuration.nodes}
    gone = [name for name in before if name not in named and registry.find(name) >= 0]
    for name in gone:
        changes.note_node(name, "removed")
    groups = _groups(registry, configuration, applied, frozenset(gone), changes)
    documents = _documents(registry, configuration, applied, author, changes)
    run = changes.edits(
        "personality",
        personalities,
        {one.name: one for one in configuration.personalities},
        applied.personalities,
        lambda one: ", ".join(f"{member.name}={member.release}" for member in one.members),
    )
    _note_overlays(overlays, configuration, changes)
    others = {
        kind: changes.edits(kind, kept.get(kind, {}), wanted, applied.kept.get(kind, ()), KEPT[kind].words)
        for kind, wanted in configuration.kept.items()
    }
    return Difference(
        edit=WholeEdit(seen=seen, nodes=nodes, no_nodes=gone, groups=groups, documents=documents),
        personalities=run,
        kept=others,
        changes=changes.all(),
        unchanged=changes.same,
        applied=came_from(configuration),
    )


def came_from(configuration: Configuration) -> Applied:
    """What is there because of a configuration, without who applied it and when."""
    by_fields: dict[str, list[str]] = {}
    for entry in configuration.nodes:
        by_fields.setdefault(",".join(entry.said), []).append(entry.name)
    return Applied(
        commit=configuration.commit,
        system=configuration.system,
        nodes={fields: fold(names) for fields, names in by_fields.items()},
        groups=tuple(group.name for group in configuration.groups),
        desires=tuple(desire.name for desire in configuration.desires),
        personalities=tuple(personality.name for personality in configuration.personalities),
        overlays=revision_of(configuration.overlays) if configuration.overlays else "",
        kept={kind: tuple(said) for kind, said in configuration.kept.items() if said},
    )


def both(one: Applied, other: Applied) -> Applied:
    """What is there because of either: while one takes the place of the other, in several transactions."""
    fields: dict[str, set[str]] = {}
    for applied in (one, other):
        for said, names in applied.nodes.items():
            for name in expand(names):
                fields.setdefault(name, set()).update(said.split(","))
    by_fields: dict[str, list[str]] = {}
    for name, those in fields.items():
        by_fields.setdefault(",".join(sorted(those)), []).append(name)
    return msgspec.structs.replace(
        one,
        nodes={said: fold(names) for said, names in by_fields.items()},
        groups=tuple(dict.fromkeys((*one.groups, *other.groups))),
        desires=tuple(dict.fromkeys((*one.desires, *other.desires))),
        personalities=tuple(dict.fromkeys((*one.personalities, *other.personalities))),
        kept={
            kind: tuple(dict.fromkeys((*one.kept.get(kind, ()), *other.kept.get(kind, ()))))
            for kind in {*one.kept, *other.kept}
        },
    )


def _node(registry: Registry, entry: NodeEntry, before: Iterable[str], changes: _Changes) -> Node | None:
    """The node as it should be; None: it is so already."""
    index = registry.find(entry.name)
    there = registry.nodes[index] if index >= 0 else None
    said = entry.said
    if there is not None and _is_so(there, entry, said, before):
        changes.same += 1
        return None
    fields = {} if there is None else {name: getattr(there, name) for name in _OWN}
    fields.update({name: _OWN[name] for name in before if name in _OWN and name not in said})
    fields.update({name: getattr(entry, name) for name in said})
    fields["labels"] = {key: value for key, value in fields.get("labels", {}).items() if value is not None}
    wanted = checked_node(NodeSpec(name=entry.name, **fields))
    if there is None:
        changes.note_node(entry.name, "created")
        return wanted
    known = with_known_addresses(wanted.interfaces, there.interfaces)
    wanted = msgspec.structs.replace(wanted, uid=there.uid, interfaces=known)
    if wanted == there:
        changes.same += 1
        return None
    changes.note_node(entry.name, "changed", _words(there, wanted))
    return wanted


def _is_so(there: Node, entry: NodeEntry, said: Iterable[str], before: Iterable[str]) -> bool:
    """Whether a node plainly is as it should be: nearly all are, nearly always, and need no checking anew."""
    for name in said:
        if name == "interfaces":
            ports = [(one.mac, one.address, one.name, one.port) for one in there.interfaces]
            told = [(one.mac, one.address, one.name, one.port) for one in entry.interfaces or ()]
            if len(ports) != len(told):
                return False
            for port, one in zip(ports, told, strict=True):
                if one != (
                    port[0],
                    one[1] and port[1],
                    port[2],
                    port[3],
                ):  # an address that is not said is ours to give
                    return False
        elif getattr(entry, name) != getattr(there, name):
            return False
    return not any(name not in said for name in before)


def _words(old: Node, new: Node) -> str:
    """What is different, in few words: nodes of which the same is said are shown together."""
    words = []
    for name in _OWN:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if name == "labels":
            for key in sorted({*before, *after}):
                if before.get(key) != after.get(key):
                    words.append(f"label {key} {before.get(key, 'none')} → {after.get(key, 'none')}")
        elif name in ("role", "architecture"):
            words.append(f"{name} {before} → {after}")
        else:
            words.append(name)  # its own with every node
    return "; ".join(words)


def _groups(
    registry: Registry, configuration: Configuration, applied: Applied, gone: frozenset[str], changes: _Changes
) -> dict[str, GroupMembers | None]:
    wanted = {group.name: group for group in configuration.groups}
    after = frozenset(entry.name for entry in configuration.nodes) | (frozenset(registry.names) - gone) - {""}
    try:
        members = expanded(wanted, after)
    except BadRequest as error:
        name = error.where.removeprefix("group ")
        raise BadRequest(error.detail, where=configuration.place("group", name), hint=error.hint) from None
    edits: dict[str, GroupMembers | None] = {}
    for name, group in wanted.items():
        if missing := members[name] - after:
            raise BadRequest(
                f"there is no node {fold(missing)[:200]}",
                where=f"{configuration.place('group', name)}: group {name}",
                hint="describe the node in the repository, add it, or leave it out",
            )
        there = registry.groups.get(name)
        now = (
            frozenset(registry.names[index] for index in registry.groups.mask(name).nonzero()[0].tolist())
            if there is not None
            else frozenset()
        )
        if there is not None and now == members[name] and there.description == group.description:
            changes.same += 1
            continue
        edits[name] = GroupMembers(members=members[name], description=group.description)
        more, fewer = members[name] - now, now - members[name]
        words = [f"+{fold(more)[:200]}" if more else "", f"-{fold(fewer)[:200]}" if fewer else ""]
        action: Action = "changed" if there is not None else "created"
        changes.note("group", name, action, " ".join(word for word in words if word) or "description")
    for name in applied.groups:
        if name not in wanted and name in registry.groups:
            edits[name] = None
            changes.note("group", name, "removed")
    return edits


def _documents(
    registry: Registry, configuration: Configuration, applied: Applied, author: str, changes: _Changes
) -> dict[str, DesireDocument | None]:
    there = {name: standing.document for name, standing in registry.desires.documents.items()}
    wanted = {}
    for desire in configuration.desires:
        values = {variable: tuple(sorted(set(wanted_values(given)))) for variable, given in desire.set.items()}
        wanted[desire.name] = DesireDocument(
            name=desire.name, select=desire.select, set=values, priority=desire.priority, author=author
        )
    return changes.edits("desire", there, wanted, applied.desires, _desire_words, DesireDocument.same_as)


def _desire_words(one: DesireDocument) -> str:
    said = ", ".join(f"{variable}={'|'.join(given)}" for variable, given in one.set.items())
    return f"{one.select[:200]}: {said}"


def _note_overlays(there: Overlays, configuration: Configuration, changes: _Changes) -> None:
    """What is said of overlays anew: they are kept all together, so that there is nothing to write for each."""
    before, after = _by_name(there), _by_name(configuration.overlays)
    for name in sorted({*before, *after}):
        if name in before and name in after and revision_of(before[name]) == revision_of(after[name]):
            changes.same += 1
            continue
        action: Action = "removed" if name not in after else "changed" if name in before else "created"
        changes.note("overlay", name, action, (after.get(name) or before[name])[-1].select[:200])


def _by_name(overlays: Overlays) -> dict[str, Overlays]:
    found: dict[str, Overlays] = {}
    for overlay in overlays:
        found[overlay.name] = (*found.get(overlay.name, ()), overlay)
    return found
