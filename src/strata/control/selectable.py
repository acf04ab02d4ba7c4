"""What a selector asks: of the fleet as its owners describe it, and of what the engine knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from strata.control.columns import Mask, Words
from strata.core.model import Model

STATES = ("ready", "converging", "waiting", "faulted", "held", "frozen", "unreachable", "unmanaged", "unknown")
"""What can be said of a node as a whole; each node is in just one."""


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


class Fleet(Protocol):
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
