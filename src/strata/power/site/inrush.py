"""How many nodes are starting behind each cabinet and PDU, whoever starts them, and whether one more may.

Kept in memory: facts say who starts, and for what was let start a moment ago and is not seen yet, ``begin`` does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.fleet.columns import Indices, Mask
from strata.fleet.fleet import Fleet
from strata.hardware.feeds.feeds import FED_BY
from strata.power.capping.terms import Column
from strata.power.policies.inrush import within
from strata.power.policies.policy import Inrush
from strata.power.telemetry.columns import Uids
from strata.power.telemetry.gauges import drawing


class Powered(NamedTuple):
    """Nodes as they were last seen. Neither on nor off: nobody knows, or there is no such node."""

    on: Mask
    off: Mask
    up: Mask
    """On, and their systems run."""


def powered(fleet: Fleet, nodes: Indices) -> Powered:
    """How ``nodes`` were last seen; below 0: there is none."""
    there, view = nodes >= 0, fleet.view
    on, off, up = view.fact_mask("power", "on"), view.fact_mask("power", "off"), view.fact_mask("os", "up")
    return Powered(on[nodes] & there, off[nodes] & there, (on & up)[nodes] & there)


def cabinets(fleet: Fleet) -> npt.NDArray[np.int32]:
    """The cabinet of each node of the registry, as a number."""
    return fleet.registry.location("cabinet").codes


def supplies(fleet: Fleet) -> npt.NDArray[np.int32]:
    """The PDU of each node of the registry, as a number: as its label says, else the outlet that feeds it."""
    registry = fleet.registry
    pdu = registry.label("pdu")
    return pdu.codes if len(pdu.table) > 1 else registry.label(FED_BY).codes


class Inrushes:
    """Of the whole fleet, by the uids of nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._begun: Column = np.empty(0)
        """When each node, by uid, was first known to start; NaN: it does not."""
        self._now = fleet.controller.clock.now

    def allowed(self, part: Inrush, uids: Uids) -> Mask:
        """Which of ``uids`` may start now, all together, in this order. Who is on or starting already may; so may
        outlets and chassis, which draw nothing themselves."""
        registry = self._fleet.registry
        nodes = drawing(registry, np.flatnonzero(registry.alive))
        starting = np.zeros(registry.size, np.bool_)
        starting[nodes] = self.starting(part, registry.uids[nodes])
        wanted = registry.indices_of(uids)
        known = wanted >= 0
        free = known & (starting[wanted] | powered(self._fleet, wanted).on | ~np.isin(wanted, nodes))
        asking = wanted[known & ~free]
        fits = within(part, (cabinets(self._fleet), supplies(self._fleet)), starting, asking)
        found: Mask = free | (known & np.isin(wanted, fits))
        return found

    def starting(self, part: Inrush, uids: Uids) -> Mask:
        """Which of ``uids`` are starting, as far as the supply feels it."""
        on, _, up = powered(self._fleet, self._fleet.registry.indices_of(uids))
        begun, now = self._of(uids), self._now()
        begun[up] = np.nan
        begun[~on & (now - begun >= part.lasts)] = np.nan
        begun[on & ~up & np.isnan(begun)] = now
        self._begun[uids] = begun
        found: Mask = now - begun < part.lasts
        return found

    def begin(self, uids: Uids) -> None:
        begun = self._of(uids)
        self._begun[uids] = np.where(np.isnan(begun), self._now(), begun)

    def _of(self, uids: Uids) -> Column:
        more = int(uids.max(initial=-1)) + 1 - len(self._begun)
        if more > 0:
            self._begun = np.append(self._begun, np.full(more + len(self._begun), np.nan))
        found: Column = self._begun[uids]
        return found
