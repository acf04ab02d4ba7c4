"""What the site may draw, from its settings and from the policy that is enabled (the stricter of both); and which
nodes that is shared out among."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from strata.core.units import Seconds
from strata.fleet.fleet import Fleet
from strata.power.capping.terms import Limits
from strata.power.policies.policy import NodePower, Policy
from strata.power.policies.records import PolicyRecords
from strata.power.settings import PowerSettings
from strata.power.telemetry.columns import PowerColumns, Uids
from strata.power.telemetry.gauges import drawing

LIMIT_ONLY = Policy(name="site limit", every=Seconds(10))
"""What runs where there is a limit and no policy."""


class SiteNodes:
    """Level with the registry after each ``look``."""

    def __init__(self, fleet: Fleet, columns: PowerColumns) -> None:
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
            roster = registry.nodes
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


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The site's limits in CAPMC's words, in watts and watts a minute; 0: none."""

    power_cap_target: int = 0
    power_threshold: int = 0
    static_power: int = 0
    ramp_limited: bool = False
    ramp_limit: int = 0
    power_band_min: int = 0
    power_band_max: int = 0


class SiteLimits:
    """Asked anew each time: both may change."""

    def __init__(self, settings: PowerSettings, policies: PolicyRecords, nodes: SiteNodes) -> None:
        self.nodes = nodes
        self.settings = settings
        self._policies = policies

    @property
    def there(self) -> bool:
        """Whether there is anything to keep to."""
        return self.settings.limit > 0 or self._policies.enabled is not None

    @property
    def policy(self) -> Policy:
        """The one that runs."""
        record = self._policies.enabled
        return record.policy() if record else LIMIT_ONLY

    @property
    def site(self) -> float:
        """Watts of the whole site; infinite: nobody says."""
        said = self.policy.limit
        return min(self.settings.limit or math.inf, math.inf if said is None else float(said))

    def shared(self) -> Limits:
        """What is left for the nodes that can be capped."""
        own, settings = self.policy.limits(), self.settings
        return Limits(
            site=self.site - self.nodes.static,
            floor=max(0.0, max(own.floor, settings.band) - self.nodes.static),
            ramp_up=min(own.ramp_up, settings.ramp or math.inf),
            ramp_down=own.ramp_down,
        )

    def parameters(self) -> Parameters:
        limits, limit = self.shared(), self.site
        whole = 0 if math.isinf(limit) else round(limit)
        ramp = 0 if math.isinf(limits.ramp_up) else round(limits.ramp_up)
        return Parameters(
            power_cap_target=whole,
            power_threshold=whole,
            static_power=round(self.nodes.static),
            ramp_limited=ramp > 0,
            ramp_limit=ramp,
            power_band_min=round(limits.floor),
            power_band_max=whole,
        )
