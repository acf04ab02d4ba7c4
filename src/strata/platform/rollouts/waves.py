"""Which nodes of a rollout come when: stages by the order of groups, waves within each. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from strata.core.errors import BadRequest
from strata.fleet.columns import Indices, Mask
from strata.platform.rollouts.records import amount


class Wave(NamedTuple):
    """Nodes whose turn comes together."""

    stage: int
    nodes: Indices


def levels(order: Sequence[Sequence[str]]) -> dict[str, int]:
    """Group → how many groups come before it, on the longest of its chains; ``BadRequest`` on a circle."""
    before: dict[str, set[str]] = {}
    for chain in order:
        for first, second in itertools.pairwise(chain):
            before.setdefault(first, set())
            before.setdefault(second, set()).add(first)
    found: dict[str, int] = {}
    while len(found) < len(before):
        free = [group for group in before if group not in found and before[group] <= found.keys()]
        if not free:
            circle = sorted(before.keys() - found.keys())
            raise BadRequest(f"{', '.join(circle)} come before each other in a circle", where="order")
        found.update({group: 1 + max((found[one] for one in before[group]), default=-1) for group in free})
    return found


def stages(nodes: Indices, order: Sequence[Sequence[str]], mask: Callable[[str], Mask]) -> list[Indices]:
    """The nodes by the stage that they are in. Who is in several groups is in the last stage of those."""
    stage = np.zeros(len(nodes), dtype=np.int64)
    for group, level in levels(order).items():
        inside = mask(group)[nodes]
        stage[inside] = np.maximum(stage[inside], level)
    return [found for level in range(int(stage.max(initial=0)) + 1) if len(found := nodes[stage == level])]


def spread(nodes: Indices, keys: Mapping[str, Mask], fit: Mask) -> Indices:
    """The nodes in the order of their turns: fit ones first, and all groups at the same pace, so that no wave spends
    the limit of one group while the others have nothing to do."""
    bucket = np.full(len(nodes), len(keys), dtype=np.int64)
    for at, mask in reversed(list(enumerate(keys.values()))):
        bucket[mask[nodes]] = at
    share = np.zeros(len(nodes))
    for at in range(len(keys) + 1):
        inside = np.flatnonzero(bucket == at)
        share[inside] = (np.arange(len(inside)) + 0.5) / max(1, len(inside))
    return nodes[np.lexsort((nodes, share, ~fit[nodes]))]


def waves(stage: int, nodes: Indices, sizes: Sequence[str]) -> list[Wave]:
    """Cut the nodes of a stage, which come in the order of their turns; the last size is repeated."""
    found: list[Wave] = []
    done = 0
    while done < len(nodes):
        size = max(1, amount(sizes[min(len(found), len(sizes) - 1)], len(nodes)))
        found.append(Wave(stage, np.sort(nodes[done : done + size])))
        done += size
    return found
