"""The machine room around simulated nodes: PDUs whose outlets feed chassis, and chassis that feed nodes.

One PDU a cabinet, with an outlet a chassis. An outlet or a chassis that is switched off takes the power from all that
it feeds; when it is switched on again, what it feeds can be switched on, and nothing comes back by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.core.column import Indices
from strata.virtual.fleet.names import (
    CHASSIS,
    PER_CHASSIS,
    chassis_bmc,
    chassis_count,
    chassis_name,
    outlet_name,
    pdu_bmc,
)
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.network import FABRIC_MANAGER, Network


class PlantEffect(NamedTuple):
    """What an outlet or chassis was told and took."""

    time: float
    name: str
    """The place of the outlet (``x1000m0p0j1``) or the chassis (``x1000c0``)."""
    mutation: str
    after: int
    """How many effects there were on nodes before it."""


class Plant:
    """Outlets and chassis, by the number of the chassis. ``on``: how they all begin."""

    def __init__(self, nodes: SimNodes, *, on: bool = True) -> None:
        self.nodes = nodes
        self.network = Network(nodes.count)
        self.chassis = chassis_count(nodes.count)
        self.outlet_on = [on] * self.chassis
        self.chassis_on = [on] * self.chassis
        self.effects: list[PlantEffect] = []
        self.fenced = 0
        """Requests that were refused because of their fence."""
        self._fences: dict[str, tuple[int, int]] = {}
        self.pdus = {pdu_bmc(i): i for i in range(0, self.chassis, CHASSIS)}
        """Name of a PDU's BMC → its first chassis."""
        self.enclosures = {chassis_bmc(i): i for i in range(self.chassis)}
        """Name of a chassis BMC → its chassis."""
        self.names = (*self.pdus, *self.enclosures, *self.network.names, FABRIC_MANAGER)
        """All BMCs that are not a node's."""
        if not on:
            nodes.feed(nodes.all, False, now=0.0)

    def outlets(self, pdu: str) -> dict[str, int]:
        """Outlet (``A1`` and up) → the chassis that it feeds."""
        first = self.pdus[pdu]
        return {f"A{i - first + 1}": i for i in range(first, min(first + CHASSIS, self.chassis))}

    def watts(self, chassis: int, now: float) -> float:
        """What all nodes in a chassis draw."""
        return float(self.nodes.watts(self._inside(chassis), now).sum())

    def take_fence(self, name: str, fence: tuple[int, int] | None) -> bool:
        """Whether a request with this fence is to be obeyed; if so, older ones no longer are."""
        if fence is None:
            return True
        if fence <= self._fences.get(name, (-1, -1)):
            self.fenced += 1
            return False
        self._fences[name] = fence
        return True

    def switch_outlet(self, chassis: int, on: bool, *, now: float) -> None:
        """Switch the outlet that feeds a chassis."""
        self._note(outlet_name(chassis), on, now)
        self.outlet_on[chassis] = on
        if not on:
            self.chassis_on[chassis] = False
            self.nodes.feed(self._inside(chassis), False, now=now)

    def switch_chassis(self, chassis: int, on: bool, *, now: float) -> bool:
        """Switch a chassis; False if it has no power to be switched on with."""
        if on and not self.outlet_on[chassis]:
            return False
        self._note(chassis_name(chassis), on, now)
        self.chassis_on[chassis] = on
        self.nodes.feed(self._inside(chassis), on, now=now)
        return True

    def _inside(self, chassis: int) -> Indices:
        first = chassis * PER_CHASSIS
        return np.arange(first, min(first + PER_CHASSIS, self.nodes.count), dtype=np.int64)

    def _note(self, name: str, on: bool, now: float) -> None:
        mutation = "power-on" if on else "power-off"
        self.effects.append(PlantEffect(now, name, mutation, len(self.nodes.effects)))
