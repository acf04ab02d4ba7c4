"""A scheduler for simulations: first come first served, and smaller jobs go ahead where they delay nobody (EASY).

Nodes and watts are both resources. The first job that does not fit gets a reservation: the moment at which enough
running jobs will have reached their time limit. Others may start if they end before, or fit beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.terms import Column, Rows

DEPTH = 200
"""How many waiting jobs are looked at."""


class Held(NamedTuple):
    """What running jobs hold (or nodes on their way), and until when."""

    nodes: Rows
    watts: Column
    ends: Column


def startable(now: float, nodes: Rows, watts: Column, limit: Column, free: int, room: float, held: Held) -> list[int]:
    """Which of the waiting jobs start now: their places in the queue."""
    found: list[int] = []
    shadow, beside_nodes, beside_watts = np.inf, 0, 0.0
    reserved = False
    for at, (size, need) in enumerate(zip(nodes.tolist(), watts.tolist(), strict=True)):
        if free <= 0 or room <= 0:
            break
        fits = size <= free and need <= room
        if not reserved and not fits:
            shadow, beside_nodes, beside_watts = _reservation(size, need, free, room, held)
            reserved = True
        elif fits:
            early = now + limit[at] <= shadow
            if reserved and not early:
                if size > beside_nodes or need > beside_watts:
                    continue
                beside_nodes -= size
                beside_watts -= need
            found.append(at)
            free -= size
            room -= need
    return found


def _reservation(size: int, need: float, free: int, room: float, held: Held) -> tuple[float, int, float]:
    """When a job will fit, and what is left beside it then."""
    order = np.argsort(held.ends, kind="stable")
    nodes = free + np.cumsum(held.nodes[order])
    watts = room + np.cumsum(held.watts[order])
    enough = np.flatnonzero((nodes >= size) & (watts >= need))
    if not len(enough):
        return np.inf, 0, 0.0
    at = enough[0]
    return float(held.ends[order][at]), int(nodes[at]) - size, float(watts[at]) - need
