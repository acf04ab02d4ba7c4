"""What the engine's facts and the registry's labels say of many nodes at once, as far as power goes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.control.columns import Indices, Mask
from strata.control.service import Service
from strata.hardware.feeds import FED_BY


class Powered(NamedTuple):
    """Nodes as they were last seen. Neither on nor off: nobody knows, or there is no such node."""

    on: Mask
    off: Mask
    up: Mask
    """On, and their systems run."""


def powered(fleet: Service, nodes: Indices) -> Powered:
    """How ``nodes`` were last seen; below 0: there is none."""
    there, view = nodes >= 0, fleet.view
    on, off, up = view.fact_mask("power", "on"), view.fact_mask("power", "off"), view.fact_mask("os", "up")
    return Powered(on[nodes] & there, off[nodes] & there, (on & up)[nodes] & there)


def cabinets(fleet: Service) -> npt.NDArray[np.int32]:
    """The cabinet of each node of the registry, as a number."""
    return fleet.registry.location("cabinet").codes


def supplies(fleet: Service) -> npt.NDArray[np.int32]:
    """The power strip of each node of the registry, as a number: as its label says, else the outlet that feeds it."""
    registry = fleet.registry
    pdu = registry.label("pdu")
    return pdu.codes if len(pdu.table) > 1 else registry.label(FED_BY).codes
