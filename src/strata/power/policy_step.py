"""One step of a policy: what its parts, taken together, ask for at this moment. Pure."""

from __future__ import annotations

import numpy as np

from strata.power.capping.terms import Use
from strata.power.policy import Policy
from strata.power.policy_inrush import within
from strata.power.policy_over import over
from strata.power.policy_pool import pool
from strata.power.policy_queues import assign
from strata.power.policy_view import Actions, View


def step(policy: Policy, now: float, view: View) -> Actions:
    """What to do now."""
    actions = Actions.none(view)
    if policy.cap is not None:
        actions = actions._replace(caps=np.full(len(view.use), float(policy.cap)))
    if policy.queues:
        queue, caps = assign(policy.queues, policy.nodes.high, now, view)
        actions = actions._replace(queue=queue, caps=caps)
    if policy.over_provisioned is not None:
        caps, rank = over(policy.over_provisioned, policy.nodes, now, view)
        actions = actions._replace(caps=caps, rank=rank)
    if policy.idle_pool is not None:
        startable = np.flatnonzero(view.use == Use.OFF)
        if policy.inrush is not None:
            startable = within(policy.inrush, (view.cabinet, view.pdu), view.starting, startable)
        on, off = pool(policy.idle_pool, now, view, startable)
        actions = actions._replace(on=on, off=off)
    return actions
