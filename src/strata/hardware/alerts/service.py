"""Requests about events, alerts and webhooks."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile

from msgspec.structs import asdict

from strata.core.errors import BadRequest, NotFound
from strata.core.node import Node
from strata.fleet.access.principal import Principal, Right
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.hardware.alerts.alerts import Alerts
from strata.hardware.alerts.records import (
    Acknowledgement,
    Alert,
    AlertPage,
    AlertView,
    WebhookSpec,
    WebhookView,
    holds,
    state_of,
)
from strata.hardware.events.hub import EventHub
from strata.hardware.events.records import EventPage, EventView, HardwareEvent
from strata.hardware.events.site import root_of
from strata.hardware.events.words import RANK, plain

_EVERYTHING = ("", "*")
_CANDIDATES = 5
"""Alerts that are named to whoever wrote the beginning of several ids."""


class AlertService:
    """Answers for ``hub``; ``nodes`` knows the fleet and who may see which part of it."""

    def __init__(self, nodes: Fleet, hub: EventHub) -> None:
        self._nodes = nodes
        self._hub = hub

    # events

    async def events(
        self,
        who: Principal,
        select: str = "*",
        severity: str = "ok",
        since: float | None = None,
        limit: int = 1000,
        after: str = "",
    ) -> EventPage:
        """Events of the selected nodes, newest first."""
        least = severity or "ok"
        if least not in RANK:
            raise BadRequest(f"{severity[:20]!r} is no severity", where="severity", hint="ok, warning or critical")
        before = _sequence(after)
        names = None
        if who.scope or select not in _EVERYTHING:
            names = self._names(who, select)
        rows = await self._hub.log.page(names, least, since, before, limit + 1)
        following = str(rows[limit - 1][0]) if len(rows) > limit else ""
        return EventPage(items=tuple(EventView(id=seq, **asdict(event)) for seq, event in rows[:limit]), next=following)

    async def follow(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[EventView]]:
        """Check the selector, then return the events from after ``since`` on."""
        self._nodes.seen(who, select)
        return self._followed(who, select, await self._hub.log.follow(since))

    async def _followed(
        self, who: Principal, select: str, stream: AsyncIterator[Sequence[tuple[int, HardwareEvent]]]
    ) -> AsyncIterator[Sequence[EventView]]:
        everything = not who.scope and select in _EVERYTHING
        async with aclosing(stream):  # type: ignore[type-var]
            async for batch in stream:
                chosen = None if everything else set(self._names(who, select))
                shown = [
                    EventView(id=seq, **asdict(event)) for seq, event in batch if chosen is None or event.node in chosen
                ]
                if shown:
                    yield shown

    def _names(self, who: Principal, select: str) -> list[str]:
        names = self._nodes.registry.names
        return [names[index] for index in self._nodes.seen(who, select).tolist()]

    # alerts

    async def alerts(self, who: Principal, *, all_: bool = False, limit: int = 1000, after: str = "") -> AlertPage:
        """Alerts, worst first, then newest first; those that are over come last."""
        seen = self._visible(who)
        acknowledgements = dict(self._hub.alerts.acknowledgements)
        place = _place(after)
        # 100,000 of them take a tenth of a second to sort: not in the event loop.
        found, more, states = await asyncio.to_thread(_choose, seen, acknowledgements, all_, limit, place)
        items = tuple(_alert(alert, acknowledgements.get(alert.id)) for alert in found)
        return AlertPage(
            items=items,
            next=_place_text(found[-1]) if more else "",
            open=states["open"],
            acknowledged=states["acknowledged"],
        )

    async def alert(self, who: Principal, ident: str) -> AlertView:
        """One alert, open or over."""
        (found,) = self._named(who, [ident])
        return _alert(found, self._hub.alerts.acknowledgements.get(found.id))

    async def acknowledge(self, who: Principal, ids: Sequence[str], note: str) -> Sequence[AlertView]:
        """Say that a person looks after these alerts. One that gets worse, or comes back, is open again."""
        alerts = self._hub.alerts
        unique = list(dict.fromkeys(alert.id for alert in self._named(who, ids)))
        await alerts.acknowledge(who.name, unique, note)
        return [_alert(alerts.alerts[i], alerts.acknowledgements.get(i)) for i in unique if i in alerts.alerts]

    def _named(self, who: Principal, idents: Iterable[str]) -> list[Alert]:
        """The alerts of these ids, or of beginnings of ids that one alone has of those that the caller may see."""
        mask, alerts = self._nodes.scope(who), self._hub.alerts.alerts
        found, ordered = [], list[str]()
        for ident in idents:
            alert = alerts.get(ident)
            if alert is None or not self._may_see(alert, mask):
                ordered = ordered or sorted(alert.id for alert in self._visible(who))
                alert = alerts[_only(ordered, ident)]
            found.append(alert)
        return found

    def _visible(self, who: Principal) -> list[Alert]:
        alerts = list(self._hub.alerts.alerts.values())
        mask = self._nodes.scope(who)
        return alerts if mask is None else [alert for alert in alerts if self._may_see(alert, mask)]

    def _may_see(self, alert: Alert, mask: Mask | None) -> bool:
        """An alert of a node outside the caller's scope, or of no node, is not there for it."""
        if mask is None:
            return True
        index = self._nodes.registry.find(alert.node) if alert.node else -1
        return index >= 0 and bool(mask[index])

    # webhooks

    async def webhooks(self, who: Principal) -> Sequence[WebhookView]:
        """Where alerts are sent, without secrets."""
        self._nodes.need_whole_fleet(who, "webhooks")
        return [self._webhook(name) for name in sorted(self._hub.webhooks.records)]

    async def put_webhook(self, who: Principal, name: str, spec: WebhookSpec) -> WebhookView:
        """Create or replace a webhook. Without a secret, the one that it has stays; delete it first to send
        unsigned."""
        self._nodes.need_whole_fleet(who, "a webhook")
        secret = None if spec.secret is None else spec.secret.encode()
        await self._hub.webhooks.put(who.name, name, spec.url, spec.least, secret)
        return self._webhook(name)

    async def delete_webhook(self, who: Principal, name: str) -> None:
        """Remove a webhook; what waits for it is dropped."""
        self._nodes.need_whole_fleet(who, "a webhook")
        await self._hub.webhooks.delete(who.name, name)

    def _webhook(self, name: str) -> WebhookView:
        record, post = self._hub.webhooks.find(name), self._hub.webhooks.posts[name]
        return WebhookView.of(record, signed=record.secret is not None, delivered=post.delivered, failing=post.failing)


