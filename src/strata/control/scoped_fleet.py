"""The fleet as somebody with a scope may know of it: nodes outside are not there, however they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from strata.control.columns import Mask, Words
from strata.control.groups import Groups, no_such_group
from strata.control.registry import Registry
from strata.control.selectable import NamedGroups


class _ScopedGroups:
    """The groups that somebody may know of: its own nodes tell of them."""

    def __init__(self, groups: Groups, mask: Mask, own: Collection[str]) -> None:
        self._groups = groups
        self._mask = mask
        self._own = own

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._groups if self._is_known(name))

    def mask(self, name: str) -> Mask:
        """The members of a group."""
        if name in self._groups and not self._is_known(name):
            raise no_such_group(name)
        return self._groups.mask(name)

    def _is_known(self, name: str) -> bool:
        return name in self._own or bool(np.any(self._groups.mask(name) & self._mask))


class ScopedFleet:
    """What selectors ask of a registry (``selectable.Fleet``), limited to the nodes of ``mask``, those in ``own``
    groups."""

    def __init__(self, registry: Registry, mask: Mask, own: Collection[str]) -> None:
        self._registry = registry
        self._mask = mask
        self._own = own
        self.model = registry.model

    @property
    def size(self) -> int:
        """As in the registry."""
        return self._registry.size

    @property
    def names(self) -> Sequence[str]:
        """As in the registry; who is not ``alive`` here is in no selection."""
        return self._registry.names

    @property
    def alive(self) -> Mask:
        """Which indices are some node's that may be seen."""
        return self._registry.alive & self._mask

    @property
    def roles(self) -> Words:
        """As in the registry."""
        return self._registry.roles

    @property
    def architectures(self) -> Words:
        """As in the registry."""
        return self._registry.architectures

    @property
    def groups(self) -> NamedGroups:
        """Those that a node that may be seen is in; another is not there."""
        return _ScopedGroups(self._registry.groups, self._mask, self._own)

    def find(self, name: str) -> int:
        """The index of a node, or -1."""
        index = self._registry.find(name)
        return index if index >= 0 and self._mask[index] else -1

    def label(self, key: str) -> Words:
        """As in the registry."""
        return self._registry.label(key)

    def location(self, kind: str) -> Words:
        """As in the registry."""
        return self._registry.location(kind)

    def wanted(self, variable: str, value: str) -> Mask:
        """As in the registry."""
        return self._registry.wanted(variable, value)
