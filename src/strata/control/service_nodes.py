"""Requests about nodes: list, show, create, change, delete, explain, look back."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from strata.control.fleet_views.history import HistoryPage, PastView, TransitionView
from strata.control.fleet_views.nodes import FoldedView, NodePage, NodeQuery, NodeSpec, NodeView, State
from strata.control.fleet_views.results import NodeResult
from strata.control.fleet_views.why import WhyView
from strata.control.open_alerts import Told
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core.errors import Unavailable
from strata.core.nodeset import fold
from strata.engine.explain import STATES, states

_numbers = re.compile(r"\d+").findall


class NodeService(ServiceBase):
    """Nodes."""

    troubles: Told

    async def nodes_page(self, who: Principal, query: NodeQuery) -> NodePage:
        """A page of the selected nodes."""
        nodes = self.seen(who, query.select)
        if query.state is not None:
            nodes = nodes[self.view.state_mask(query.state)[nodes]]
        part, following = self.view.page(self.view.order(nodes, query.sort), query.after, query.limit)
        return NodePage(
            items=tuple(self.view.node(index) for index in part.tolist()),
            next=following,
            total=len(nodes),
            revision=self.controller.changes,
        )

    async def nodes_folded(self, who: Principal, select: str, state: State | None) -> FoldedView:
        """The selected nodes in few words."""
        nodes = self.seen(who, select)
        numbers = states(self.controller.engine, nodes)
        if state is not None:
            keep = numbers == STATES.index(state)
            nodes, numbers = nodes[keep], numbers[keep]
        by_state = {
            STATES[number]: fold(self.view.names(nodes[numbers == number])) for number in np.unique(numbers).tolist()
        }
        return FoldedView(
            nodeset=fold(self.view.names(nodes)),
            total=len(nodes),
            by_state=by_state,  # type: ignore[arg-type]
            revision=self.controller.changes,
        )

    async def node_names(self, who: Principal, select: str) -> Sequence[str]:
        """Names only."""
        return self.view.names(self.view.order(self.seen(who, select), "name"))

    async def places(self, who: Principal, select: str, kind: str) -> Sequence[str]:
        """Where the selected nodes are."""
        words = self.fleet(who).location(kind)
        used = np.unique(words.codes[self.seen(who, select)]).tolist()
        found = filter(None, (words.table[code] for code in used))
        # Of one kind all have the same letters: their numbers are what they are sorted by.
        return sorted(found, key=lambda place: tuple(map(int, _numbers(place))))

    async def node(self, who: Principal, name: str) -> NodeView:
        """One node, from memory."""
        return self.view.node(self.index(who, name))

    async def create_nodes(self, who: Principal, specs: Sequence[NodeSpec]) -> Sequence[NodeResult]:
        """Create many."""
        self.need_whole_fleet(who, "creating nodes")
        results = await self.edits.create_nodes(specs, who.name)
        await self.settled(await self.controller.store.revision())
        return results

    async def replace_node(self, who: Principal, name: str, spec: NodeSpec, expected: int | None) -> NodeView:
        """Put a description in place."""
        self.need_whole_fleet(who, "describing nodes")
        await self.settled(await self.edits.replace_node(name, spec, who.name, expected))
        return self.view.node(self.registry.index_of(name))

    async def delete_node(self, who: Principal, name: str, expected: int | None) -> None:
        """Forget a node."""
        self.need_whole_fleet(who, "deleting nodes")
        await self.settled(await self.edits.delete_node(name, who.name, expected))

    async def why(self, who: Principal, name: str) -> WhyView:
        """Why it is not at its goal, with what its open alerts say of that."""
        index = self.index(who, name)
        said = self.view.why(index)
        if said.state in ("ready", "unmanaged"):
            return said
        return msgspec.structs.replace(said, lines=(*said.lines, *self.troubles(who, self.registry.node_at(index))))

    async def history(
        self, who: Principal, name: str, since: float | None, until: float | None, limit: int, after: str
    ) -> HistoryPage:
        """Its past, newest first."""
        uid = int(self.registry.uids[self.index(who, name)])
        history = self.controller.chronicle.history
        if history is None:
            raise Unavailable("no history is kept here", where=name)
        await self.controller.chronicle.flush()
        page = await history.of_node(uid, since=since, until=until, limit=limit, before=after or None)
        items = tuple(
            TransitionView(time=c.time, variable=c.variable, old=c.old, new=c.new, source=c.source, cause=c.cause)
            for c in page.items
        )
        return HistoryPage(items=items, next=page.next)

    async def past(self, who: Principal, name: str, time: float) -> PastView:
        """Its facts at a time."""
        uid = int(self.registry.uids[self.index(who, name)])
        history = self.controller.chronicle.history
        if history is None:
            raise Unavailable("no history is kept here", where=name)
        state = await history.state_at(uid, time)
        facts = {variable: state.get(variable, "unknown") for variable in self.controller.model.variables}
        return PastView(node=name, time=time, facts=facts)
