"""Events, alerts, webhooks and consoles, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec.structs import replace

from strata.core.errors import BadRequest, Denied, NotFound
from strata.core.input.decoding import UNREADABLE
from strata.fleet.access.principal import Principal
from strata.hardware.alerts.records import AlertPage, AlertView, WebhookSpec, WebhookView
from strata.hardware.consoles.records import ConsoleHit, ConsoleHits, ConsoleLine, ConsoleQuery, ConsoleView
from strata.hardware.events.records import EventPage, EventView
from support.fake_ground import Ground


class FakeAlerts:
    """Events and alerts."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def events(
        self, who: Principal, select: str, severity: str, since: float | None, limit: int, after: str
    ) -> EventPage:
        names = set(await self.ground.facade.node_names(who, select))
        if after and not (after.isascii() and after.isdigit()):
            raise BadRequest("not a cursor that we gave", where="cursor")
        found = [event for event in reversed(self.ground.events) if event.node in names]
        return EventPage(items=tuple(found[:limit]), next="")

    async def alerts(self, who: Principal, *, all_: bool, limit: int, after: str) -> AlertPage:
        names = set(await self.ground.facade.node_names(who, "*"))
        found = [alert for alert in self.ground.alerts if alert.node in names]
        return AlertPage(items=tuple(found[:limit]), next="", open=len(found))

    async def follow(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[EventView]]:
        names = set(await self.ground.facade.node_names(who, select))
        newest = self.ground.events[-1].id if self.ground.events else 0
        after = newest if since is None else since
        if after > newest:
            raise BadRequest(f"the newest event is {newest}", where="since")
        return self.ground.stream([e for e in self.ground.events if e.id > after and e.node in names])

    async def alert(self, who: Principal, ident: str) -> AlertView:
        found = (await self.alerts(who, all_=True, limit=10_000, after="")).items
        for alert in found:
            if alert.id == ident:
                return alert
        raise NotFound("no such alert", where=repr(ident)[:80])

    async def acknowledge(self, who: Principal, ids: Sequence[str], note: str) -> Sequence[AlertView]:
        known = {alert.id: alert for alert in (await self.alerts(who, all_=True, limit=10_000, after="")).items}
        if missing := set(ids) - set(known):
            raise NotFound("no such alert", where=repr(min(missing))[:80])
        found = {i: replace(known[i], state="acknowledged", by=who.name, note=note) for i in ids}
        self.ground.alerts = [found.get(alert.id, alert) for alert in self.ground.alerts]
        return list(found.values())

    async def webhooks(self, who: Principal) -> Sequence[WebhookView]:
        return list(self.ground.hooks.values())

    async def put_webhook(self, who: Principal, name: str, spec: WebhookSpec) -> WebhookView:
        signed = spec.secret is not None
        view = WebhookView(name=name, url=spec.url, least=spec.least, signed=signed, delivered=0, failing="")
        self.ground.hooks[name] = view
        return view

    async def delete_webhook(self, who: Principal, name: str) -> None:
        if self.ground.hooks.pop(name, None) is None:
            raise NotFound("no such webhook", where=name)

    def admit(self, token: str) -> None:
        if not token.endswith(".0"):
            raise Denied("not one of ours")

    async def receive(self, token: str, body: bytes) -> None:
        self.admit(token)
        try:
            msgspec.json.decode(body)
        except UNREADABLE:
            raise BadRequest("not JSON", where="body") from None


class FakeConsoles:
    """What nodes printed."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def _lines(self, who: Principal, node: str) -> list[ConsoleLine]:
        await self.ground.facade.node(who, node)
        return self.ground.lines.get(node, [])

    async def consoles(self, who: Principal, select: str) -> Sequence[ConsoleView]:
        found = []
        for name in await self.ground.facade.node_names(who, select):
            there, lines = name not in self.ground.dead, await self._lines(who, name)
            found.append(
                ConsoleView(
                    node=name, way="redfish", connected=there, trouble="" if there else "no answer", lines=len(lines),
                    bytes=sum(len(line.text) for line in lines), last=lines[-1].time if lines else None,
                )
            )  # fmt: skip
        return found

    async def tail(self, who: Principal, node: str, lines: int) -> Sequence[ConsoleLine]:
        found = await self._lines(who, node)
        return found[max(0, len(found) - lines) :]

    async def search(self, who: Principal, query: ConsoleQuery) -> ConsoleHits:
        names = await self.ground.facade.node_names(who, query.select)
        if query.regex and "(" in query.text:
            raise BadRequest("not a pattern", where="text")
        hits = [
            ConsoleHit(node=name, line=line)
            for name in names
            for line in await self._lines(who, name)
            if query.text in line.text
        ]
        return ConsoleHits(items=tuple(hits[: query.limit]), whole=len(hits) <= query.limit)

    async def follow(self, who: Principal, node: str, since: int | None) -> AsyncIterator[Sequence[ConsoleLine]]:
        lines = await self._lines(who, node)
        after = len(lines) if since is None else since
        if after > len(lines):
            raise BadRequest(f"the newest line is {len(lines)}", where="since")
        return self.ground.stream([line for line in lines if line.id > after])

    async def dumps(self, who: Principal, node: str) -> Sequence[str]:
        lines = await self._lines(who, node)
        return [f"1-{len(lines)}"] if lines else []

    async def dump(self, who: Principal, node: str, lines: str) -> Sequence[ConsoleLine]:
        if lines not in await self.dumps(who, node):
            raise NotFound("no such dump", where=lines)
        return await self._lines(who, node)
