"""The idle pool: some nodes are ready at all times, and no more than that burn power for nothing."""

from __future__ import annotations

import numpy as np

from strata.core.units import Seconds
from strata.power.capping.terms import Rows, Use
from strata.power.policies.inrush import within
from strata.power.policies.policy import Policy, Rule
from strata.power.policies.view import Actions, View


class IdlePool(Rule, frozen=True):
    """Keep some nodes ready, and switch off those that nobody needs."""

    low: int
    """So many are kept idle or on their way; more are started when there are fewer."""
    high: int
    """Above this, idle nodes are stopped."""
    on: int = 100
    """At most so many are started at a time."""
    off: int = 100
    after: Seconds = Seconds(600)
    """A node is stopped only after it has been idle for so long."""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high or self.on < 1 or self.off < 1:
            raise ValueError("low must not be above high, and on and off must be at least 1")

    def step(self, policy: Policy, now: float, view: View, actions: Actions) -> Actions:
        startable = np.flatnonzero(view.use == Use.OFF)
        if policy.inrush is not None:
            startable = within(policy.inrush, (view.cabinet, view.pdu), view.starting, startable)
        on, off = self._who(now, view, startable)
        return actions._replace(on=on, off=off)

    def _who(self, now: float, view: View, startable: Rows) -> tuple[Rows, Rows]:
        """The nodes to start (some of ``startable``) and to stop now.

        As long as the first waiting job lacks nodes (and not power), the lower limit stretches to what it needs, or it
        would never start; and nobody is stopped.
        """
        idle, coming = view.use == Use.IDLE, int(np.count_nonzero(view.use == Use.BOOTING))
        ready = int(np.count_nonzero(idle))
        head = int(view.waiting.nodes[0]) if len(view.waiting.nodes) else 0
        if max(head * view.launch, (head - ready - coming) * view.start) > view.room:
            head = 0
        missing = max(self.low, head) - ready - coming
        if missing > 0:
            affordable = (
                int(max(view.room, 0.0) // view.start) if view.start > 0 and np.isfinite(view.room) else missing
            )
            return startable[: min(missing, self.on, affordable)], _NOBODY
        surplus = ready - max(self.high, head)
        if surplus <= 0:
            return _NOBODY, _NOBODY
        rows = np.flatnonzero(idle & (view.idle_since <= now - self.after))
        longest = rows[np.argsort(view.idle_since[rows], kind="stable")]
        return _NOBODY, longest[: min(surplus, self.off)]


_NOBODY: Rows = np.empty(0, np.int64)
