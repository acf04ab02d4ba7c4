"""The fleet as columns: facts and goals of every node, as small integers in arrays.

A node is an index. Whole-fleet questions are a few array operations; nothing here loops over nodes. It does not know
what to do about a node (``strata.engine.reconciler``), only what is believed and wanted of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Codes, Column, Indices, span
from strata.core.distinct import among, distinct
from strata.core.model import ABSENT, UNKNOWN, WANTED, Model, Variable

Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.float64]

NEVER = float("inf")


class FactClass(NamedTuple):
    """A fact as the planner sees it."""

    symbol: str
    unseen: bool
    """Its observer looked and saw nothing."""
    implied: bool


class VariableColumns:
    """One variable over the fleet.

    ``fact`` is 0 for unknown, else a code of ``words``. ``goal`` is 0 for no desire, else a code of ``goals``.
    """

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self.words: list[str] = [UNKNOWN, *((ABSENT,) if variable.open else variable.values)]
        self._codes = {word: code for code, word in enumerate(self.words)}
        self.goals: list[tuple[str, ...]] = [()]
        self._goal_codes: dict[tuple[str, ...], int] = {(): 0}
        self._goal_word = np.zeros(1, dtype=np.int32)
        self.fact: Codes = np.zeros(0, dtype=np.int32)
        self.last: Codes = np.zeros(0, dtype=np.int32)
        """The last known value, also while it is unknown."""
        self.before: Codes = np.zeros(0, dtype=np.int32)
        """The value that was recorded last and is not ``unknown``; 0: none, or something happened that it cannot have
        outlived."""
        self.seen: Times = np.full(0, -np.inf)
        self.source: npt.NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        self.unseen: Mask = np.zeros(0, dtype=bool)
        """Its observer looked, and saw nothing: it is unknown, or known by implication only."""
        self.implied: Mask = np.zeros(0, dtype=bool)
        """Known only because another variable's fact proves it (``Variable.implies``)."""
        self.provable = False
        """Whether that can be: nothing looks at ``implied`` where it cannot."""
        self.goal: Codes = np.zeros(0, dtype=np.int32)
        self.sources: list[str] = [""]

    def grow(self, size: int) -> None:
        """Make room for ``size`` nodes."""
        for name in ("fact", "last", "before", "seen", "source", "unseen", "implied", "goal"):
            old, fill = getattr(self, name), -np.inf if name == "seen" else 0
            new = np.full(size, fill, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def forget_nodes(self, nodes: Indices) -> None:
        """As if the nodes had never been there."""
        self.fact[nodes] = self.last[nodes] = self.before[nodes] = self.source[nodes] = self.goal[nodes] = 0
        self.seen[nodes] = -np.inf
        self.unseen[nodes] = self.implied[nodes] = False

    def word_code(self, word: str) -> int:
        """The code of a value. A closed variable knows only its own: anything else is 0, unknown."""
        code = self._codes.get(word)
        if code is None:
            if not self.variable.open:
                return 0
            code = self._codes[word] = len(self.words)
            self.words.append(word)
        return code

    def encode(self, column: Column) -> Codes:
        """A driver's column in this table's codes."""
        codes = [0, *(self.word_code(word) for word in column.words)]
        if codes == list(range(len(codes))):
            return column.codes
        return np.array(codes, dtype=np.int32)[column.codes]

    def source_code(self, source: str) -> int:
        """A small integer for who said it."""
        if source not in self.sources:
            self.sources.append(source)
        return self.sources.index(source)

    def goal_code(self, values: Iterable[str]) -> int:
        """A small integer for a set of wanted values; 0 for none."""
        wanted = tuple(sorted(set(values)))
        code = self._goal_codes.get(wanted)
        if code is None:
            code = self._goal_codes[wanted] = len(self.goals)
            self.goals.append(wanted)
            word = self.word_code(wanted[0]) if len(wanted) == 1 else -1
            self._goal_word = np.append(self._goal_word, np.int32(word))
        return code

    def satisfied(self, nodes: Indices) -> Mask:
        """Where the goal holds, or there is none. Unknown never satisfies a goal."""
        here = span(nodes)
        fact, goal = self.fact[here], self.goal[here]
        word = self._goal_word[goal]
        held: Mask = (goal == 0) | ((fact == word) & (fact != 0))
        for code in distinct(goal[word == -1]).tolist():
            accepted = [self.word_code(value) for value in self.goals[code]]
            held |= (goal == code) & among(fact, accepted) & (fact != 0)
        return held

    def has_value(self, nodes: Indices) -> Mask:
        """Where it is known to be something."""
        has: Mask = self.fact[nodes] > (self.words.index(ABSENT) if self.variable.open else 0)
        return has

    def symbols(self, nodes: Indices) -> Codes:
        """What the planner sees: 0 unknown, 1.. the variable's symbols, last+1: looked at and still unknown."""
        here = span(nodes)
        fact = self.fact[here]
        if self.variable.open:
            # words: 1 is absent, 2.. are values; symbols: 1 absent, 2 other, 3 wanted
            symbol = np.minimum(fact, 2)
            wanted = self.satisfied(nodes) & (self.goal[here] != 0) & (fact > 1)
            symbol[wanted] = 3
            if self.variable.nothing:
                nothing = fact == self.word_code(self.variable.nothing)
                symbol[nothing & ~wanted & (self.goal[here] != 0)] = 1
        else:
            symbol = fact.copy()
        symbol[(fact == 0) & self.unseen[here]] = len(self.variable.symbols) + 1
        return symbol

    def fact_classes(self, nodes: Indices) -> Codes:
        """``symbols``, told apart further: last+1 on, whether it is implied, and whether its observer saw nothing."""
        symbol = self.symbols(nodes)
        if self.provable and (implied := self.implied[nodes]).any():
            width = len(self.variable.symbols)
            symbol[implied] += 1 + width * np.where(self.unseen[nodes[implied]], 2, 1).astype(np.int32)
        return symbol

    def fact_class(self, code: int) -> FactClass:
        """What ``fact_classes`` means."""
        symbols, width = (UNKNOWN, *self.variable.symbols), len(self.variable.symbols)
        if code <= width:
            return FactClass(symbols[code], unseen=False, implied=False)
        if code == width + 1:
            return FactClass(UNKNOWN, unseen=True, implied=False)
        times, place = divmod(code - width - 2, width)
        return FactClass(symbols[place + 1], unseen=bool(times), implied=True)

    def goal_classes(self, nodes: Indices) -> Codes:
        """The goal as the planner needs to tell it apart; for an open variable only whether absence will do."""
        goal = self.goal[nodes]
        if not self.variable.open:
            return goal
        table = np.fromiter((self._open_class(values) for values in self.goals), dtype=np.int32, count=len(self.goals))
        return table[goal]

    def goal_symbols(self, goal_class: int) -> frozenset[str] | None:
        """What ``goal_classes`` means: the symbols that will do, None for no desire."""
        if goal_class == 0:
            return None
        if not self.variable.open:
            return frozenset(self.goals[goal_class])
        return (frozenset({WANTED}), frozenset({ABSENT}), frozenset({WANTED, ABSENT}))[goal_class - 1]

    def goal_column(self, nodes: Indices) -> Column:
        """What is wanted, as a driver needs to know it (the first value, where several would do)."""
        words = [values[0] if values else UNKNOWN for values in self.goals]
        return Column(tuple(words[1:]), self.goal[nodes])

    @staticmethod
    def _open_class(values: Sequence[str]) -> int:
        if not values:
            return 0
        if ABSENT not in values:
            return 1
        return 2 if len(values) == 1 else 3


class FleetTable:
    """All variables over the fleet, and the class that each node is in."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.size = 0
        self.columns = {name: VariableColumns(variable) for name, variable in model.variables.items()}
        for rule in model.implications():
            self.columns[rule.other].provable = True

    def grow(self, size: int) -> None:
        """Make room for at least ``size`` nodes."""
        if size > self.size:
            self.size = max(size, self.size * 2 if self.size > 1000 else size)
            for column in self.columns.values():
                column.grow(self.size)

    def classes(self, nodes: Indices) -> tuple[npt.NDArray[np.int64], list[tuple[int, ...]]]:
        """Group ``nodes``: for each the number of its class, and for each class its (fact class, goal class) pairs."""
        parts: list[Codes] = []
        for column in self.columns.values():
            parts += (column.fact_classes(nodes), column.goal_classes(nodes))
        key = np.zeros(len(nodes), dtype=np.int64)
        span = 1
        for part in parts:
            width = int(part.max(initial=0)) + 1
            if span * width > 2**62:
                _, key = np.unique(key, return_inverse=True)
                span = int(key.max(initial=0)) + 1
            key = key * width + part
            span *= width
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        rows = np.stack([part[first] for part in parts], axis=1) if len(first) else np.zeros((0, 0), dtype=np.int32)
        return inverse.astype(np.int64), [tuple(row) for row in rows.tolist()]
