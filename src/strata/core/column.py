"""Values for many nodes at once: the form in which facts travel between drivers and the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strata.core.model import UNKNOWN

Codes = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]


_FEW = 32
"""Below this a slice gains nothing."""


def span(nodes: Indices) -> slice | Indices:
    """The same places of an array, as a slice where they are evenly apart: numpy looks a slice up several times as
    fast, and batches of a large fleet mostly are, being of one shard. What is read by it may be a view: not to be kept
    over a write.
    """
    count = len(nodes)
    if count < _FEW:
        return nodes
    first, step, last = int(nodes[0]), int(nodes[1] - nodes[0]), int(nodes[-1])
    if step < 1 or last - first != step * (count - 1) or not (nodes[1:] - nodes[:-1] == step).all():
        return nodes
    return slice(first, last + 1, step)


class Column:
    """One value per node of a batch, dictionary-encoded: code 0 is unknown, code ``i`` is ``words[i - 1]``."""

    __slots__ = ("codes", "reasons", "words")

    def __init__(self, words: Sequence[str], codes: Codes, reasons: Mapping[int, str] | None = None) -> None:
        self.words = tuple(words)
        self.codes = codes
        self.reasons = reasons or {}
        """Position → why it is so, or why nothing is known there; only where somebody knows."""

    @classmethod
    def of(cls, values: Iterable[str | None]) -> Column:
        """From plain values; None and ``unknown`` are unknown."""
        words: dict[str, int] = {}
        codes = [
            0 if value is None or value == UNKNOWN else words.setdefault(value, len(words) + 1) for value in values
        ]
        return cls(tuple(words), np.array(codes, dtype=np.int32))

    @classmethod
    def same(cls, value: str | None, count: int) -> Column:
        """The same value ``count`` times."""
        if value is None or value == UNKNOWN:
            return cls((), np.zeros(count, dtype=np.int32))
        return cls((value,), np.ones(count, dtype=np.int32))

    @classmethod
    def joined(cls, columns: Sequence[Column]) -> Column:
        """One after the other."""
        if len(columns) == 1:
            return columns[0]
        words: dict[str, int] = {}
        parts: list[Codes] = []
        reasons: dict[int, str] = {}
        at = 0
        for column in columns:
            table = [0, *(words.setdefault(word, len(words) + 1) for word in column.words)]
            same = table == list(range(len(table)))
            parts.append(column.codes if same else np.array(table, dtype=np.int32)[column.codes])
            reasons |= {at + place: reason for place, reason in column.reasons.items()}
            at += len(column)
        return cls(tuple(words), np.concatenate(parts), reasons)

    def __len__(self) -> int:
        return len(self.codes)

    def values(self) -> list[str]:
        """Plain values, ``unknown`` where nothing is known."""
        table = (UNKNOWN, *self.words)
        return [table[code] for code in self.codes.tolist()]

    def take(self, positions: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Column:
        """The part at ``positions``."""
        reasons = {}
        if self.reasons:
            places = np.arange(len(self.codes))[positions].tolist()
            reasons = {new: self.reasons[old] for new, old in enumerate(places) if old in self.reasons}
        return Column(self.words, self.codes[positions], reasons)
