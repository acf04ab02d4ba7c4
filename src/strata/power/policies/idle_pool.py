"""The idle pool: some nodes are ready at all times, and no more than that burn power for nothing."""

from __future__ import annotations

import numpy as np

from strata.power.capping.terms import Rows, Use
from strata.power.policies.policy import IdlePool
from strata.power.policies.view import View


def pool(part: IdlePool, now: float, view: View, startable: Rows) -> tuple[Rows, Rows]:
    """The nodes to start (some of ``startable``) and to stop now.

    As long as the first waiting job lacks nodes (and not power), the lower limit stretches to what it needs, or it
    would never start; and nobody is stopped.
    """
    idle, coming = view.use == Use.IDLE, int(np.count_nonzero(view.use == Use.BOOTING))
    ready = int(np.count_nonzero(idle))
    head = int(view.waiting.nodes[0]) if len(view.waiting.nodes) else 0
    if max(head * view.launch, (head - ready - coming) * view.start) > view.room:
        head = 0
    missing = max(part.low, head) - ready - coming
    if missing > 0:
        affordable = int(max(view.room, 0.0) // view.start) if view.start > 0 and np.isfinite(view.room) else missing
        return startable[: min(missing, part.on, affordable)], _NOBODY
    surplus = ready - max(part.high, head)
    if surplus <= 0:
        return _NOBODY, _NOBODY
    rows = np.flatnonzero(idle & (view.idle_since <= now - part.after))
    longest = rows[np.argsort(view.idle_since[rows], kind="stable")]
    return _NOBODY, longest[: min(surplus, part.off)]


_NOBODY: Rows = np.empty(0, np.int64)
