"""What a selector asks: of the fleet as its owners describe it, and of what the engine knows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np

from strata.core.model import Model
from strata.fleet.columns import Mask, Words
from strata.fleet.groups.groups import no_such_group


class StateView(Protocol):
    """What the engine knows, as masks over all indices."""

    def state_mask(self, state: str) -> Mask:
        """Nodes in ``state`` (one of ``STATES``)."""
        ...

    def fact_mask(self, variable: str, value: str) -> Mask:
        """Nodes whose fact is ``value`` (``unknown`` where nothing is known)."""
        ...


class NamedGroups(Protocol):
    """The groups that a selector may name."""

    def __iter__(self) -> Iterator[str]: ...
    def mask(self, name: str) -> Mask: ...


class Selectable(Protocol):
    """What a selector needs of the registry."""

    model: Model

    @property
    def size(self) -> int: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def alive(self) -> Mask: ...
    @property
    def roles(self) -> Words: ...
    @property
    def architectures(self) -> Words: ...
    @property
    def groups(self) -> NamedGroups: ...
    def find(self, name: str) -> int: ...
    def label(self, key: str) -> Words: ...
    def location(self, kind: str) -> Words: ...
    def wanted(self, variable: str, value: str) -> Mask: ...


class _ScopedGroups:
    """The groups that a node that may be seen is in, and one's ``own``; another is not there."""

    def __init__(self, groups: NamedGroups, mask: Mask, own: Collection[str]) -> None:
        self._groups = groups
        self._mask = mask
        self._own = own

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._groups if self._is_known(name))

    def mask(self, name: str) -> Mask:
        """Its nodes that may be seen; one that is not known here is not there."""
        if name in self._groups and not self._is_known(name):
            raise no_such_group(name)
        return self._groups.mask(name)

    def _is_known(self, name: str) -> bool:
        return name in self._own or bool(np.any(self._groups.mask(name) & self._mask))


class _Scoped:
    """Nodes outside ``mask`` are not there, however they are asked for; all else is as in ``fleet``."""

    def __init__(self, fleet: Selectable, mask: Mask, own: Collection[str]) -> None:
        self._fleet = fleet
        self._mask = mask
        self._own = own

    @property
    def alive(self) -> Mask:
        return self._fleet.alive & self._mask

    @property
    def groups(self) -> NamedGroups:
        return _ScopedGroups(self._fleet.groups, self._mask, self._own)

    def find(self, name: str) -> int:
        index = self._fleet.find(name)
        return index if index >= 0 and self._mask[index] else -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)


def scoped(fleet: Selectable, mask: Mask, own: Collection[str]) -> Selectable:
    """The fleet as somebody with a scope, the nodes of ``mask`` in ``own`` groups, may know of it."""
    return cast("Selectable", _Scoped(fleet, mask, own))
