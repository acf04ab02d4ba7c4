"""Requests about events, alerts and webhooks. Implements ``strata.control.machine.AlertFacade``."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from urllib.parse import urlsplit

import numpy as np

from strata.control.columns import Mask
from strata.control.controller import Controller
from strata.control.machine_views.alerts import AlertPage, AlertView, WebhookSpec, WebhookView
from strata.control.machine_views.events import EventPage, EventView
from strata.control.principal import Principal
from strata.control.registry import Registry
from strata.control.service_base import ServiceBase
from strata.core.errors import BadRequest, NotFound
from strata.hardware.events.alerts_record import Acknowledgement, Alert, holds, state_of
from strata.hardware.events.event import HardwareEvent
from strata.hardware.events.hub import EventHub
from strata.hardware.events.words import RANK

_EVERYTHING = ("", "*")


class AlertService:
    """Answers for ``hub``; ``nodes`` knows the fleet and who may see which part of it."""

    def __init__(self, nodes: ServiceBase, hub: EventHub) -> None:
        self._nodes = nodes
        self._hub = hub

    # events

    async def events(
        self, who: Principal, select: str, severity: str, since: float | None, limit: int, after: str
    ) -> EventPage:
        """Events at least as severe, newest first."""
        least = severity or "ok"
        if least not in RANK:
            raise BadRequest(f"{severity[:20]!r} is no severity", where="severity", hint="ok, warning or critical")
        before = _sequence(after)
        names = None
        if who.scope or select not in _EVERYTHING:
            chosen = self._nodes.seen(who, select)
            names = [self._nodes.registry.names[index] for index in chosen.tolist()]
        rows = await self._hub.log.page(names, least, since, before, limit + 1)
        following = str(rows[limit - 1][0]) if len(rows) > limit else ""
        return EventPage(items=tuple(_event(*row) for row in rows[:limit]), next=following)

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
                chosen = None if everything else self._names(who, select)
                shown = [_event(*row) for row in batch if chosen is None or row[1].node in chosen]
                if shown:
                    yield shown

    def _names(self, who: Principal, select: str) -> set[str]:
        names = self._nodes.registry.names
        return {names[index] for index in self._nodes.seen(who, select).tolist()}

    def admit(self, token: str) -> None:
        """``Denied`` unless the token was given to a controller."""
        self._hub.admit(token)

    async def receive(self, token: str, body: bytes) -> None:
        """A controller's push."""
        self._hub.receive(token, body)

    # alerts

    async def alerts(self, who: Principal, *, all_: bool, limit: int, after: str) -> AlertPage:
        """Open ones, worst and newest first; ``all_``: also those that are over, after them."""
        seen = self._visible(who)
        acknowledgements = dict(self._hub.alerts.acknowledgements)
        place = _place(after)
        # 100,000 of them take a tenth of a second to sort: not in the event loop.
        found, more, standing = await asyncio.to_thread(_choose, seen, all_, limit, place)
        items = tuple(_alert(alert, acknowledgements.get(alert.id)) for alert in found)
        return AlertPage(items=items, next=_place_text(found[-1]) if more else "", open=standing)

    async def acknowledge(self, who: Principal, ids: Sequence[str], note: str) -> Sequence[AlertView]:
        """Say that a person looks after them."""
        mask = self._nodes.scope(who)
        alerts = self._hub.alerts
        for ident in ids:
            alert = alerts.alerts.get(ident)
            if alert is None or not self._may_see(alert, mask):
                raise NotFound("no such alert", where=repr(ident)[:80], hint="list them with: strata alert list")
        await alerts.acknowledge(who.name, ids, note)
        unique = dict.fromkeys(ids)
        return [_alert(alerts.alerts[i], alerts.acknowledgements.get(i)) for i in unique if i in alerts.alerts]

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
        """Where alerts are sent, by name."""
        self._nodes.need_whole_fleet(who, "webhooks")
        return [self._webhook(name) for name in sorted(self._hub.webhooks.records)]

    async def put_webhook(self, who: Principal, name: str, spec: WebhookSpec) -> WebhookView:
        """Create or replace one; without a secret, the one that it has stays."""
        self._nodes.need_whole_fleet(who, "a webhook")
        _check_url(spec.url)
        secret = None if spec.secret is None else spec.secret.encode()
        await self._hub.webhooks.put(who.name, name, spec.url, spec.least, secret)
        return self._webhook(name)

    async def delete_webhook(self, who: Principal, name: str) -> None:
        """Remove one."""
        self._nodes.need_whole_fleet(who, "a webhook")
        await self._hub.webhooks.delete(who.name, name)

    def _webhook(self, name: str) -> WebhookView:
        record, post = self._hub.webhooks.find(name), self._hub.webhooks.posts[name]
        return WebhookView(
            name=name,
            url=record.url,
            least=record.least,
            signed=record.secret is not None,
            delivered=post.delivered,
            failing=post.failing,
        )


