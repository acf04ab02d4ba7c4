"""The store's changes as events that people watch: filtered by what they selected and may see."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.errors import BadRequest
from strata.core.nodeset import fold
from strata.core.texts import Out
from strata.fleet.access.principal import Principal
from strata.fleet.brakes.edits import HOLD
from strata.fleet.fleet import Fleet
from strata.fleet.history import transitions
from strata.fleet.operations.records import decode as decode_operation
from strata.store.protocol import Event

Uids = npt.NDArray[np.int64]
EventKind = Literal["transition", "desire", "hold", "freeze", "node", "operation", "compacted"]


class WatchEvent(Out, frozen=True, kw_only=True):
    """One change. All events of one revision come together; resume after ``revision``."""

    revision: int
    event: EventKind
    data: Mapping[str, Any]


class WatchService:
    """Live events."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def watch(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[WatchEvent]]:
        """Check the selector, then return the events after ``since``; without it, those after this call."""
        self._fleet.seen(who, select)
        newest = await self._fleet.controller.store.revision()
        if since is not None and since > newest:
            raise BadRequest(f"the newest revision is {newest}; nothing can be continued after {since}", where="since")
        return self._events(who, select, (newest if since is None else since) + 1)

    async def _events(self, who: Principal, select: str, start: int) -> AsyncIterator[Sequence[WatchEvent]]:
        stream = self._fleet.controller.store.watch("", start=start)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]
            async for events in stream:
                await self._fleet.registry.reached(events[-1].revision)
                chosen = None
                if who.scope or select not in ("", "*"):
                    chosen = np.sort(self._fleet.registry.uids[self._fleet.seen(who, select)])
                shown = [
                    WatchEvent(revision=event.revision, event=kind, data=data)
                    for event in events
                    for kind, data in self._show(who, event, chosen)
                ]
                if shown:
                    yield shown

    def _show(self, who: Principal, event: Event, chosen: Uids | None) -> Iterator[tuple[EventKind, Mapping[str, Any]]]:
        kind, _, name = event.key.partition("/")
        gone = event.value is None
        if kind == "transition" and event.value is not None:
            for data in self._transitions(event.key, event.value, chosen):
                yield "transition", data
        elif kind == "node" and self._chosen(name, chosen):
            yield "node", {"node": name, "gone": gone}
        elif kind == "hold" and self._chosen(name, chosen):
            hold = {} if event.value is None else msgspec.msgpack.decode(event.value)
            yield "hold", {"node": name, "gone": gone, **hold}
        elif kind == "freeze" and self._fleet.touches(who, name):
            yield "freeze", {"scope": name, "gone": gone}
        elif kind == "desire" and chosen is None:
            yield "desire", {"key": name, "gone": gone}
        elif kind == "job" and event.value is not None:
            operation = decode_operation(event.value)
            if not who.scope or operation.author == who.name:
                yield "operation", msgspec.to_builtins(operation.shown())

    def _transitions(self, key: str, value: bytes, chosen: Uids | None) -> Iterator[Mapping[str, Any]]:
        row = transitions.decode(value, key)
        for change in row.changes:
            if change.variable == HOLD:
                continue  # the hold itself is an event
            uids = intset.unpack(change.uids)
            if chosen is not None:
                uids = uids[np.isin(uids, chosen)]
            nodes = self._fleet.registry.indices_of(uids)
            names = self._fleet.view.names(nodes[nodes >= 0])
            if names:
                yield {
                    "time": row.time,
                    "controller": row.controller,
                    "variable": change.variable,
                    "old": change.old,
                    "new": change.new,
                    "source": change.source,
                    "cause": change.cause,
                    "nodes": fold(names),
                    "count": len(names),
                }

    def _chosen(self, name: str, chosen: Uids | None) -> bool:
        if chosen is None:
            return True
        index = self._fleet.registry.find(name)
        return index >= 0 and bool(np.isin(self._fleet.registry.uids[index], chosen))
