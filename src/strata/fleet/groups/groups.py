"""The groups by name, and who is in each of them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from strata.core import intset
from strata.core.errors import NotFound
from strata.core.node import Group
from strata.fleet.columns import Indices, Mask
from strata.fleet.nodes.roster import Roster


def no_such_group(name: str) -> NotFound:
    """The error for a group that is not there, for the one who asks."""
    return NotFound(f"no such group: {name[:80]}", where="group", hint="list them with: strata group list")


class Groups(Mapping[str, Group]):
    """Every group there is. Masks that it hands out are valid until the next change, and not to be written to."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._records: dict[str, Group] = {}
        self._masks: dict[str, Mask] = {}

    def __getitem__(self, name: str) -> Group:
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def mask(self, name: str) -> Mask:
        """The members of a group."""
        mask = self._masks.get(name)
        if mask is None:
            group = self._records.get(name)
            if group is None:
                raise no_such_group(name)
            mask = self._masks[name] = intset.contains(group.members, self._roster.uids)
        return mask

    def of(self, index: int) -> tuple[str, ...]:
        """The groups that a node is in, by name."""
        return tuple(sorted(name for name in self._records if self.mask(name)[index]))

    def put(self, name: str, group: Group) -> None:
        """A group came, or is another now."""
        self._masks.pop(name, None)
        self._records[name] = group

    def remove(self, name: str) -> None:
        """A group went."""
        self._masks.pop(name, None)
        self._records.pop(name, None)

    def settle(self, fresh: Indices) -> None:
        """Look again who is where, after nodes came, went or changed at the indices ``fresh``."""
        size = self._roster.size
        for name, mask in self._masks.items():
            if len(mask) < size:
                self._masks[name] = np.concatenate((mask, np.zeros(size - len(mask), dtype=np.bool_)))
        if len(fresh):
            for name, mask in self._masks.items():
                mask[fresh] = intset.contains(self._records[name].members, self._roster.uids[fresh])
