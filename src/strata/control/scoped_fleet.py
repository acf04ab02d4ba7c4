"""The fleet as somebody with a scope may know of it: nodes outside are not there, however they are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from strata.control.columns import Mask, Words
from strata.control.groups import Groups
from strata.control.registry import Registry


class ScopedFleet:
    """What selectors ask of a registry (``selectable.Fleet``), limited to the nodes of ``mask``."""

    def __init__(self, registry: Registry, mask: Mask) -> None:
        self._registry = registry
        self._mask = mask
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
    def groups(self) -> Groups:
        """As in the registry."""
        return self._registry.groups

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
