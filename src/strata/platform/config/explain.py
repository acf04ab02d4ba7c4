"""Where each value of a node comes from: its own fields, its groups, and what desires want of it. Needs no service."""

from __future__ import annotations

import numpy as np

from strata.core import intset
from strata.core.model import Model
from strata.core.node import Group, Node
from strata.core.texts import wanted_values
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.registry.editor import encode
from strata.fleet.registry.registry import Registry
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.config.records import Configuration, Origin
from strata.platform.config.repository import Repository, expanded
from strata.platform.model import LAYER as PLATFORM
from strata.platform.scopes import Scopes
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from strata.store.protocol import Event


def explain(repository: Repository, node: str) -> list[Origin]:
    """Everything that the repository says of a node, and where."""
    found = repository.explain(node)
    configuration = repository.configuration()
    registry = _described(configuration)
    index = registry.index_of(node)
    places: dict[str, list[str]] = {}
    last: dict[str, Origin] = {}
    for standing in sorted(registry.desires.documents.values(), key=lambda standing: standing.rank):
        if not standing.mask[index]:
            continue
        document = standing.document
        for variable, values in document.set.items():
            layer, place = repository.desired_by(document.name, variable)
            last[variable] = Origin(
                field=f"desire {variable}",
                value="|".join(values),
                layer=layer,
                place=f"{place} ({document.name}, priority {document.priority})",
                overrides=tuple(places.setdefault(variable, [])),
            )
            places[variable].append(place)
    return [*found, *last.values(), *_kept(repository, configuration, registry, index)]


def _kept(repository: Repository, configuration: Configuration, registry: Registry, index: int) -> list[Origin]:
    """What rooms of their own keep for the node."""
    scopes, found = Scopes(registry), []
    for kind, said in configuration.kept.items():
        for name, one in said.items():
            if scopes.has(one.select, index):
                layer, place = repository.said_by(kind, name)
                found.append(Origin(field=kind, value=name, layer=layer, place=place))
    return found


def _described(configuration: Configuration) -> Registry:
    """The fleet as the configuration alone describes it."""
    registry = Registry(MemoryStore(), Model.of(HARDWARE, PROVISIONING, PLATFORM))
    events = []
    uids = {entry.name: uid for uid, entry in enumerate(configuration.nodes, 1)}
    for entry in configuration.nodes:
        said = {field: getattr(entry, field) for field in entry.said if field != "interfaces"}
        node = Node(name=entry.name, uid=uids[entry.name], **said)
        events.append(Event(1, f"node/{entry.name}", encode(node)))
    groups = {group.name: group for group in configuration.groups}
    for name, members in expanded(groups, frozenset(uids)).items():
        there = np.array(sorted(uids[one] for one in members if one in uids), dtype=np.int64)
        group = Group(name=name, members=intset.pack(there))
        events.append(Event(1, f"group/{name}", encode(group)))
    for desire in configuration.desires:
        wanted = {variable: wanted_values(values) for variable, values in desire.set.items()}
        document = DesireDocument(name=desire.name, select=desire.select, set=wanted, priority=desire.priority)
        events.append(Event(1, f"desire/doc/{desire.name}", encode(document)))
    registry.apply(events)
    return registry
