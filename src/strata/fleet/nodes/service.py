"""Requests about nodes: list, show, create, change, delete, explain, look back."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import numpy as np

from strata.core.distinct import among, distinct
from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.core.model import UNKNOWN
from strata.core.nodeset import fold
from strata.core.state import STATES, State
from strata.core.texts import ListOf
from strata.engine.explain import Blocker, states
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.history.history import History
from strata.fleet.history.records import HistoryPage, ManyTransition, PastView
from strata.fleet.nodes.encoded import EncodedNodes
from strata.fleet.nodes.records import (
    EncodedNode,
    EncodedPage,
    FoldedView,
    NodePage,
    NodeQuery,
    NodeSpec,
    NodeView,
    WhyGroup,
    WhyManyView,
    WhyView,
)
from strata.fleet.nodes.results import NodeResult

_BREATH = 500
"""Nodes of a page between two pauses: others want an answer, too."""
_BREATH_WHY = 20
MOST_WHY = 2000
"""Nodes that are explained in one request, each by itself."""
MOST_PASTS = 1000
"""Nodes whose past is looked up in one request."""
_THERE: dict[State, str] = {
    "ready": "It is at its goal.",
    "off": "It is at its goal, and off.",
    "unmanaged": "Nothing is wanted of it.",
}
"""States of which little has to be explained."""
_numbers = re.compile(r"\d+").findall


class NodeService:
    """Nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._encoded = EncodedNodes(fleet.controller, fleet.view)

    async def nodes_page(self, who: Principal, query: NodeQuery) -> NodePage:
        """A page of the selected nodes."""
        part, following, total = self._page(who, query)
        revision, items = self._fleet.controller.changes, []
        async for few in self._in_pieces(part, _BREATH):
            items += [self._fleet.view.node(index) for index in few.tolist()]
        return NodePage(items=tuple(items), next=following, total=total, revision=revision)

    async def nodes_json(self, who: Principal, query: NodeQuery) -> EncodedPage:
        """The same, encoded."""
        part, following, total = self._page(who, query)
        revision, items = self._fleet.controller.changes, []
        async for few in self._in_pieces(part, _BREATH):
            items += self._encoded.many(few)
        return EncodedPage(items=tuple(map(msgspec.Raw, items)), next=following, total=total, revision=revision)

    def _page(self, who: Principal, query: NodeQuery) -> tuple[Indices, str | None, int]:
        """The nodes of a page, the cursor of the next one, and how many there are in all."""
        nodes = self._fleet.seen(who, query.select)
        if query.state is not None:
            nodes = nodes[self._fleet.view.state_mask(query.state)[nodes]]
        part, following = self._fleet.view.page(self._fleet.view.order(nodes, query.sort), query.after, query.limit)
        return part, following, len(nodes)

    async def _in_pieces(self, nodes: Indices, size: int) -> AsyncIterator[Indices]:
        """A page in pieces, with a pause between two. A node that is gone by then, or whose place another has taken,
        is left out."""
        uids = self._fleet.registry.uids[nodes]
        for start in range(0, len(nodes), size):
            piece = nodes[start : start + size]
            if start:
                await asyncio.sleep(0)
                piece = piece[self._fleet.registry.uids[piece] == uids[start : start + size]]
            yield piece

    async def nodes_folded(self, who: Principal, select: str, state: State | None) -> FoldedView:
        """The selected nodes in few words."""
        nodes = self._fleet.seen(who, select)
        numbers = states(self._fleet.controller.engine, nodes)
        if state is not None:
            keep = numbers == STATES.index(state)
            nodes, numbers = nodes[keep], numbers[keep]
        by_state = {
            STATES[number]: fold(self._fleet.view.names(nodes[numbers == number]))
            for number in distinct(numbers).tolist()
        }
        return FoldedView(
            nodeset=fold(self._fleet.view.names(nodes)),
            total=len(nodes),
            by_state=by_state,
            revision=self._fleet.controller.changes,
        )

    async def node_names(self, who: Principal, select: str) -> Sequence[str]:
        return self._fleet.view.names(self._fleet.view.order(self._fleet.seen(who, select), "name"))

    async def locations(self, who: Principal, select: str, kind: str) -> Sequence[str]:
        """Where the selected nodes are."""
        words = self._fleet.visible(who).location(kind)
        used = distinct(words.codes[self._fleet.seen(who, select)]).tolist()
        found = filter(None, (words.table[code] for code in used))
        # Of one kind all have the same letters: their numbers are what they are sorted by.
        return sorted(found, key=lambda place: tuple(map(int, _numbers(place))))

    async def node(self, who: Principal, name: str) -> NodeView:
        """One node, from memory."""
        return self._detailed(self._fleet.index(who, name), self._details(name))

    def node_json(self, who: Principal, name: str) -> EncodedNode:
        """The same, encoded, at once."""
        index, more = self._fleet.index(who, name), self._details(name)
        revision = self._fleet.registry.revisions.item(index)
        body = msgspec.json.encode(self._detailed(index, more)) if more else self._encoded.one(index)
        return EncodedNode(body, revision, self._fleet.controller.changes)

    def _details(self, name: str) -> dict[str, str]:
        """What is known of its facts besides their values, by variable."""
        return {variable: text for known in self._fleet.details for variable, text in known(name).items()}

    def _detailed(self, index: int, more: Mapping[str, str]) -> NodeView:
        view = self._fleet.view.node(index)
        facts = {
            variable: msgspec.structs.replace(fact, detail=more[variable])
            for variable, fact in view.facts.items()
            if variable in more and fact.value != UNKNOWN
        }
        return msgspec.structs.replace(view, facts={**view.facts, **facts}) if facts else view

    async def create_nodes(self, who: Principal, specs: Sequence[NodeSpec]) -> Sequence[NodeResult]:
        self._fleet.need_whole_fleet(who, "creating nodes")
        results = await self._fleet.edits.create_nodes(specs, who.name)
        await self._fleet.settled(await self._fleet.controller.store.revision())
        return results

    async def replace_node(self, who: Principal, name: str, spec: NodeSpec, expected: int | None) -> NodeView:
        """Put a description in place."""
        self._fleet.need_whole_fleet(who, "describing nodes")
        await self._fleet.settled(await self._fleet.edits.replace_node(name, spec, who.name, expected))
        return self._fleet.view.node(self._fleet.registry.index_of(name))

    async def delete_node(self, who: Principal, name: str, expected: int | None) -> None:
        self._fleet.need_whole_fleet(who, "deleting nodes")
        await self._fleet.settled(await self._fleet.edits.delete_node(name, who.name, expected))

    async def why(self, who: Principal, name: str) -> WhyView:
        """Why the node is not at its goal, in plain words, with what its open alerts say of that."""
        index = self._fleet.index(who, name)
        said = self._fleet.view.why(index, lambda node: self._fleet.called(who, node))
        if len(self._fleet.unled(np.array([index]))):
            controller = self._fleet.controller
            since = controller.clock.now() - controller.leadership.seen
            ago = f"{since:.0f} s ago" if np.isfinite(since) else "before this controller started"
            trouble = f" ({self._fleet.trouble})" if self._fleet.trouble else ""
            alone = f"no controller looks after it now{trouble}: nothing is done, and all this is as it was {ago}"
            said = msgspec.structs.replace(said, lines=(alone, *said.lines))
        if said.state in _THERE:
            return said
        return msgspec.structs.replace(
            said,
            lines=(
                *said.lines,
                *(line for known in self._fleet.reasons for line in known(who, self._fleet.registry.node_at(index))),
            ),
        )

    async def why_many(self, who: Principal, select: str = "*") -> WhyManyView:
        """Why nodes are not at their goals: nodes of which the same is to be said come together."""
        nodes = self._fleet.view.order(self._fleet.seen(who, select), "name")
        found = states(self._fleet.controller.engine, nodes)
        there = among(found, [STATES.index(state) for state in _THERE])
        order = np.argsort(there, kind="stable")
        asked, rest = order[:MOST_WHY], order[MOST_WHY:]
        same: dict[tuple[State, str, tuple[str, ...], tuple[Blocker, ...]], list[WhyView]] = {}
        async for few in self._in_pieces(nodes[asked], _BREATH_WHY):
            for name in self._fleet.view.names(few):
                said = await self.why(who, name)
                lines = tuple(line.replace(name, "it") for line in said.lines)
                blockers = tuple(
                    msgspec.structs.replace(one, name="") if one.name == name else one for one in said.blocked_by
                )
                same.setdefault((said.state, said.summary.replace(name, "it"), lines, blockers), []).append(said)
        items = [_why_group(*key, views) for key, views in same.items()]
        items.sort(key=lambda group: (group.state in _THERE, -group.count))
        for state in _THERE:
            names = self._fleet.view.names(nodes[rest[found[rest] == STATES.index(state)]])
            if names:
                items.append(WhyGroup(nodes=fold(names), count=len(names), state=state, summary=_THERE[state]))
        return WhyManyView(items=tuple(items), total=len(nodes), unasked=int((~there[rest]).sum()))

    async def history_many(
        self, who: Principal, select: str, since: float | None = None, until: float | None = None, limit: int = 1000
    ) -> ListOf[ManyTransition]:
        """The changes of several nodes' facts, newest first: one that several had together is told once."""
        nodes = self._fleet.seen(who, select)
        if len(nodes) > MOST_PASTS:
            raise BadRequest(
                f"{len(nodes)} nodes; at most {MOST_PASTS} are looked up together", where="select",
                hint="select fewer nodes",
            )  # fmt: skip
        history = await self._history(select)
        uids = self._fleet.registry.uids[nodes].tolist()
        names = dict(zip(uids, self._fleet.view.names(nodes), strict=True))
        return await history.of_nodes(names, since=since, until=until, limit=limit)

    async def history(
        self,
        who: Principal,
        name: str,
        since: float | None = None,
        until: float | None = None,
        limit: int = 1000,
        after: str = "",
    ) -> HistoryPage:
        """The changes of its facts, newest first."""
        uid, history = self._uid(who, name), await self._history(name)
        return await history.of_node(uid, since=since, until=until, limit=limit, before=after or None)

    async def past(self, who: Principal, name: str, time: float) -> PastView:
        """Its facts at a past time."""
        uid, history = self._uid(who, name), await self._history(name)
        state = await history.state_at(uid, time)
        facts = {variable: state.get(variable, "unknown") for variable in self._fleet.controller.model.variables}
        return PastView(node=name, time=time, facts=facts)

    def _uid(self, who: Principal, name: str) -> int:
        return int(self._fleet.registry.uids[self._fleet.index(who, name)])

    async def _history(self, where: str) -> History:
        recorder = self._fleet.controller.recorder
        if recorder.history is None:
            raise Unavailable("no history is kept here", where=where[:80])
        with contextlib.suppress(StrataError):  # what is written can be read while the store takes nothing more
            await recorder.flush()
        return recorder.history


def _why_group(
    state: State, summary: str, lines: tuple[str, ...], blocked_by: tuple[Blocker, ...], views: Sequence[WhyView]
) -> WhyGroup:
    steps = [view.next for view in views if view.next is not None]
    return WhyGroup(
        nodes=fold(view.node for view in views),
        count=len(views),
        state=state,
        summary=summary,
        lines=lines,
        next=min(steps, key=lambda step: float("inf") if step.when is None else step.when, default=None),
        blocked_by=blocked_by,
    )
