"""The fleet at a glance, as ``strata status`` begins and ``strata`` alone shows it: nodes, trouble, alerts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from strata.cli.output import counts, many
from strata.core.errors import Denied, NotFound, Unavailable

if TYPE_CHECKING:
    from strata.cli.client import Client, Json

SHOWN_ALERTS = 5
_MOST_ALERTS = 1000


class Glance(NamedTuple):
    """What people look for first."""

    status: Json
    alerts: tuple[Json, ...]
    """Those that are open, the worst first; none where nobody may see them, or no layer has any."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Names and what is to be said."""
        yield "nodes", f"{self.status['nodes']}: {counts(self.status['by_state'])}" if self.status["nodes"] else "none"
        for trouble in self.status["troubles"]:
            yield "trouble", trouble
        if not self.alerts:
            return
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
    status: Json = client.get("/v1/status")
    try:
        found = client.get("/v1/alerts", {"limit": _MOST_ALERTS})["items"]
    except (Denied, NotFound, Unavailable):
        found = []
    return Glance(status, tuple(alert for alert in found if alert["state"] == "open"))
