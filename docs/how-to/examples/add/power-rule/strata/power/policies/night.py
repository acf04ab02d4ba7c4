"""Nights: at these hours all nodes have a lower cap, as cooling or contracts ask for."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from strata.core.units import Watts
from strata.power.policies.policy import Hours, Policy, Rule
from strata.power.policies.view import Actions, View


class Night(Rule, frozen=True):
    """``night: {cap: 220W, hours: {from: "0:00", to: "6:00"}}`` in a policy."""

    says_caps: ClassVar[bool] = True

    cap: Watts
    hours: Hours = Hours(start="0:00", end="6:00")

    def step(self, policy: Policy, now: float, view: View, actions: Actions) -> Actions:
        """The cap of this hour, for every node; the ledger of caps decides when each may have it."""
        cap = float(self.cap if self.hours.now(now) else policy.nodes.high)
        return actions._replace(caps=np.full(len(view.use), cap))
