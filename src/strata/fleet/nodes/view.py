"""Reading the running fleet: states and facts as masks, nodes in the form that people see. Changes nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import BadRequest
from strata.core.model import UNKNOWN
from strata.core.state import STATES, State
from strata.engine.explain import Blocker, explain, state_of, states
from strata.engine.facts import Silence
from strata.engine.progress import Phase
from strata.fleet.brakes.records import HoldView
from strata.fleet.columns import Indices, Mask
from strata.fleet.controller.controller import Controller
from strata.fleet.desires.records import DesireView
from strata.fleet.nodes.records import DoingView, FactView, NextStep, NodeView, WhyView

SORTS = ("name", "uid", "nid", "location", "role", "architecture", "state")


class FleetView:
    """What a controller knows, for readers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._registry = controller.registry
        self._engine = controller.engine
        self._ranked: tuple[int, npt.NDArray[np.int64]] = (0, np.zeros(0, dtype=np.int64))

    # what selectors ask

    def state_mask(self, state: str) -> Mask:
        """Nodes in a state."""
        mask = np.zeros(self._registry.size, dtype=np.bool_)
        nodes = np.flatnonzero(self._registry.alive)
        mask[nodes] = states(self._engine, nodes) == STATES.index(state)
        return mask

    def fact_mask(self, variable: str, value: str) -> Mask:
        """Nodes with a fact."""
        column = self._engine.table.columns[variable]
        code = 0 if value == UNKNOWN else column.word_code(value) or -1
        mask: Mask = (column.fact[: self._registry.size] == code) & self._registry.alive
        return mask

    # nodes

    def node(self, index: int) -> NodeView:
        """One node, whole."""
        registry, engine, clock = self._registry, self._engine, self._controller.clock
        node, work, now = registry.node_at(index), engine.progress, clock.now()
        epoch = clock.to_wall(0.0)
        facts = {}
        blind = any(one.blind.item(index) for one in engine.facts.observers.values())
        for name, column in engine.table.columns.items():
            seen = column.seen.item(index)
            known = math.isfinite(seen)
            facts[name] = FactView(
                value=column.words[column.fact.item(index)],
                seen=epoch + seen if known else None,
                source=column.sources[column.source.item(index)],
                age=now - seen if known else None,
                implied=bool(column.implied.item(index)),
                silence=self._silence(name, index) if blind else None,
            )
        hold = registry.brakes.holds.get(node.name)
        doing = None
        if work.phase[index] != Phase.IDLE:
            doing = DoingView(
                mutation=engine.in_flight.mutations[work.mutation[index]].name,
                since=clock.to_wall(float(work.since[index])),
                deadline=clock.to_wall(float(min(work.deadline[index], now + 1e9))),
            )
        return NodeView(
            **msgspec.structs.asdict(node),
            groups=registry.groups.of(index),
            state=self.state(index),
            facts=facts,
            desires={
                desire.variable: DesireView(
                    values=desire.values, author=desire.author, revision=desire.revision, origin=desire.origin
                )
                for desire in registry.desires.of(index)
            },
            hold=None if hold is None else HoldView.of(node.name, hold),
            frozen=registry.brakes.frozen_by(index),
            doing=doing,
            fault=work.reasons.get(index, "failed too often") if work.fault[index] else "",
            revision=int(registry.revisions[index]),
            stamp=self._controller.changes,
        )

    def _silence(self, variable: str, index: int) -> Silence | None:
        silence = self._engine.facts.silence(variable, index)
        if silence is None:
            return None
        return msgspec.structs.replace(silence, since=self._controller.clock.to_wall(silence.since))

    def state(self, index: int) -> State:
        """One word for a node."""
        return STATES[state_of(self._engine, index)]

    def order(self, nodes: Indices, sort: str) -> Indices:
        """Nodes in the order that a reader asked for; equal ones by name."""
        key, descending = sort.lstrip("-"), sort.startswith("-")
        if key not in SORTS:
            raise BadRequest(f"one of {', '.join(SORTS)}, with - before it to reverse", where="sort")
        names = self._name_ranks()[nodes]
        ordered: Indices = nodes[np.lexsort((names, self._sort_key(nodes, key)))]
        return ordered[::-1] if descending else ordered

    def page(self, ordered: Indices, after: str, limit: int) -> tuple[Indices, str | None]:
        """The part that follows the node named ``after``, and the cursor of the next part."""
        start = 0
        if after:
            here = np.flatnonzero(ordered == self._registry.find(after))
            if not len(here):
                raise BadRequest(
                    "the list has changed since this cursor was given", where="cursor", hint="begin again without it"
                )
            start = int(here[0]) + 1
        part = ordered[start : start + limit]
        more = start + limit < len(ordered)
        return part, self._registry.names[int(part[-1])] if more and len(part) else None

    def names(self, nodes: Indices) -> list[str]:
        """Names in the order of ``nodes``."""
        names = self._registry.names
        return [names[index] for index in nodes.tolist()]

    def why(self, index: int, name_of: Callable[[int], str] | None = None) -> WhyView:
        """The long answer. ``name_of``: what the reader is told of another node, if not its name."""
        clock = self._controller.clock
        said = explain(self._engine, index, clock.now(), name_of or self._registry.names.__getitem__)
        name = self._registry.names[index]
        blockers = list(said.blockers)
        for place, blocker in enumerate(blockers):
            if blocker.kind == "hold" and (hold := self._registry.brakes.holds.get(name)) is not None:
                detail = f"{hold.reason} ({hold.author}); nothing acts on it until a person releases it"
                blockers[place] = Blocker(kind="hold", name=name, detail=detail)
            if blocker.kind == "freeze" and (
                freeze := self._registry.brakes.freezes.get(self._registry.brakes.frozen_by(index))
            ):
                detail = f"{freeze.reason} ({freeze.author}); nothing is started until it is thawed"
                blockers[place] = Blocker(kind="freeze", name=freeze.scope, detail=detail)
        following = None
        if said.mutation or said.observe:
            when = clock.to_wall(said.when) if said.when is not None and np.isfinite(said.when) else None
            following = NextStep(mutation=said.mutation or None, observe=said.observe, when=when)
        return WhyView(
            node=name,
            state=said.state,
            summary=said.summary,
            lines=(*said.lines, *self._waiting(index)),
            next=following,
            blocked_by=tuple(blockers),
        )

    def _waiting(self, index: int) -> list[str]:
        """What was set on it and has to wait."""
        return [
            f"{variable}={'|'.join(values)} is set on it, and waits: "
            f"document {keeps.origin} wants {keeps.variable}={'|'.join(keeps.values)}"
            for variable, values, keeps in self._registry.desires.waiting(index)
        ]

    def _name_ranks(self) -> npt.NDArray[np.int64]:
        """Each node's place in the order of names; made anew only when nodes came or went."""
        stamp = hash(self._registry.uids.tobytes())
        if self._ranked[0] != stamp:
            names = self._registry.names
            ranks = np.zeros(self._registry.size, dtype=np.int64)
            ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            self._ranked = (stamp, ranks)
        return self._ranked[1]

    def _sort_key(self, nodes: Indices, key: str) -> npt.NDArray[np.int64]:
        registry = self._registry
        match key:
            case "uid":
                return registry.uids[nodes]
            case "state":
                return states(self._engine, nodes).astype(np.int64)
            case "role":
                return _word_ranks(registry.roles.table)[registry.roles.codes[nodes]]
            case "architecture":
                return _word_ranks(registry.architectures.table)[registry.architectures.codes[nodes]]
            case "nid":
                return np.array([-1 if (nid := registry.node_at(i).nid) is None else nid for i in nodes.tolist()])
            case "location":
                places = [registry.node_at(index).location for index in nodes.tolist()]
                return _word_ranks(places)
            case _:
                return self._name_ranks()[nodes]


def _word_ranks(words: list[str]) -> npt.NDArray[np.int64]:
    """For each word its place in the natural order (``x9`` before ``x10``); equal words share one."""
    places = {word: place for place, word in enumerate(sorted(set(words), key=natural))}
    return np.fromiter((places[word] for word in words), dtype=np.int64, count=len(words))


def natural(word: str) -> list[tuple[str, int]]:
    """A key that sorts ``x9`` before ``x10``."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", word)]
