"""The states of nodes in CAPMC's words, from what the engine believes. Array operations: the whole fleet at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from strata.core.state import STATES as OURS
from strata.engine.explain import states
from strata.fleet.columns import Indices, Mask
from strata.fleet.fleet import Fleet
from strata.hardware.feeds.feeds import CHASSIS, OUTLET
from strata.power.capmc.records import STATES

_OFF, _ON, _READY, _STANDBY, _DISABLED, _HALT, _DIAG, _UNDEFINED = (
    STATES.index(name) for name in ("off", "on", "ready", "standby", "disabled", "halt", "diag", "undefined")
)
DIAG = "diag"
"""The label of nodes that somebody examines."""


def powered(fleet: Fleet, nodes: Indices) -> npt.NDArray[np.int8]:
    """What the hardware alone tells of each: ``on``, ``off`` or ``undefined``."""
    power = _facts(fleet, "power", nodes)
    found = np.full(len(nodes), _UNDEFINED, dtype=np.int8)
    found[power == "off"] = _OFF
    found[power == "on"] = _ON
    return found


def states_of(fleet: Fleet, nodes: Indices) -> tuple[npt.NDArray[np.int8], Mapping[str, Mask]]:
    """Each node's state, and who carries which flag.

    ``ready``: its image runs (or, where nobody tells of images, its OS; or, where nobody tells of that, it has power).
    ``standby``: on the way there, or silent. ``halt``: its OS is down and it is to be off. ``diag``: it has power, and
    a label says that somebody examines it. ``disabled``: a person took it out of automation and it does not run.
    An outlet or a chassis is ``on`` or ``off``.
    Flags: ``alert`` faulted, ``resvd`` held or frozen, ``warn`` no way to its goal.
    """
    found = powered(fleet, nodes)
    on = found == _ON
    registry = fleet.registry
    os = _facts(fleet, "os", nodes)
    if os is None:
        found[on] = _READY
    else:
        found[on] = _STANDBY
        found[on & (os == "down")] = _ON
        found[on & (os == "down") & registry.wanted("power", "off")[nodes]] = _HALT
        personality = _facts(fleet, "personality", nodes)
        runs = os == "up" if personality is None else personality == "active"
        found[on & runs] = _READY
    examined = registry.label(DIAG)
    found[on & (np.array([bool(word) for word in examined.table])[examined.codes[nodes]])] = _DIAG
    # An outlet or a chassis runs nothing that could be ready.
    feeds = (registry.roles.where(CHASSIS) | registry.roles.where(OUTLET))[nodes]
    found[on & feeds] = _ON
    held = registry.brakes.held[nodes]
    found[held & (found != _READY)] = _DISABLED
    ours = states(fleet.controller.engine, nodes)
    return found, {
        "alert": ours == OURS.index("faulted"),
        "resvd": held | registry.brakes.frozen[nodes],
        "warn": ours == OURS.index("unreachable"),
    }


def _facts(fleet: Fleet, variable: str, nodes: Indices) -> npt.NDArray[np.str_] | None:
    """What is believed of a variable; None: the model has no such."""
    column = fleet.controller.engine.table.columns.get(variable)
    if column is None:
        return None
    words = np.array([str(word)[:16] for word in column.words])
    return words[column.fact[nodes]]
