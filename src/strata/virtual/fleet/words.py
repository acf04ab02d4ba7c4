"""The values that simulated nodes can have, and their codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from strata.core.column import Codes, Column
from strata.core.errors import BadRequest
from strata.core.model import ABSENT
from strata.virtual.fleet.model import OPEN_VARIABLES, TARGETS, WORDS


class Words:
    """Codes as in ``Column``: 1 is the first word. Variables that are open learn words as they come."""

    def __init__(self) -> None:
        self._learned: dict[str, dict[str, int]] = {name: {ABSENT: 1} for name in OPEN_VARIABLES}

    def of(self, variable: str) -> tuple[str, ...]:
        """The values that ``variable`` has had, in the order of their codes."""
        return tuple(self._learned[variable]) if variable in self._learned else WORDS[variable]

    def code(self, variable: str, value: str) -> int:
        """The code of one value."""
        if variable in self._learned:
            words = self._learned[variable]
            return words.setdefault(value, len(words) + 1)
        if value not in WORDS.get(variable, ()):
            raise BadRequest(f"{value!r} is not a value of it", where=variable)
        return WORDS[variable].index(value) + 1

    def goals(self, mutation: str, goals: Mapping[str, Column] | None, count: int) -> Codes:
        """What ``mutation`` brings each of ``count`` nodes to; ``goals`` says it where the mutation does not."""
        variable, word = TARGETS[mutation]
        if word:
            return np.full(count, WORDS[variable].index(word) + 1, dtype=np.int32)
        column = (goals or {}).get(variable)
        if column is None:
            raise BadRequest(f"{mutation} needs to know which {variable}", where=mutation)
        return self.coded(variable, column, count, ABSENT)

    def coded(self, variable: str, column: Column | None, count: int, otherwise: str) -> Codes:
        """``column`` in our own codes; ``otherwise`` where it says nothing."""
        if column is None:
            return np.full(count, self.code(variable, otherwise), dtype=np.int32)
        words = (otherwise, *column.words)
        return np.array([self.code(variable, word) for word in words], dtype=np.int32)[column.codes]
