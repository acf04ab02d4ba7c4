"""The open alerts of a node as lines for whoever asks why it is not at its goal: often they know the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strata.control.principal import Principal, Right
from strata.core.node import Node
from strata.hardware.events.alerts import Alerts
from strata.hardware.events.alerts_record import Alert, holds
from strata.hardware.events.site import root_of
from strata.hardware.events.words import RANK, plain

MOST = 3
"""Alerts that are told; of the others only how many there are."""
LONGEST = 240
"""Characters of a message."""

READ = Right("read", "alert")

Told = Callable[[Principal, Node], Sequence[str]]
"""What a caller is told of a node's alerts."""


def nothing_known(who: Principal, node: Node) -> Sequence[str]:
    """Where nobody keeps alerts."""
    return ()


def open_alerts(alerts: Alerts) -> Told:
    """Tells of ``alerts``, worst and newest first."""

    def told(who: Principal, node: Node) -> Sequence[str]:
        if not who.may(READ):
            return ()
        found = alerts.open_on(node.name)
        if node.bmc and not who.scope:
            # Of a controller with several nodes behind it: such alerts are not there for who may see only some.
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
