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

RULES_OUT = 2
"""The code of a desire that leaves no room for another variable's; 1 is that of any other desire."""


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
        """Tells ``RULES_OUT`` for what, wanted of ``leader``, makes ``variable`` moot, and 1 for the rest."""
        return lambda values: RULES_OUT if variable in self.moot(leader, values) else 1

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

    What comes later wins, also over what cannot be true together with it: documents, then overrides by revision. But
    what a document wants of a variable that nothing later speaks of stands: a node that is to be off is to be off,
    whoever names an image for it, and has that when it is wanted on."""
    newest = newest or {}
    variable = column.variable
    if variable not in newest and precedence.rules_out(newest, variable):
        return np.zeros(len(nodes), dtype=np.int32)
    codes = np.zeros(len(nodes), dtype=np.int32)
    for standing in documents:
        wanted = standing.document.set
        if variable in wanted:
            codes[standing.mask[nodes]] = column.intern(wanted[variable])
        elif precedence.rules_out(wanted, variable):
            codes[standing.mask[nodes]] = 0
    if variable in newest:
        own, since = np.full(len(nodes), column.intern(newest[variable]), dtype=np.int32), None
    else:
        own = overrides.codes(variable, uids, column.intern)
        since = overrides.revisions(variable, uids) if own.any() else None
    for leader in precedence.leaders(variable):
        if leader in newest:
            continue
        said = overrides.codes(leader, uids, precedence.judge(leader, variable))
        moot = said == RULES_OUT
        if since is not None and moot.any():
            own[moot & (overrides.revisions(leader, uids) > since)] = 0
        if any(precedence.rules_out(one.about(leader), variable) for one in documents):
            ruled = (said == 0) & _ruled_out(variable, leader, documents, precedence, nodes)
            moot |= ruled
            own[ruled & ~among(own, _strikes(column, leader, precedence))] = 0
        codes[moot] = 0
    return np.where(own != 0, own, codes)


def _strikes(column: GoalColumn, leader: str, precedence: Precedence) -> list[int]:
    """The codes of what, in its turn, leaves no room for ``leader``."""
    variable = column.variable
    return [code for code, values in enumerate(column.table) if leader in precedence.moot(variable, values)]


def _ruled_out(
    variable: str, leader: str, documents: Sequence[Standing], precedence: Precedence, nodes: Indices
) -> Mask:
    """For which nodes the last word of the documents about ``leader`` leaves no room for ``variable``."""
    ruled = np.zeros(len(nodes), dtype=np.bool_)
    for standing in documents:
        wanted = standing.document.set
        if leader in wanted:
            ruled[standing.mask[nodes]] = precedence.rules_out(standing.about(leader), variable)
        elif precedence.rules_out(wanted, leader):
            ruled[standing.mask[nodes]] = False
    return ruled
