"""A policy beside what a site would do without one: no caps at all, the same cap for all, or fewer nodes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from strata.power.policy import Policy
from strata.power.rehearsal import Death, rehearse
from strata.power.rehearsal_outcome import Outcome
from strata.power.rehearsal_world import Machine
from strata.power.trace import Trace
from strata.power.units import Watts

NO_POLICY = "no policy"


def compare(
    policy: Policy, trace: Trace, *, nodes: int, limit: float, days: float, seed: int, death: Death | None = None
) -> Iterator[Outcome]:
    """Rehearse the policy, and then each of the others on the same jobs. The controller dies in the first only."""
    own = msgspec.structs.replace(policy, name=policy.name or "policy", limit=Watts(limit))
    for candidate, count in ((own, nodes), *baselines(policy, nodes, limit)):
        machine = Machine(ratings=candidate.nodes.ratings(count))
        dies = death if candidate is own else None
        yield rehearse(candidate, machine, trace, limit=limit, days=days, seed=seed, death=dies)


def baselines(policy: Policy, nodes: int, limit: float) -> tuple[tuple[Policy, int], ...]:
    """What is done without a policy, and on how many nodes."""
    power = policy.nodes
    level = min(nodes, int(limit // power.low))
    cap = Watts(min(power.high, np.floor(limit / max(level, 1))))
    static = Policy(name=f"static {cap:g} W" + (f", {level} nodes" if level < nodes else ""), nodes=power, cap=cap)
    fewer = min(nodes, int(limit // power.high))
    return (
        (Policy(name=NO_POLICY, nodes=power), nodes),
        (static, level),
        (Policy(name=f"uncapped, {fewer} nodes", nodes=power), fewer),
    )
