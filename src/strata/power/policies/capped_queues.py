"""Capped queues: each has nodes under its own cap, and idle nodes go to where jobs wait."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from strata.power.capping.terms import Column, Rows, Use
from strata.power.policies.policy import Queue
from strata.power.policies.view import View


def first_shares(queues: Mapping[str, Queue], count: int) -> Rows:
    """Which queue each of ``count`` nodes serves to begin with. What no queue claims goes to the first; -1: there are
    none, and every node serves any job."""
    if not queues:
        return np.full(count, -1, np.int64)
    claims = [queue.nodes for queue in queues.values()]
    found = np.repeat(np.arange(len(claims)), claims)[:count]
    return np.concatenate([found, np.zeros(count - len(found), np.int64)]).astype(np.int64)


def assign(queues: Mapping[str, Queue], high: float, now: float, view: View) -> tuple[Rows, Column]:
    """The queue that each node is to serve, and the cap that this means. Only idle nodes move.

    Queues that are preferred at this hour are served first, and from the nodes that others have jobs for, too.
    """
    parts = list(queues.values())
    queue = view.queue.copy()
    idle = view.use == Use.IDLE
    known = view.waiting.queue >= 0
    need = np.bincount(view.waiting.queue[known], view.waiting.nodes[known], minlength=len(parts)).astype(np.int64)
    have = np.bincount(queue[idle], minlength=len(parts))
    total = np.bincount(queue, minlength=len(parts))
    preferred = [part.prefer is not None and part.prefer.now(now) for part in parts]
    order = sorted(range(len(parts)), key=lambda at: not preferred[at])
    for taker in order:
        for giver in reversed(order):
            lacking = need[taker] - have[taker]
            if giver == taker or lacking <= 0:
                continue
            kept = 0 if preferred[taker] and not preferred[giver] else need[giver]
            count = int(min(lacking, have[giver] - kept, total[giver] - parts[giver].least))
            if count <= 0:
                continue
            queue[np.flatnonzero(idle & (queue == giver))[:count]] = taker
            for column in (have, total):
                column[giver] -= count
                column[taker] += count
    caps = np.array([high if part.cap is None else part.cap for part in parts])
    return queue, caps[queue]
