"""Which nodes this process looks after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from strata.control.batches import batch_of
from strata.control.controller import Controller
from strata.power.collector import NOBODY, Nodes


def led_nodes(controller: Controller) -> Callable[[], Nodes]:
    """The nodes that this process looks after and that have a controller; the same object while that is so."""
    kept: tuple[tuple[int, int, int], Nodes] = ((-1, 0, 0), NOBODY)

    def led() -> Nodes:
        nonlocal kept
        registry = controller.registry
        mine = registry.alive & (controller.engine.work.epoch[: registry.size] > 0)
        # A node that is new or changed has the highest revision; one that is gone is one less.
        stamp = (int(registry.revisions.max(initial=0)), len(registry), hash(mine.tobytes()))
        if kept[0] != stamp:
            roster = registry.roster.nodes
            here = [i for i in np.flatnonzero(mine).tolist() if (node := roster[i]) is not None and node.bmc]
            indices = np.array(here, dtype=np.int64)
            indices = indices[np.argsort(registry.uids[indices], kind="stable")]
            batch = batch_of(registry, indices)
            kept = (stamp, Nodes(uids=np.array(batch.uids, dtype=np.int64), names=batch.names, bmcs=batch.bmcs))
        return kept[1]

    return led
