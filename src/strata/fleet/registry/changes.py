"""What a batch of store events means: ``Touched`` while it is taken in, ``Changes`` for who follows the registry."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strata.fleet.columns import NOBODY, Indices, indices
from strata.fleet.desires.documents import DesireDocument


class Changes(msgspec.Struct, kw_only=True, eq=False):
    """What is different now. All fields hold ascending node indices; a removed index is given to another node only in
    a later batch."""

    added: Indices = NOBODY
    removed: Indices = NOBODY
    nodes_changed: Indices = NOBODY
    """Nodes that stayed and whose description (location, labels, controller...) is another."""
    goals_changed: Mapping[str, Indices] = {}
    """Variable → nodes that are now wanted otherwise."""
    holds_changed: Indices = NOBODY
    """Nodes that were held or released, or whose hold has another reason."""
    freezes_changed: Indices = NOBODY
    """Nodes whose brake went on or off."""
    groups_changed: bool = False
    """Some group came, went or has other members."""
    limits_changed: bool = False
    """Some limit came, went or has other numbers."""
    revision: int = 0
    """Up to which revision of the store everything is in."""

    def __bool__(self) -> bool:
        arrays = (self.added, self.removed, self.nodes_changed, self.holds_changed, self.freezes_changed)
        flags = self.goals_changed or self.groups_changed or self.limits_changed
        return bool(flags or any(map(len, arrays)))


class Touched:
    """What a batch has touched so far."""

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.documents: dict[str, tuple[DesireDocument | None, int]] = {}
        self.chunks: dict[int, set[str]] = {}
        """Override row → variables with cells before or after."""
        self.holds: set[str] = set()
        self.freezes = False
        self.limits = False
        self._added: set[int] = set()
        self._removed: set[int] = set()
        self._replaced: set[int] = set()

    def put(self, index: int, new: bool) -> None:
        """A node came, or its description changed."""
        (self._added if new else self._replaced).add(index)

    def removed(self, index: int) -> None:
        """A node went."""
        self._removed.add(index)

    def nodes(self) -> tuple[Indices, Indices, Indices]:
        """Added, removed and replaced nodes. Who came and went within the batch was never here."""
        fleeting = self._added & self._removed
        return (
            indices(self._added - fleeting),
            indices(self._removed - fleeting),
            indices(self._replaced - self._added - self._removed),
        )
