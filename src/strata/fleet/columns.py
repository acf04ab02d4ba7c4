"""Columns that grow with the fleet: plain arrays and dictionary-coded words, one cell per node index.

Knows nothing of nodes; an index is just a position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from strata.core.distinct import distinct

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_T = TypeVar("_T", bound=np.generic)
_V = TypeVar("_V")

NOBODY: Indices = np.empty(0, dtype=np.int64)
"""No index at all."""


def grown(array: npt.NDArray[_T], size: int, fill: Any = 0) -> npt.NDArray[_T]:
    """``array`` with room for at least ``size`` cells; new ones hold ``fill``. Doubles, so that growth is cheap."""
    if size <= len(array):
        return array
    larger = np.full(max(size, 2 * len(array), 64), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def indices(positions: list[int] | set[int]) -> Indices:
    """Sorted index array of ``positions``, each once."""
    return distinct(np.array(list(positions), dtype=np.int64)) if positions else NOBODY


class Coded(Generic[_V]):
    """One value per index, dictionary-coded: code 0 is ``none``, code ``i`` is ``table[i]``."""

    __slots__ = ("_codes", "_ids", "_size", "table")

    def __init__(self, none: _V, size: int = 0) -> None:
        self.table: list[_V] = [none]
        """Only grows: a code means the same as long as the column lives."""
        self._ids: dict[_V, int] = {none: 0}
        self._codes: Codes = np.zeros(max(size, 64), dtype=np.int32)
        self._size = size

    @property
    def codes(self) -> Codes:
        """One code per index; valid until the column next grows."""
        return self._codes[: self._size]

    def resize(self, size: int) -> None:
        """Make room for indices below ``size``."""
        self._codes = grown(self._codes, size)
        self._size = max(size, self._size)

    def intern(self, value: _V) -> int:
        """The code of ``value``, new if need be."""
        code = self._ids.get(value)
        if code is None:
            code = self._ids[value] = len(self.table)
            self.table.append(value)
        return code


class Words(Coded[str]):
    """One word per index; empty is none."""

    __slots__ = ()

    def __init__(self, size: int = 0) -> None:
        super().__init__("", size)

    def set(self, index: int, word: str) -> None:
        """Give the cell at ``index`` a word; empty clears it."""
        self._codes[index] = self.intern(word)

    def get(self, index: int) -> str:
        """The word at ``index``; empty where there is none."""
        return self.table[int(self._codes[index])]

    def extended(self, words: Iterable[str]) -> Words:
        """A column of its own, with these words after all that there are."""
        more = list(words)
        made = Words(self._size + len(more))
        made.table, made._ids = list(self.table), dict(self._ids)
        made._codes[: self._size] = self.codes
        for at, word in enumerate(more, self._size):
            made.set(at, word)
        return made

    def where(self, word: str) -> Mask:
        """Who has ``word``."""
        code = self._ids.get(word, -1)
        found: Mask = self.codes == code
        return found
