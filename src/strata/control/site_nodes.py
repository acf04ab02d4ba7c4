"""Which nodes the site's limit is shared out among, and what all others take off it."""

from __future__ import annotations

import numpy as np

from strata.control.power_gauges import drawing
from strata.control.service import Service
from strata.power.columns import PowerColumns, Uids
from strata.power.policy import NodePower


class SiteNodes:
    """Level with the registry after each ``look``."""

    def __init__(self, fleet: Service, columns: PowerColumns) -> None:
        self._fleet = fleet
        self._columns = columns
        self._known: tuple[int, int] = (-1, -1)
        self._others: Uids = np.empty(0, np.int64)
        self._reachable: Uids = np.empty(0, np.int64)
        self.capped: Uids = np.empty(0, np.int64)
        """Those that can be capped, ascending."""
        self.static = 0.0
        """Watts: of all others the most that they draw."""

    def look(self, nodes: NodePower) -> None:
        """See who is there. ``nodes``: the watts of one that says nothing of itself."""
        registry = self._fleet.registry
        stamp = (int(registry.revisions.max(initial=0)), len(registry))
        if stamp != self._known:
            everybody = drawing(registry, np.flatnonzero(registry.alive))
            roster = registry.roster.nodes
            reachable = np.array([bool((node := roster[i]) and node.bmc) for i in everybody.tolist()], dtype=np.bool_)
            capped = registry.roles.where("compute")[everybody] & reachable
            self.capped = np.sort(registry.uids[everybody[capped]])
            self._others = registry.uids[everybody[~capped]]
            self._reachable = registry.uids[everybody[reachable]]
            self._known = stamp
        most = self._columns.column("most", self._others)
        self.static = float(np.where(np.isfinite(most), most, float(nodes.high)).sum())

    @property
    def measured(self) -> bool:
        """Whether it is known of all that can tell what they draw at most."""
        return bool(np.isfinite(self._columns.column("most", self._reachable)).all())
