"""Boot inrush: how many nodes may be starting at once behind one cabinet's or power strip's supply."""

from __future__ import annotations

import numpy as np

from strata.power.capping import Rows, Use
from strata.power.policy import Inrush
from strata.power.policy_view import View


def paced(part: Inrush, view: View, wanted: Rows) -> Rows:
    """Those of the ``wanted`` nodes that may start now, in their order."""
    for limit, supply in ((part.cabinet, view.cabinet), (part.pdu, view.pdu)):
        if limit is not None and len(wanted):
            starting = np.bincount(supply[view.use == Use.BOOTING], minlength=int(supply.max()) + 1)
            behind = supply[wanted]
            wanted = wanted[starting[behind] + _place_among_equals(behind) < limit // part.node]
    return wanted


def _place_among_equals(values: Rows) -> Rows:
    """For each value, how many equal ones are before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered, side="left")
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - first
    return found
