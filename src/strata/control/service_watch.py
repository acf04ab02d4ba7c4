"""The store's changes as events that people watch: filtered by what they selected and may see."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from strata.control import transitions
from strata.control.fleet_views.watch import WatchEvent
from strata.control.job_record import decode as decode_job
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core import intset
from strata.core.errors import BadRequest
from strata.core.nodeset import fold
from strata.store.protocol import Event

Uids = npt.NDArray[np.int64]


class WatchService(ServiceBase):
    """Live events."""

    async def watch(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[WatchEvent]]:
        """Check the selector, then return the events from ``since`` on."""
        self.seen(who, select)
        newest = await self.controller.store.revision()
        if since is not None and since > newest:
            raise BadRequest(f"the newest revision is {newest}; nothing can be resumed after {since}", where="since")
        start = 0 if since is None else since + 1
        return self._events(who, select, start)

    async def _events(self, who: Principal, select: str, start: int) -> AsyncIterator[Sequence[WatchEvent]]:
        stream = self.controller.store.watch("", start=start)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]
            async for events in stream:
                await self.registry.reached(events[-1].revision)
                chosen = None
                if who.scope or select not in ("", "*"):
                    chosen = np.sort(self.registry.uids[self.seen(who, select)])
                shown = [shown for event in events for shown in self._show(who, event, chosen)]
                if shown:
                    yield shown

    def _show(self, who: Principal, event: Event, chosen: Uids | None) -> list[WatchEvent]:
        kind, _, name = event.key.partition("/")
        if kind == "transition" and event.value is not None:
            return self._transitions(event, chosen)
        if kind in ("node", "hold") and self._chosen(name, chosen):
            data: dict[str, object] = {"node": name, "gone": event.value is None}
            if kind == "hold" and event.value is not None:
                data |= msgspec.msgpack.decode(event.value)
            return [WatchEvent(revision=event.revision, event=kind, data=data)]  # type: ignore[arg-type]
        if kind == "freeze" and self.touches(who, name):
            data = {"scope": name, "gone": event.value is None}
            return [WatchEvent(revision=event.revision, event="freeze", data=data)]
        if kind == "desire" and chosen is None:
            data = {"key": name, "gone": event.value is None}
            return [WatchEvent(revision=event.revision, event="desire", data=data)]
        if kind == "job" and event.value is not None:
            job = decode_job(event.value)
            if not who.scope or job.author == who.name:
                return [WatchEvent(revision=event.revision, event="job", data=msgspec.to_builtins(job.view()))]
        return []

    def _transitions(self, event: Event, chosen: Uids | None) -> list[WatchEvent]:
        row = transitions.decode(event.value or b"", event.key)
        shown = []
        for change in row.changes:
            uids = intset.unpack(change.uids)
            if chosen is not None:
                uids = uids[np.isin(uids, chosen)]
            nodes = self.registry.indices_of(uids)
            names = self.view.names(nodes[nodes >= 0])
            if names:
                data = {
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
                shown.append(WatchEvent(revision=event.revision, event="transition", data=data))
        return shown

    def _chosen(self, name: str, chosen: Uids | None) -> bool:
        if chosen is None:
            return True
        index = self.registry.find(name)
        return index >= 0 and bool(np.isin(self.registry.uids[index], chosen))
