"""What BMCs push to us: who it is from, whether it is too much, whether it was here already.

Each BMC is given a destination of its own: ``ID.MAC``, where the MAC is over its address with a key that
only this service has. So a push speaks for the BMC that was told the destination, and for no other.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from strata.core.errors import BadRequest, Denied
from strata.core.input.foreign import read_json
from strata.hardware.events.payload import from_payload, is_report
from strata.hardware.events.records import EventSink, EventSource, HardwareEvent
from strata.hardware.events.site import Site

BODY_MOST = 256 * 1024
_REMEMBERED = 64
"""Events of a BMC by which one that comes twice (pushed again, or pushed and in its log) is known."""


_SAME = 10.0
"""Seconds between the time of an event in a push and in a log that may be one event."""


class InboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much one BMC may send."""

    burst: float = 200.0
    """Events at once."""
    rate: float = 5.0
    """Events per second in the long run."""


class _Sender:
    """What is remembered of one BMC that has sent something."""

    __slots__ = ("dropped", "left", "seen", "storming", "when")

    def __init__(self, left: float, when: float) -> None:
        self.left = left
        self.when = when
        self.dropped = 0
        self.storming = False
        self.seen: deque[tuple[str, str, float]] = deque(maxlen=_REMEMBERED)


class Inbox:
    """Takes pushes. ``know`` says which BMCs there are, by the id in their destination; metric reports go to
    ``reports``, everything else to ``sink`` as events."""

    def __init__(
        self,
        key: bytes,
        sink: EventSink,
        *,
        settings: InboxSettings | None = None,
        reports: Callable[[Site, Mapping[str, object]], None] = lambda site, report: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or InboxSettings()
        self._reports = reports
        self._key = key
        self._sink = sink
        self._clock = clock
        self._sites: dict[str, Site] = {}
        self._senders: dict[str, _Sender] = {}

    def __repr__(self) -> str:
        return f"Inbox({len(self._sites)} BMCs)"

    async def know(self, sites: Mapping[str, Site]) -> None:
        """These are the BMCs that there are, by root."""
        # A hash for each of 100,000 takes a tenth of a second: not in the event loop.
        self._sites = await asyncio.to_thread(lambda: {_ident(root): site for root, site in sites.items()})
        self._senders = {root: sender for root, sender in self._senders.items() if root in sites}

    def token(self, root: str) -> str:
        """The end of the destination that the BMC at ``root`` is given."""
        return f"{_ident(root)}.{self._mac(root)}"

    def receive(self, token: str, body: bytes) -> int:
        """Take one push; how many events it brought. ``Denied`` if we gave the token to nobody."""
        site = self.sender(token)
        if len(body) > BODY_MOST:
            raise BadRequest(f"an event has at most {BODY_MOST} bytes", where="body")
        try:
            payload = read_json(body).value
        except ValueError:
            raise BadRequest("not JSON", where="body", hint="send a Redfish Event") from None
        return self.deliver(payload, site, "push")

    def sender(self, token: str) -> Site:
        """Whom we gave the token to; ``Denied`` if that is nobody."""
        ident, _, mac = token.partition(".")
        site = self._sites.get(ident)
        # A BMC that we do not know costs the same as a wrong MAC.
        right = hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(site.root if site else "").encode())
        if site is None or not right:
            raise Denied("not a destination that was given to a BMC")
        return site

    def deliver(self, payload: object, site: Site, source: EventSource) -> int:
        """Pass on what a BMC sent by itself: what is new, as far as it is not too much."""
        now = self._clock()
        if isinstance(payload, Mapping) and is_report(payload):
            self._reports(site, payload)
            return 0
        events = from_payload(payload, site, source, now)
        sender = self._senders.get(site.root)
        if sender is None:
            sender = self._senders[site.root] = _Sender(self.settings.burst, now)
        fresh = []
        for event in events:
            mark = _mark(event, now)
            if not any(mark[:2] == other[:2] for other in sender.seen):
                sender.seen.append(mark)
                fresh.append(event)
        sender.left = min(self.settings.burst, sender.left + max(0.0, now - sender.when) * self.settings.rate)
        sender.when = now
        taken = fresh[: int(sender.left)]
        sender.left -= len(taken)
        sender.dropped += len(fresh) - len(taken)
        out = taken + self._storm(sender, site, now)
        if out:
            self._sink(out)
        return len(taken)

    def seen(self, root: str, event: HardwareEvent) -> bool:
        """Whether the BMC has pushed this event, which is now found in its log."""
        sender = self._senders.get(root)
        return sender is not None and any(
            text == event.message and abs(event.time - time) < _SAME for _, text, time in sender.seen
        )

    def _storm(self, sender: _Sender, site: Site, now: float) -> list[HardwareEvent]:
        """Say when a BMC begins to send too much, and when it has stopped."""
        if sender.dropped and not sender.storming:
            sender.storming = True
            return [_about(site, now, "warning", "it sends more events than Strata takes; the rest is dropped")]
        if sender.storming and sender.left > self.settings.burst / 2:
            dropped, sender.dropped, sender.storming = sender.dropped, 0, False
            return [_about(site, now, "ok", f"it sends fewer events again; {dropped} were dropped")]
        return []

    def _mac(self, root: str) -> str:
        return hmac.new(self._key, root.encode(), hashlib.sha256).hexdigest()[:40]


def _about(site: Site, now: float, severity: str, text: str) -> HardwareEvent:
    return HardwareEvent(
        time=now,
        severity=severity,  # type: ignore[arg-type]
        message=text,
        source="strata",
        key="bmc/event-storm",
        node=site.node_of(""),
        bmc=site.root,
    )


def _ident(root: str) -> str:
    return hashlib.sha256(root.encode()).hexdigest()[:16]


def _mark(event: HardwareEvent, now: float) -> tuple[str, str, float]:
    """The same for an event that is pushed again. Where it has no time of its own, its id has to do."""
    told = 0.0 if event.time == now else event.time
    return f"{event.fields.get('event', '')} {told} {event.key}", event.message, event.time
