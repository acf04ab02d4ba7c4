"""Where each value of a node comes from: its own fields, its groups, and what desires want of it. Needs no service."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec import UnsetType

from strata.core import intset
from strata.core.errors import NotFound
from strata.core.model import Model
from strata.core.node import Group, Interface, Node
from strata.core.texts import wanted_values
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.registry.editor import encode
from strata.fleet.registry.registry import Registry
from strata.fleet.selectors.language import parse
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.config.records import Configuration, Origin
from strata.platform.config.repository import Repository, expanded
from strata.platform.delivery.compose import Delivered, Merged, composed
from strata.platform.delivery.records import FIELDS, AnyEntry, FileEntry, revision_of
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
    overlays = _overlays(configuration, registry, index)
    return [*found, *last.values(), *overlays, *_kept(repository, configuration, registry, index)]


def _overlays(configuration: Configuration, registry: Registry, index: int) -> Iterator[Origin]:
    """What overlays say of the node, and where."""
    overlays = configuration.overlays
    merged = Merged([one for one in overlays if parse(one.select).mask(registry, strict=False)[index]])
    layers = {entry.place: one.layer for one in overlays for field in FIELDS for entry in getattr(one, field)}
    for field in FIELDS:
        for key, entry in merged.entries[field].items():
            overridden = merged.overridden.get((field, key), [])
            yield Origin(
                field=f"{field[:-1]} {key}",
                value=_said(entry),
                layer=layers[entry.place],
                place=entry.place,
                overrides=tuple(overridden),
            )


def _said(entry: AnyEntry) -> str:
    """An entry in a few words."""
    if isinstance(entry, FileEntry):
        text = entry.template if entry.template is not None else entry.content or ""
        return entry.source or f"{len(text.encode())} bytes"
    told = msgspec.to_builtins(entry)
    return " ".join(f"{field}={told[field]}" for field in told if field not in ("place", "drift", "keys", "name"))


async def rendered(repository: Repository, node: str) -> tuple[str, Delivered]:
    """What a node would be configured with, as the repository alone describes it; and the revision."""
    configuration = repository.configuration()
    registry = _described(configuration)
    index = registry.find(node)
    if index < 0:
        raise NotFound(f"no such node: {node[:80]}", where="the repository")
    found = await composed(registry, configuration.overlays, np.array([index], dtype=np.int64), "the repository")
    return revision_of(configuration.overlays), found[node]


async def render_all(repository: Repository) -> None:
    """Raise ``BadRequest`` where a template cannot be rendered for one of the repository's nodes."""
    configuration = repository.configuration()
    if configuration.overlays:
        registry = _described(configuration)
        await composed(registry, configuration.overlays, np.flatnonzero(registry.alive), "the repository")


def _kept(repository: Repository, configuration: Configuration, registry: Registry, index: int) -> list[Origin]:
    """What rooms of their own keep for the node."""
    scopes, found = Scopes(registry), []
    for kind, said in configuration.kept.items():
        for name, one in said.items():
            if (select := getattr(one, "select", "")) and scopes.has(select, index):
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
        ports = () if isinstance(entry.interfaces, UnsetType) else entry.interfaces
        own = tuple(Interface(mac=port.mac, address=port.address, name=port.name) for port in ports)
        node = Node(name=entry.name, uid=uids[entry.name], interfaces=own, **said)
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