def bmc_addresses(registry: Registry) -> Callable[[], Mapping[str, str]]:
    """Controllers as nodes have them → names of the nodes; the same object while no node changed."""
    kept: tuple[tuple[int, int], dict[str, str]] = ((-1, 0), {})

    def addresses() -> Mapping[str, str]:
        nonlocal kept
        # A node that is new or changed has the highest revision; one that is gone is one less.
        stamp = (int(registry.revisions.max(initial=0)), len(registry))
        if kept[0] != stamp:
            kept = (stamp, {node.bmc: node.name for node in registry.roster.nodes if node is not None and node.bmc})
        return kept[1]

    return addresses


def led_here(controller: Controller) -> Callable[[str], bool]:
    """Whether this process looks after a node: its controller is looked at, and polled, by one of us."""

    def mine(name: str) -> bool:
        index = controller.registry.find(name)
        return index >= 0 and bool(controller.engine.work.epoch[index] > 0)

    return mine


def look_soon(controller: Controller) -> Callable[[Sequence[str]], None]:
    """Has nodes looked at by the engine, now rather than when it is their turn."""

    def looked(names: Sequence[str]) -> None:
        found = np.array([controller.registry.find(name) for name in names], dtype=np.int64)
        if len(found := found[found >= 0]):
            controller.look_at(found)

    return looked


def agent_restarted(controller: Controller) -> Callable[[str], None]:
    """Has the history tell that a node's agent was started again."""

    def noted(name: str) -> None:
        if (index := controller.registry.find(name)) >= 0:
            nodes = np.array([index], dtype=np.int64)
            controller.befell(nodes, "its agent was started again: the one before ended without a word", "agent")

    return noted


def _check_url(url: str) -> None:
    try:
        urlsplit(url).port  # noqa: B018 - looking at it is the check
    except ValueError:
        raise BadRequest("not an address", where="url", hint="such as https://alerts.example/strata") from None


_Place = tuple[int, float, str]


def _order(alert: Alert) -> _Place:
    """Those that stand before those that are over, worst first, newest first."""
    return (3 if alert.over else 2 - RANK[alert.severity], -alert.first, alert.id)


def _choose(alerts: Iterable[Alert], all_: bool, limit: int, after: _Place | None) -> tuple[list[Alert], bool, int]:
    standing = 0
    left = []
    for alert in alerts:
        standing += not alert.over
        if (all_ or not alert.over) and (after is None or _order(alert) > after):
            left.append(alert)
    found = heapq.nsmallest(limit + 1, left, key=_order)
    return found[:limit], len(found) > limit, standing


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


def _event(seq: int, event: HardwareEvent) -> EventView:
    return EventView(
        id=seq,
        time=event.time,
        severity=event.severity,
        message=event.message,
        source=event.source,
        key=event.key,
        node=event.node,
        bmc=event.bmc,
        message_id=event.message_id,
        fields=event.fields,
    )


def _alert(alert: Alert, acknowledgement: Acknowledgement | None) -> AlertView:
    held = acknowledgement if holds(acknowledgement, alert) else None
    return AlertView(
        id=alert.id,
        node=alert.node,
        bmc=alert.bmc,
        key=alert.key,
        severity=alert.severity,
        message=alert.message,
        first=alert.first,
        last=alert.last,
        count=alert.count,
        state=state_of(alert, acknowledgement),
        by=held.by if held else "",
        note=held.note if held else "",
        fields=alert.fields,
    )
