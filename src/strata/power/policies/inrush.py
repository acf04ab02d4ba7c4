"""Boot inrush: how many nodes may be starting at once behind one cabinet's or PDU's supply."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strata.power.capping.terms import Mask, Rows
from strata.power.policies.policy import Inrush


def within(part: Inrush, behind: tuple[NDArray[np.integer], NDArray[np.integer]], starting: Mask, wanted: Rows) -> Rows:
    """Those of the ``wanted`` nodes that may start now, in their order. ``behind``: the cabinet and the PDU of
    each node; those of which nobody knows it share one."""
    for limit, supply in zip((part.cabinet, part.pdu), behind, strict=True):
        if limit is not None and len(wanted):
            busy = np.bincount(supply[starting], minlength=int(supply.max()) + 1)
            of = supply[wanted]
            wanted = wanted[busy[of] + _place_among_equals(of) < limit // part.node]
    return wanted


def _place_among_equals(values: NDArray[np.integer]) -> Rows:
    """For each value, how many equal ones are before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered, side="left")
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - first
    return found
