"""What simulated nodes can be and be told: the built-in model's variables and mutations, as the simulator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from strata.core.column import Codes
from strata.core.model import ABSENT
from strata.core.state import Outcome

WORDS = {
    "power": ("off", "on"),
    "os": ("down", "up", "hung"),
    "minos": (ABSENT,),
    "identity": ("none", "issued"),
    "image": (ABSENT,),
    "personality": ("idle", "active", "update", "error", "fatal"),
    "config": (ABSENT,),
    "workload": ("out", "in"),
}
"""Values in the order of their codes (the first is 1): the first is that of a node that is off."""

VARIABLES = tuple(WORDS)
OPEN_VARIABLES = ("minos", "image", "config")

OFF, ON = 1, 2
DOWN, UP, HUNG = 1, 2, 3
OUT = 1
IDLE, ACTIVE = 1, 2
DEFAULT_MINOS = "default"
"""What a node is booted with where nobody said."""

TARGETS = {
    "power-on": ("power", "on"),
    "power-off": ("power", "off"),
    "boot": ("os", "up"),
    "enrol": ("identity", "issued"),
    "load-image": ("image", ""),
    "switch-image": ("image", ""),
    "start-personality": ("personality", "active"),
    "stop-personality": ("personality", "idle"),
    "configure": ("config", ""),
    "join-workload": ("workload", "in"),
    "leave-workload": ("workload", "out"),
}
"""Mutation → its variable and value; an empty value: the one that is desired."""

MUTATIONS = tuple(TARGETS)
BMC_STEPS = frozenset({"power-on", "power-off"})
WORKLOAD_STEPS = frozenset({"join-workload", "leave-workload"})
AGENT_STEPS = frozenset(MUTATIONS) - BMC_STEPS - WORKLOAD_STEPS - {"boot"}
"""Mutations that a node's own agent carries out."""

SEEN_BY = {
    "bmc": ("power",),
    "node": ("os", "minos", "identity", "image", "personality", "config"),
    "workload": ("workload",),
}
"""Driver → the variables that it can see."""


class Fate(IntEnum):
    """What becomes of an accepted action."""

    WORKS = 0
    NOTHING = 1
    HANGS = 2
    ERROR = 3
    LIES = 4
    """It says so, and it is not so: drained while a job runs."""


class Why(IntEnum):
    """Why a device said no. ``REASONS`` has the words."""

    NONE = 0
    FENCED = 1
    REFUSED = 2
    NO_POWER = 3
    STARTED = 4
    NO_OS = 5
    NO_IDENTITY = 6
    RUNNING = 7
    NO_IMAGE = 8
    NOT_RUNNING = 9
    NO_CONFIG = 10
    NO_FEED = 11
    OFF = 12
    IDLE = 13


REASONS = (
    "",
    "a newer or equal fence was taken before",
    "the device refused",
    "the node has no power",
    "the OS is already started",
    "no agent: the OS is down",
    "the node has no identity",
    "the personality is not idle",
    "the node has no image",
    "the personality is not active",
    "the node is not configured",
    "what feeds the node is off",
    "the node is off",
    "the personality is idle",
)


def check(
    mutation: str,
    state: Mapping[str, Codes],
    fresh: npt.NDArray[np.bool_],
    codes: npt.NDArray[np.int8],
    why: npt.NDArray[np.int8],
) -> None:
    """What no machine can do, it does not: write the outcome and reason of those ``fresh`` that cannot."""

    def unless(held: npt.NDArray[np.bool_], reason: Why) -> None:
        no = fresh & (codes == Outcome.DONE) & ~held
        codes[no] = Outcome.FAILED
        why[no] = reason

    if mutation == "boot":
        unless(state["power"] == ON, Why.NO_POWER)
        unless(state["os"] == DOWN, Why.STARTED)
    elif mutation in AGENT_STEPS:
        unless(state["os"] != DOWN, Why.NO_OS)
        codes[fresh & (codes == Outcome.DONE) & (state["os"] == HUNG)] = Outcome.UNKNOWN
    if mutation == "load-image":
        unless(state["identity"] == 2, Why.NO_IDENTITY)
        unless(state["personality"] == IDLE, Why.RUNNING)
    elif mutation == "switch-image":
        unless(state["identity"] == 2, Why.NO_IDENTITY)
        unless(state["personality"] != IDLE, Why.IDLE)
    elif mutation == "start-personality":
        unless(state["image"] != 1, Why.NO_IMAGE)
    elif mutation in ("configure", "join-workload"):
        unless(state["personality"] == ACTIVE, Why.NOT_RUNNING)
    if mutation == "join-workload":
        unless(state["config"] != 1, Why.NO_CONFIG)
