"""Desires as they stand: documents and what is set on nodes themselves, and what they come to for every node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from strata.core.distinct import distinct
from strata.core.state import Desire
from strata.fleet.columns import Codes, Indices
from strata.fleet.desires import overrides as rows
from strata.fleet.desires.documents import DesireDocument, Standing, ValueSet
from strata.fleet.desires.goals import GoalColumn, Precedence, resolve
from strata.fleet.registry.changes import Touched

if TYPE_CHECKING:
    from strata.fleet.registry.registry import Registry


class Desires:
    """What is wanted of the nodes of ``fleet``, which documents select from."""

    def __init__(self, fleet: Registry) -> None:
        self.documents: dict[str, Standing] = {}
        self.overrides = rows.Overrides()
        self._fleet = fleet
        self._goals = {name: GoalColumn(name) for name in fleet.model.variables}
        self._precedence = Precedence(fleet.model)

    def goals(self, variable: str) -> GoalColumn:
        """What is wanted of one variable, over the fleet, after documents and overrides have been weighed."""
        return self._goals[variable]

    def rivals(self, variable: str) -> frozenset[str]:
        """The variables of which something may be wanted that cannot be true together with this one's desire."""
        return frozenset((*self._precedence.touched([variable]), *self._precedence.leaders(variable))) - {variable}

    def of(self, index: int) -> list[Desire]:
        """Everything that is wanted of one node, with who wants it."""
        found: dict[str, Desire] = {}

        def lay_on(desires: list[Desire]) -> None:
            """What comes later wins, also over what cannot be true together with it."""
            wanted = {desire.variable: desire.values for desire in desires}
            for moot in [variable for variable in found if self._precedence.rules_out(wanted, variable)]:
                del found[moot]
            found.update({desire.variable: desire for desire in desires})

        for standing in _ranked(self.documents.values()):
            if standing.mask[index]:
                document = standing.document
                lay_on(
                    [
                        Desire(
                            variable=variable,
                            values=values,
                            author=document.author,
                            revision=standing.revision,
                            origin=document.name,
                        )
                        for variable, values in document.set.items()
                    ]
                )
        cells = self.overrides.of(int(self._fleet.uids[index]))
        standing_by = {name: desire.values for name, desire in found.items() if name not in cells}

        def ruled_out(variable: str, values: ValueSet | None) -> bool:
            own = {} if values is None else {variable: values}
            return any(
                self._precedence.rules_out({name: said}, variable) and not self._precedence.rules_out(own, name)
                for name, said in standing_by.items()
            )

        for moot in [name for name in found if ruled_out(name, None)]:
            del found[moot]
        own = [
            Desire(variable=variable, values=cell.values, author=cell.author, revision=cell.revision, origin="node")
            for variable, cell in cells.items()
            if not ruled_out(variable, cell.values)
        ]
        for revision in sorted({desire.revision for desire in own}):
            lay_on([desire for desire in own if desire.revision == revision])
        return [found[variable] for variable in self._goals if variable in found]

    def waiting(self, index: int) -> list[tuple[str, ValueSet, Desire]]:
        """What is set on the node itself and counts for nothing, with what a document wants instead."""
        standing = [desire for desire in self.of(index) if desire.origin != "node"]
        found = []
        for variable, cell in self.overrides.of(int(self._fleet.uids[index])).items():
            for desire in standing:
                if self._precedence.rules_out({desire.variable: desire.values}, variable):
                    found.append((variable, cell.values, desire))
                    break
        return found

    def preview(
        self, nodes: Indices, wanted: Mapping[str, ValueSet], documents: Sequence[DesireDocument] = ()
    ) -> dict[str, list[ValueSet]]:
        """What would be wanted of ``nodes`` if these documents stood and ``wanted`` were set on them. Changes nothing.

        All values are checked ones (``documents.checked``, ``documents.value_sets``)."""
        standing = dict(self.documents)
        newest = 1 + max((one.revision for one in standing.values()), default=0)
        for document in documents:
            standing[document.name] = Standing(document, newest, self._fleet)
        ranked = _ranked(standing.values())
        found = {}
        for variable in self._goals:
            column = GoalColumn(variable)  # its own: that of the fleet keeps every value that it has met
            codes = self._resolved(column, ranked, nodes, wanted)
            found[variable] = [column.table[code] for code in codes.tolist()]
        return found

    def settle(self, touched: Touched, fresh: Indices) -> dict[str, Indices]:
        """Bring the goals up to date; variable → nodes of which something else is wanted now."""
        for column in self._goals.values():
            column.resize(self._fleet.size)
        stale = self._stale(touched, fresh)
        ranked = _ranked(self.documents.values()) if stale else []
        found: dict[str, Indices] = {}
        for variable, parts in stale.items():
            nodes = distinct(np.concatenate(parts))
            column = self._goals[variable]
            changed = self._fleet.living(column.update(nodes, self._resolved(column, ranked, nodes)))
            if len(changed):
                found[variable] = changed
        return found

    def _resolved(
        self,
        column: GoalColumn,
        ranked: Sequence[Standing],
        nodes: Indices,
        newest: Mapping[str, ValueSet] | None = None,
    ) -> Codes:
        return resolve(column, ranked, self.overrides, self._precedence, nodes, self._fleet.uids[nodes], newest)

    def _stale(self, touched: Touched, fresh: Indices) -> dict[str, list[Indices]]:
        """For each variable, whose goal must be looked at again."""
        stale: dict[str, list[Indices]] = {name: [fresh] for name in self._goals} if len(fresh) else {}

        def note(variables: Iterable[str], nodes: Indices) -> None:
            for variable in self._precedence.touched(variables):
                if variable in self._goals and len(nodes):
                    stale.setdefault(variable, []).append(nodes)

        for name, (document, revision) in touched.documents.items():
            before = self.documents.pop(name, None)
            if before is not None:
                note(before.document.set, np.flatnonzero(before.mask))
            if document is not None:
                self.documents[name] = now = Standing(document, revision, self._fleet)
                note(document.set, np.flatnonzero(now.mask))
        for standing in self.documents.values():
            if standing.document.name in touched.documents:
                continue
            if len(fresh) or "*" in standing.selector.groups or touched.groups & standing.selector.groups:
                old = standing.mask
                standing.evaluate(self._fleet)
                differs = standing.mask.copy()
                differs[: len(old)] ^= old
                note(standing.document.set, np.flatnonzero(differs))
        for chunk, variables in touched.chunks.items():
            uids = np.arange(chunk * rows.CHUNK, (chunk + 1) * rows.CHUNK, dtype=np.int64)
            nodes = self._fleet.indices_of(uids)
            note(variables, nodes[nodes >= 0])
        return stale


def _ranked(standings: Iterable[Standing]) -> list[Standing]:
    return sorted(standings, key=lambda standing: standing.rank)
