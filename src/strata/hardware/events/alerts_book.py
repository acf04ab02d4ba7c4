"""All alerts in memory, and what events do to them. Knows neither the store nor who is told.

``apply`` says what somebody should hear of; ``urgent`` and ``recount`` say what is to be written, soon or some time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from strata.hardware.bmc import Severity
from strata.hardware.events import alerts_record as rec
from strata.hardware.events.alerts_record import Acknowledgement, Alert
from strata.hardware.events.event import HardwareEvent


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts behave. Times in seconds."""

    recount_every: float = 60.0
    """Between two writes that only say that a known trouble was seen again."""
    keep_over: float = 7 * 86400.0
    """An alert that is over stays listed for so long."""
    flaps: int = 3
    """Openings within ``quiet`` of the end before, after which an alert ends only when it was ``quiet``."""
    quiet: float = 600.0
    most: int = 200_000
    """Alerts that are kept; beyond it new ones are only counted, and those that are over are removed."""
    waiting: int = 500_000
    """Events that may wait their turn."""


class Book:
    """The alerts of all controllers, as ``owner`` knows them."""

    def __init__(self, owner: str, settings: AlertSettings) -> None:
        self.alerts: dict[str, Alert] = {}
        self.acknowledgements: dict[str, Acknowledgement] = {}
        self.urgent: dict[str, None] = {}
        """Alerts that opened, got worse or ended, in that order."""
        self.recount: dict[str, None] = {}
        """Alerts that were seen again."""
        self.settling: dict[str, float] = {}
        """Alerts that came and went too often, and when they will have been quiet for long enough."""
        self.refused = 0
        """Events that found no room."""
        self.crowded = False
        self._owner = owner
        self._settings = settings
        self._flaps: dict[str, int] = {}
        self._by_subject: dict[str, set[str]] = {}

    def apply(self, event: HardwareEvent, now: float) -> Alert | None:
        """The alert, if somebody should hear of its change."""
        ident = rec.identity(event)
        alert = self.alerts.get(ident)
        if alert is None or alert.over:
            return None if event.severity == "ok" else self._open(ident, alert, event, now)
        if event.severity == "ok":
            if self._flaps.get(ident, 0) >= self._settings.flaps:
                self.settling[ident] = now + self._settings.quiet
                return None
            return self._keep(rec.ended(alert, now, self._owner))
        self.settling.pop(ident, None)
        changed = rec.again(alert, event, now, self._owner)
        if changed.worst != alert.worst:
            return self._keep(changed)
        self.alerts[ident] = changed
        self.recount[ident] = None
        return None

    def settle(self, now: float) -> list[Alert]:
        """End the alerts that came and went, and have been quiet since."""
        news = []
        for ident in [ident for ident, due in self.settling.items() if due <= now]:
            del self.settling[ident]
            self._flaps.pop(ident, None)
            alert = self.alerts.get(ident)
            if alert is not None and not alert.over:
                news.append(self._keep(rec.ended(alert, now, self._owner)))
        return news

    def troubles(self, subject: str) -> dict[str, Severity]:
        """What is the matter with a node (or a controller without one), and how bad it is: by key."""
        return {alert.key: alert.severity for alert in self.open_on(subject)}

    def open_on(self, subject: str) -> list[Alert]:
        """The alerts of a node (or a controller without one) that are not over."""
        return [self.alerts[ident] for ident in self._by_subject.get(subject, ())]

    # what the store has

    def pending(self, ident: str) -> bool:
        """Whether the alert was changed here and is not written yet."""
        return ident in self.urgent or ident in self.recount

    def put(self, alert: Alert) -> None:
        """It is like this."""
        self.alerts[alert.id] = alert
        if alert.over:
            self._drop_member(alert)
        else:
            self._by_subject.setdefault(alert.node or alert.bmc, set()).add(alert.id)

    def remove(self, ident: str) -> None:
        """It is no more."""
        gone = self.alerts.pop(ident, None)
        if gone is not None:
            self._drop_member(gone)

    def clear(self) -> None:
        """Forget everything but what is not written yet."""
        kept: Iterable[str] = (*self.urgent, *self.recount)
        left = [self.alerts[ident] for ident in kept if ident in self.alerts]
        self.alerts.clear()
        self.acknowledgements.clear()
        self._by_subject.clear()
        for alert in left:
            self.put(alert)

    def _open(self, ident: str, before: Alert | None, event: HardwareEvent, now: float) -> Alert | None:
        if before is None and len(self.alerts) >= self._settings.most:
            self.crowded = True
            self.refused += 1
            return None
        if before is not None and now - before.changed < self._settings.quiet:
            self._flaps[ident] = self._flaps.get(ident, 0) + 1
        else:
            self._flaps.pop(ident, None)
        return self._keep(rec.opened(event, ident, now, self._owner))

    def _keep(self, alert: Alert) -> Alert:
        self.put(alert)
        self.urgent[alert.id] = None
        return alert

    def _drop_member(self, alert: Alert) -> None:
        subject = alert.node or alert.bmc
        members = self._by_subject.get(subject, set())
        members.discard(alert.id)
        if not members:
            self._by_subject.pop(subject, None)
