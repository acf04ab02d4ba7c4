"""What the site may draw, from its settings and from the policy that is enabled: the stricter of both."""

from __future__ import annotations

import math

from strata.control.power_policies import PolicyBook
from strata.control.settings import PowerSettings
from strata.control.site_nodes import SiteNodes
from strata.power.capmc.machine import Parameters
from strata.power.capping.terms import Limits
from strata.power.policy import Policy
from strata.power.units import Seconds

LIMIT_ONLY = Policy(name="site limit", every=Seconds(10))
"""What runs where there is a limit and no policy."""


class SiteLimits:
    """Asked anew each time: both may change."""

    def __init__(self, settings: PowerSettings, policies: PolicyBook, nodes: SiteNodes) -> None:
        self._settings = settings
        self._policies = policies
        self._nodes = nodes

    @property
    def there(self) -> bool:
        """Whether there is anything to keep to."""
        return self._settings.limit > 0 or self._policies.enabled is not None

    @property
    def policy(self) -> Policy:
        """The one that runs."""
        record = self._policies.enabled
        return record.policy() if record else LIMIT_ONLY

    @property
    def site(self) -> float:
        """Watts of the whole site; infinite: nobody says."""
        said = self.policy.limit
        return min(self._settings.limit or math.inf, math.inf if said is None else float(said))

    @property
    def ramp(self) -> float | None:
        """Watts a minute, as the settings say."""
        return self._settings.ramp or None

    @property
    def band(self) -> float | None:
        """Watts: its lower edge, as the settings say."""
        return self._settings.band or None

    def shared(self) -> Limits:
        """What is left for the nodes that can be capped."""
        own, settings = self.policy.limits(), self._settings
        return Limits(
            site=self.site - self._nodes.static,
            floor=max(0.0, max(own.floor, settings.band) - self._nodes.static),
            ramp_up=min(own.ramp_up, settings.ramp or math.inf),
            ramp_down=own.ramp_down,
        )

    def parameters(self) -> Parameters:
        """As CAPMC tells of it."""
        limits, limit = self.shared(), self.site
        whole = 0 if math.isinf(limit) else round(limit)
        ramp = 0 if math.isinf(limits.ramp_up) else round(limits.ramp_up)
        return Parameters(
            power_cap_target=whole,
            power_threshold=whole,
            static_power=round(self._nodes.static),
            ramp_limited=ramp > 0,
            ramp_limit=ramp,
            power_band_min=round(limits.floor),
            power_band_max=whole,
        )
