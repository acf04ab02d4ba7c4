"""One round of a policy, live or in a simulation: what its parts ask for, as far as the ledger of caps allows it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.ledger import Ledger
from strata.power.capping.split import level, propose
from strata.power.capping.terms import SETTLE, Column, Commands, Limits, Rows, Use
from strata.power.policies.capped_queues import assign
from strata.power.policies.policy import Policy
from strata.power.policies.view import Actions, View


class Decided(NamedTuple):
    """What is to be done; the ledger has it as done. Keep that first."""

    queue: Rows
    """The queue that each node serves from now on."""
    commands: Commands
    on: Rows
    off: Rows


def decide(
    policy: Policy,
    when: float,
    view: View,
    ledger: Ledger,
    limits: Limits,
    now: float,
    *,
    at_most: Column | None = None,
) -> Decided:
    """Ask ``policy`` what to do at the hour ``when``, and book what may be; ``now`` is the ledger's time. ``at_most``:
    caps to which nodes are lowered, whatever the policy wants (NaN: none)."""
    actions = step(policy, when, view)
    # Or those raised first would have all of it, and the others nothing.
    caps = actions.caps if policy.cap is None else level(ledger, now, actions.caps, limits)
    if at_most is not None:
        caps = np.fmin(caps, at_most)
    commands = propose(ledger, now, caps, limits, groups=view.job, rank=actions.rank)
    ledger.send(commands, now, now + SETTLE)
    on = ledger.boot(actions.on, limits, now)
    # Or they would count as idle for as long as nobody can see what has become of them.
    ledger.occupy(actions.off, Use.STOPPING, now)
    return Decided(actions.queue, commands, on, actions.off)


def step(policy: Policy, now: float, view: View) -> Actions:
    actions = Actions.none(view)
    if policy.cap is not None:
        actions = actions._replace(caps=np.full(len(view.use), float(policy.cap)))
    if policy.queues:
        queue, caps = assign(policy.queues, policy.nodes.high, now, view)
        actions = actions._replace(queue=queue, caps=caps)
    for rule in policy.rules.values():
        actions = rule.step(policy, now, view, actions)
    return actions
