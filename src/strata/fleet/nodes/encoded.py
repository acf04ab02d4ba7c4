"""Nodes as JSON, for those who ask often or for many: the same bytes that a ``NodeView`` would become, sooner.

What people said of a node (its description, groups, desires, brakes) is encoded once, until they say something else.
What was seen is put together from pieces that nodes share: those that were looked at together have the same facts. A
node with something out of the ordinary (a step under way, a fault, a look in vain) is encoded the long way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from strata.core.state import STATES
from strata.engine.explain import state_of, states
from strata.engine.progress import Phase
from strata.engine.table import VariableColumns
from strata.fleet.columns import Indices
from strata.fleet.controller.controller import Controller
from strata.fleet.nodes.records import FactView
from strata.fleet.nodes.view import FleetView

_encode = msgspec.json.Encoder().encode
_STATES = tuple(b'"state":' + _encode(state) + b',"facts":{' for state in STATES)
_IDLE = int(Phase.IDLE)
_KEPT = 50_000
"""Nodes of which what was said is kept encoded: some 60 MB."""
_SHOWN = 5_000
"""Nodes that were asked for one by one, and are kept whole until something changes."""
_FORMS = 10_000
"""Values of a variable that are kept encoded; a variable may have as many as there are nodes."""

_Shown = tuple[int, str, tuple[float, ...]]
"""A node at a count of changes of the fleet: all but the ages of its facts, and when each was seen."""
_Said = tuple[bytes, bytes]
"""What people said: before the state, and between the facts and the stamp."""


class EncodedNodes:
    """Encodes nodes of the fleet that ``view`` shows."""

    def __init__(self, controller: Controller, view: FleetView) -> None:
        self._controller = controller
        self._view = view
        self._registry = controller.registry
        self._engine = controller.engine
        self._said: dict[int, _Said] = {}
        self._shown: dict[int, _Shown] = {}
        self._edition = -1
        self._forms: dict[str, dict[tuple[int, int, bool], str]] = {}
        """By variable, then by value, source and whether it was implied."""

    def many(self, nodes: Indices) -> list[bytes]:
        """Each node, in the order of ``nodes``."""
        self._renew()
        engine, work = self._engine, self._engine.progress
        odd = (work.phase[nodes] != _IDLE) | work.fault[nodes]
        for observer in engine.facts.observers.values():
            odd |= observer.blind[nodes] != 0
        facts = self._facts(nodes)
        stamp = b'"stamp":%d}' % self._controller.changes
        found = []
        for index, strange, state, seen in zip(
            nodes.tolist(), odd.tolist(), states(engine, nodes).tolist(), facts, strict=True
        ):
            if strange:
                found.append(_encode(self._view.node(index)))
                continue
            head, tail = self._said_of(index)
            found.append(head + _STATES[state] + seen + tail + stamp)
        return found

    def one(self, index: int) -> bytes:
        """One node; the same as ``many`` of it, without arrays. As long as nothing changes in the fleet, only its facts
        grow older."""
        clock, stamp = self._controller.clock, self._controller.changes
        now = clock.now()
        shown = self._shown.get(index)
        if shown is None or shown[0] != stamp or self._edition != self._registry.edition:
            self._renew()
            shown = self._show(index, stamp, clock.to_wall(0.0))
            if shown is None:
                return _encode(self._view.node(index))
            if len(self._shown) >= _SHOWN:
                self._shown.clear()
            self._shown[index] = shown
        _, form, seen = shown
        return (form % tuple([repr(now - when) if math.isfinite(when) else "null" for when in seen])).encode()

    def _show(self, index: int, stamp: int, epoch: float) -> _Shown | None:
        """A node in which only the ages are missing; None for one that is out of the ordinary."""
        engine, work = self._engine, self._engine.progress
        if (
            work.phase.item(index) != _IDLE
            or work.fault.item(index)
            or any(observer.blind.item(index) for observer in engine.facts.observers.values())
        ):
            return None
        pieces, seen = [], []
        for name, column in engine.table.columns.items():
            when = column.seen.item(index)
            key = column.fact.item(index), column.source.item(index), column.implied.item(index)
            pieces.append(self._form(name, column, key) % (_times(when, when, epoch)[0], "%s"))
            seen.append(when)
        head, tail = (_literal(part.decode()) for part in self._said_of(index))
        state = _STATES[state_of(engine, index)].decode()
        return stamp, f'{head}{state}{",".join(pieces)}{tail}"stamp":{stamp}}}', tuple(seen)

    def _renew(self) -> None:
        if self._edition != self._registry.edition:
            self._edition = self._registry.edition
            self._said.clear()
            self._shown.clear()

    def _facts(self, nodes: Indices) -> Sequence[bytes]:
        """The facts of each node."""
        clock = self._controller.clock
        now, epoch = clock.now(), clock.to_wall(0.0)
        times: dict[float, tuple[str, str]] = {}
        columns = []
        for name, column in self._engine.table.columns.items():
            known: dict[tuple[int, float, int, bool], str] = {}
            pieces = []
            for key in zip(
                column.fact[nodes].tolist(),
                column.seen[nodes].tolist(),
                column.source[nodes].tolist(),
                column.implied[nodes].tolist(),
                strict=True,
            ):
                piece = known.get(key)
                if piece is None:
                    value, seen, source, implied = key
                    when = times.get(seen)
                    if when is None:
                        when = times[seen] = _times(seen, now, epoch)
                    piece = known[key] = self._form(name, column, (value, source, implied)) % when
                pieces.append(piece)
            columns.append(pieces)
        return [",".join(row).encode() for row in zip(*columns, strict=True)]

    def _form(self, name: str, column: VariableColumns, key: tuple[int, int, bool]) -> str:
        """A fact in which only the times are missing."""
        forms = self._forms.setdefault(name, {})
        form = forms.get(key)
        if form is None:
            if len(forms) >= _FORMS:
                forms.clear()
            value, source, implied = key
            fact = FactView(
                value=column.words[value], seen=None, source=column.sources[source], age=None, implied=implied
            )
            text = _literal(_encode({name: fact})[1:-1].decode())
            form = forms[key] = text.replace('"seen":null', '"seen":%s', 1).replace('"age":null', '"age":%s', 1)
        return form

    def _said_of(self, index: int) -> _Said:
        said = self._said.get(index)
        if said is None:
            if len(self._said) >= _KEPT:
                self._said.clear()
            said = self._said[index] = self._say(index)
        return said

    def _say(self, index: int) -> _Said:
        """Taken from the long form, so that both are always the same."""
        view = self._view.node(index)
        whole = _encode(msgspec.structs.replace(view, facts={}, doing=None, fault="", stamp=0))
        head, state, rest = whole.partition(b'"state":' + _encode(view.state) + b',"facts":{')
        assert state
        return head, rest.removesuffix(b'"stamp":0}')


def _times(seen: float, now: float, epoch: float) -> tuple[str, str]:
    """When a fact was seen, and how long ago that is."""
    return (repr(epoch + seen), repr(now - seen)) if math.isfinite(seen) else ("null", "null")


def _literal(text: str) -> str:
    """A text that stands for itself in a form."""
    return text.replace("%", "%%")
