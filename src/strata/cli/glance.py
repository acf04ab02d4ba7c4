"""The fleet at a glance, as ``strata status`` begins and ``strata`` alone shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from strata.cli.output import counts, many
from strata.core.errors import Denied, NotFound, Unavailable

if TYPE_CHECKING:
    from strata.cli.client import Client, Json

SHOWN_ALERTS = 5
_ENDED = ("done", "rolled-back", "aborted")
_MOST_ALERTS = 1000


class Glance(NamedTuple):
    """What people look for first."""

    status: Json
    alerts: tuple[Json, ...]
    """Those that are open, the worst first; none where nobody may see them, or no layer has any."""

    rollouts: tuple[Json, ...]
    """Those that have not ended; none where nobody may see them, or no layer has any."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Names and what is to be said."""
        yield "nodes", f"{self.status['nodes']}: {counts(self.status['by_state'])}" if self.status["nodes"] else "none"
        for trouble in self.status["troubles"]:
            yield "trouble", trouble
        if self.alerts:
            yield from self._alerts()
        yield from self.rolling()

    def rolling(self) -> Iterator[tuple[str, str]]:
        """How far each rollout is, and what it waits for."""
        for position, one in enumerate(self.rollouts):
            why = one["waits_for"] if one["state"] == "running" else one["reason"] or one["waits_for"]
            told = f"{one['name']}: {one['state']}, wave {one['wave']} of {one['waves']}" + (f"; {why}" if why else "")
            yield "" if position else "rollouts", told

    def _alerts(self) -> Iterator[tuple[str, str]]:
        by_severity: dict[str, int] = {}
        for alert in self.alerts:
            by_severity[alert["severity"]] = by_severity.get(alert["severity"], 0) + 1
        more = " or more" if len(self.alerts) == _MOST_ALERTS else ""
        yield "alerts", f"{len(self.alerts)}{more}: {', '.join(f'{n} {name}' for name, n in by_severity.items())}"
        for alert in self.alerts[:SHOWN_ALERTS]:
            subject = alert.get("node") or alert.get("bmc")
            yield "", ": ".join(part for part in (alert["severity"], subject, alert["message"]) if part)
        if len(self.alerts) > SHOWN_ALERTS:
            yield "", f"and {many(len(self.alerts) - SHOWN_ALERTS, 'more alert')}: strata alert list"


def glance(client: Client) -> Glance:
    """Ask for it."""
    status = client.get("/v1/status")
    alerts = tuple(alert for alert in listed(client, "/v1/alerts", limit=_MOST_ALERTS) if alert["state"] == "open")
    rollouts = tuple(one for one in listed(client, "/v1/rollouts") if one["state"] not in _ENDED)
    return Glance(status, alerts, rollouts)


def listed(client: Client, path: str, **query: int) -> Sequence[Json]:
    """What a layer lists; nothing where it is not there, or may not be seen."""
    try:
        return list(client.get(path, query)["items"])
    except (Denied, NotFound, Unavailable):
        return ()
