"""The fleet as it would be with some nodes and groups that are not written yet: what selectors would mean then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.model import Model
from strata.core.node import Group, Node
from strata.fleet.columns import Mask, Words
from strata.fleet.groups.groups import no_such_group
from strata.fleet.nodes.locations import ancestor_finder
from strata.fleet.registry.registry import Registry


class Trial:
    """Can be selected from (``Selectable``). ``nodes`` come after all that there are; one that is there already is at
    its new place only."""

    def __init__(self, registry: Registry, nodes: Sequence[Node], groups: Mapping[str, Group]) -> None:
        self._registry = registry
        self._nodes = nodes
        self._places = {node.name: registry.size + at for at, node in enumerate(nodes)}
        self.model: Model = registry.model
        self.groups = _Groups(self, {**registry.groups, **groups})
        there = [index for node in nodes if (index := registry.find(node.name)) >= 0]
        self._alive: Mask = np.r_[registry.alive, np.ones(len(nodes), dtype=np.bool_)]
        self._alive[there] = False
        self.uids: npt.NDArray[np.int64] = np.r_[registry.uids, np.array([node.uid for node in nodes], dtype=np.int64)]

    @property
    def size(self) -> int:
        return self._registry.size + len(self._nodes)

    @property
    def names(self) -> Sequence[str]:
        return [*self._registry.names, *self._places]

    @property
    def alive(self) -> Mask:
        return self._alive

    @property
    def roles(self) -> Words:
        return self._registry.roles.extended(node.role for node in self._nodes)

    @property
    def architectures(self) -> Words:
        return self._registry.architectures.extended(node.architecture for node in self._nodes)

    def find(self, name: str) -> int:
        return self._places.get(name, self._registry.find(name))

    def label(self, key: str) -> Words:
        return self._registry.label(key).extended(node.labels.get(key, "") for node in self._nodes)

    def location(self, kind: str) -> Words:
        return self._registry.location(kind).extended(map(ancestor_finder(kind), (n.location for n in self._nodes)))

    def wanted(self, variable: str, value: str) -> Mask:
        """What is wanted of new nodes, nobody has said yet."""
        found: Mask = np.r_[self._registry.wanted(variable, value), np.zeros(len(self._nodes), dtype=np.bool_)]
        return found


class _Groups:
    """The groups as they would be."""

    def __init__(self, trial: Trial, groups: Mapping[str, Group]) -> None:
        self._trial = trial
        self._groups = groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def mask(self, name: str) -> Mask:
        if name not in self._groups:
            raise no_such_group(name)
        mask: Mask = intset.contains(self._groups[name].members, self._trial.uids) & self._trial.alive
        return mask
