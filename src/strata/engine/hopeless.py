"""Steps under way that can no longer end well, so that nobody waits for all of their time.

That is so where something that it requires has taken a value that its own variable does not outlive
(``Variable.lost_when``): a node without power does not boot, however long one waits. Both must be declared: a value
that is merely required at the start may well change on the way.
"""

from __future__ import annotations

import numpy as np

from strata.core.column import Indices
from strata.core.distinct import among
from strata.core.model import UNKNOWN, Model, Mutation, Values
from strata.engine.progress import Progress
from strata.engine.table import NEVER, FleetTable


class HopelessSteps:
    """Sees which nodes' steps have become hopeless, and since when (``Progress.hopeless_since``)."""

    def __init__(self, model: Model, table: FleetTable, progress: Progress, sure_after: float) -> None:
        self._progress = progress
        self._sure_after = sure_after
        self._fatal = [
            [
                (column := table.columns[name], [(UNKNOWN, *column.variable.symbols).index(word) for word in words])
                for name, words in fatal(model, mutation).items()
            ]
            for mutation in model.mutations.values()
        ]
        """By number of the mutation, as ``Progress.mutation`` holds it: columns, and symbols with which it is over."""

    def hopeless(self, number: int, nodes: Indices) -> dict[int, str]:
        """The nodes of which it is certain, and what happened. A single look is not: power that is cycled is off for a
        moment, and that may be the step itself."""
        blamed = np.full(len(nodes), -1, dtype=np.int64)
        seen = np.full(len(nodes), -NEVER)
        for place, (column, codes) in enumerate(self._fatal[number]):
            here = among(column.symbols(nodes), codes)
            blamed[here] = place
            seen[here] = column.seen[nodes[here]]
        since = np.where(blamed >= 0, np.minimum(self._progress.hopeless_since[nodes], seen), NEVER)
        self._progress.hopeless_since[nodes] = since
        said = {}
        for at in np.flatnonzero((blamed >= 0) & (seen - since >= self._sure_after)).tolist():
            node, column = int(nodes[at]), self._fatal[number][blamed[at]][0]
            said[node] = f"{column.variable.name} went {column.words[column.fact[node]]}"
        return said


def fatal(model: Model, mutation: Mutation) -> dict[str, Values]:
    """Variables and values with which ``mutation`` does not end well any more; what lies deepest comes last."""
    found: dict[str, Values] = {}
    own = model.effects(mutation)
    ahead = [
        (name, words - mutation.requires[name])
        for name, words in model.variables[mutation.variable].lost_when.items()
        if name in mutation.requires
    ]
    while ahead:
        name, words = ahead.pop(0)
        if name in own or name in found or not words:
            continue
        found[name] = words
        ahead += model.variables[name].lost_when.items()
    return found
