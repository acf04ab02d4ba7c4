"""What is wanted of every node, after documents and overrides have been weighed: one coded column per variable.

Pure: documents, their masks and the overrides come in; codes come out. Nothing here reads the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from strata.core.distinct import among
from strata.core.model import UNKNOWN, Model
from strata.fleet.columns import Coded, Codes, Indices, Mask
from strata.fleet.desires.documents import Standing, ValueSet
from strata.fleet.desires.overrides import Overrides, Uids


class GoalColumn(Coded[ValueSet]):
    """One variable's goals over the fleet: code 0 is no desire, code ``i`` is any of ``table[i]``."""

    __slots__ = ("variable",)

    def __init__(self, variable: str) -> None:
        super().__init__(())
        self.variable = variable

    def where(self, value: str) -> Mask:
        """Nodes for which ``value`` would do."""
        accepting = [code for code, values in enumerate(self.table) if value in values]
        return among(self.codes, accepting)

    def update(self, nodes: Indices, codes: Codes) -> Indices:
        """Put new codes in place; the nodes for which that is a change."""
        changed: Indices = nodes[self._codes[nodes] != codes]
        self._codes[nodes] = codes
        return changed


class Precedence:
    """Which desires leave no room for which others: who wants the power off wants nothing of the OS."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[tuple[str, ValueSet], frozenset[str]] = {}
        self._followers = {
            name: frozenset().union(*(model.lost_with({name: value}) for value in (UNKNOWN, *variable.values)))
            for name, variable in model.variables.items()
        }

    def moot(self, variable: str, values: ValueSet) -> frozenset[str]:
        """What cannot be had together with any of ``values``."""
        key = (variable, values)
        if key not in self._known:
            self._known[key] = self._model.ruled_out(variable, values)
        return self._known[key]

    def judge(self, leader: str, variable: str) -> Callable[[ValueSet], int]:
        """Tells 1 for what, wanted of ``leader``, makes ``variable`` moot, and 0 for the rest."""
        return lambda values: int(variable in self.moot(leader, values))

    def leaders(self, variable: str) -> list[str]:
        """The variables that may make ``variable`` moot."""
        return [name for name, followers in self._followers.items() if variable in followers]

    def touched(self, variables: Iterable[str]) -> set[str]:
        """The variables whose goals may change when desires for ``variables`` do."""
        return {name for variable in variables for name in (variable, *self._followers.get(variable, ()))}

    def rules_out(self, wanted: Mapping[str, ValueSet], variable: str) -> bool:
        """Whether ``wanted`` leaves no room for a desire about ``variable``."""
        return any(variable in self.moot(name, values) for name, values in wanted.items())


def resolve(
    column: GoalColumn,
    documents: Sequence[Standing],
    overrides: Overrides,
    precedence: Precedence,
    nodes: Indices,
    uids: Uids,
    newest: Mapping[str, ValueSet] | None = None,
) -> Codes:
    """The goal of each of ``nodes`` (whose uids are ``uids``), in the column's codes. Documents come by rising rank.
    ``newest``: what would be set on all of them now.

    What comes later wins, also over what cannot be true together with it: documents, then overrides by revision."""
    newest = newest or {}
    variable = column.variable
    if variable in newest:
        return np.full(len(nodes), column.intern(newest[variable]), dtype=np.int32)
    codes = np.zeros(len(nodes), dtype=np.int32)
    if precedence.rules_out(newest, variable):
        return codes
    for standing in documents:
        wanted = standing.document.set
        if variable in wanted:
            codes[standing.mask[nodes]] = column.intern(wanted[variable])
        elif precedence.rules_out(wanted, variable):
            codes[standing.mask[nodes]] = 0
    own = overrides.codes(variable, uids, column.intern)
    since = overrides.revisions(variable, uids) if own.any() else None
    for leader in precedence.leaders(variable):
        if leader in newest:
            continue
        moot = overrides.codes(leader, uids, precedence.judge(leader, variable)) != 0
        codes[moot] = 0
        if since is not None and moot.any():
            own[moot & (overrides.revisions(leader, uids) > since)] = 0
    return np.where(own != 0, own, codes)