def _only(ordered: Sequence[str], beginning: str) -> str:
    """The one of these sorted ids that begins so."""
    place = bisect_left(ordered, beginning)
    found = list(takewhile(lambda ident: ident.startswith(beginning), ordered[place : place + _CANDIDATES]))
    where = repr(beginning)[:80]
    if not found or not beginning:
        raise NotFound("no such alert", where=where, hint="list them with: strata alert list --all")
    if len(found) > 1:
        more = ", ..." if len(found) == _CANDIDATES else ""
        raise BadRequest(
            "the ids of several alerts begin so", where=where, hint=f"write more of one: {', '.join(found)}{more}"
        )
    return found[0]


_Place = tuple[int, float, str]


def _order(alert: Alert) -> _Place:
    """Those that stand before those that are over, worst first, newest first."""
    return (3 if alert.over else 2 - RANK[alert.severity], -alert.first, alert.id)


def _choose(
    alerts: Iterable[Alert],
    acknowledgements: Mapping[str, Acknowledgement],
    all_: bool,
    limit: int,
    after: _Place | None,
) -> tuple[list[Alert], bool, Counter[str]]:
    """A page of them, whether there are more, and how many are in each state."""
    states = Counter[str]()
    left = []
    for alert in alerts:
        states[state_of(alert, acknowledgements.get(alert.id))] += 1
        if (all_ or not alert.over) and (after is None or _order(alert) > after):
            left.append(alert)
    found = heapq.nsmallest(limit + 1, left, key=_order)
    return found[:limit], len(found) > limit, states


def _place_text(alert: Alert) -> str:
    rank, first, ident = _order(alert)
    return f"{rank} {first!r} {ident}"


def _place(text: str) -> _Place | None:
    if not text:
        return None
    try:
        rank, first, ident = text.split(" ")
        return int(rank), float(first), ident
    except ValueError:
        raise BadRequest("not a cursor of this list", where="cursor", hint="begin again without it") from None


def _sequence(text: str) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise BadRequest("not a cursor of this list", where="cursor", hint="begin again without it")


def _alert(alert: Alert, acknowledgement: Acknowledgement | None) -> AlertView:
    held = acknowledgement if holds(acknowledgement, alert) else None
    return AlertView.of(
        alert,
        state=state_of(alert, acknowledgement),
        by=held.by if held else "",
        note=held.note if held else "",
    )


MOST = 3
"""Alerts that are told; of the others only how many there are."""
LONGEST = 240
"""Characters of a message."""

READ = Right("read", "alert")

Told = Callable[[Principal, Node], Sequence[str]]
"""What a caller is told of a node's alerts."""


def open_alerts(alerts: Alerts) -> Told:
    """Tells of ``alerts``, worst and newest first."""

    def told(who: Principal, node: Node) -> Sequence[str]:
        if not who.may(READ):
            return ()
        found = alerts.open_on(node.name)
        if node.bmc and not who.scope:
            # Of a BMC with several nodes behind it: such alerts are not there for who may see only some.
            found += alerts.open_on(root_of(node.bmc))
        found.sort(key=lambda alert: (-RANK[alert.severity], -alert.first, alert.id))
        lines = [_line(alert, alerts) for alert in found[:MOST]]
        if len(found) > MOST:
            lines.append(f"and {len(found) - MOST} more open alerts: strata alert list")
        return lines

    return told


def _line(alert: Alert, alerts: Alerts) -> str:
    acknowledgement = alerts.acknowledgements.get(alert.id)
    by = (
        f", {plain(acknowledgement.by, 64)} looks after it" if acknowledgement and holds(acknowledgement, alert) else ""
    )
    return f"open alert ({alert.severity}{by}): {plain(alert.message, LONGEST)}"
