"""Alarms that come again and again are told once a minute: somebody who knocks all the time is one case."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from strata.fleet.alarm import Alarm, AlarmSink

log = logging.getLogger(__name__)

QUIET = 60.0
"""Seconds in which the same alarm is told once."""
NODES = 20
"""Nodes that one address is told of in that time: then it is clear what it is doing."""
PEERS = 4096
"""Addresses that are remembered."""


class FoldedAlarms:
    """An alarm sink in front of another."""

    def __init__(self, sink: AlarmSink, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, set[str]]] = {}

    def __call__(self, alarm: Alarm) -> None:
        """Pass the alarm on, unless the same one was told just now. That something is over is always passed on, and
        what comes back after it is no repetition."""
        now = self._clock()
        if alarm.severity == "ok":
            for (kind, _), (_, told) in self._told.items():
                if kind == alarm.kind:
                    told.discard(alarm.node or alarm.about)
            self._sink(alarm)
            return
        case = (alarm.kind, alarm.peer)
        since, nodes = self._told.get(case, (now, set()))
        if now - since >= QUIET:
            del self._told[case]
            since, nodes = now, set()
        about = alarm.node or alarm.about
        # Where nobody's address is known, each node has a trouble of its own.
        if about in nodes or (alarm.peer and len(nodes) >= NODES):
            return
        nodes.add(about)
        if case not in self._told and len(self._told) >= PEERS:
            del self._told[next(iter(self._told))]  # the oldest
        self._told[case] = (since, nodes)
        log.warning(
            "refused", extra={"kind": alarm.kind, "node": alarm.node, "peer": alarm.peer, "reason": alarm.message}
        )
        self._sink(alarm)
