"""What is wanted of every node, after documents and overrides have been weighed: one coded column per variable.

Pure: documents, their masks and the overrides come in; codes come out. Nothing here reads the store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strata.control.columns import Codes, Indices, Mask, grown
from strata.control.documents import Standing, ValueSet
from strata.control.overrides import Overrides, Uids


class GoalColumn:
    """One variable's goals over the fleet: code 0 is no desire, code ``i`` is any of ``table[i]``."""

    __slots__ = ("_codes", "_ids", "_size", "table", "variable")

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self.table: list[ValueSet] = [()]
        """Only grows: a code means the same as long as the registry lives."""
        self._ids: dict[ValueSet, int] = {(): 0}
        self._codes: Codes = np.zeros(64, dtype=np.int32)
        self._size = 0

    @property
    def codes(self) -> Codes:
        """One code per node index; valid until the registry next changes."""
        return self._codes[: self._size]

    def intern(self, values: ValueSet) -> int:
        """The code of a set of values, new if need be."""
        code = self._ids.get(values)
        if code is None:
            code = self._ids[values] = len(self.table)
            self.table.append(values)
        return code

    def resize(self, size: int) -> None:
        """Make room for indices below ``size``."""
        self._codes = grown(self._codes, size)
        self._size = size

    def where(self, value: str) -> Mask:
        """Nodes for which ``value`` would do."""
        accepting = [code for code, values in enumerate(self.table) if value in values]
        return np.isin(self.codes, accepting)

    def update(self, nodes: Indices, codes: Codes) -> Indices:
        """Put new codes in place; the nodes for which that is a change."""
        changed: Indices = nodes[self._codes[nodes] != codes]
        self._codes[nodes] = codes
        return changed


def resolve(
    column: GoalColumn, documents: Sequence[Standing], overrides: Overrides, nodes: Indices, uids: Uids
) -> Codes:
    """The goal of each of ``nodes`` (whose uids are ``uids``), in the column's codes. Documents come by rising rank."""
    codes = np.zeros(len(nodes), dtype=np.int32)
    for standing in documents:
        values = standing.document.set.get(column.variable)
        if values is not None:
            codes[standing.mask[nodes]] = column.intern(values)
    own = overrides.codes(column.variable, uids, column.intern)
    return np.where(own != 0, own, codes)
