"""What a site says of its nodes' power in their labels, since no controller tells it: what a node draws while it starts
(``powerup=140W``), and what it draws that no cap reaches (``static=20W``)."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from strata.power.capmc.machine import CapmcMachine
from strata.power.columns import PowerRows, Uids
from strata.power.units import watts

LABELS = ("powerup", "static")
"""Each is called as its column."""


def rated(machine: CapmcMachine, uids: Uids) -> PowerRows:
    """What is known of nodes, with what their labels say where nobody measured it."""
    rows = machine.rows(uids)
    found = {}
    for name in LABELS:
        words = machine.label(uids, name)
        known = {word: _watts(word) for word in set(words)}
        seen = getattr(rows, name)
        found[name] = np.where(np.isnan(seen), np.array([known[word] for word in words], dtype=np.float64), seen)
    return msgspec.structs.replace(rows, **found)


def _watts(text: str) -> float:
    """A label that is no power says nothing."""
    try:
        return float(watts(text))
    except ValueError:
        return math.nan
