"""What simulated nodes can be and be told: the variables and mutations that the layers declare, as codes in columns.

The declarations are read from the layers' own ``model`` modules, which are data; nothing else of a layer is known
here. Here is only what a declaration does not say: why a device says no, and what becomes of what it accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Codes, Column
from strata.core.errors import BadRequest
from strata.core.model import ABSENT, WANTED, Model, Mutation
from strata.core.state import Outcome
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING

MODEL = Model.of(HARDWARE, PROVISIONING, PLATFORM)

VARIABLES = tuple(MODEL.variables)
WORDS = {name: (ABSENT,) if variable.open else variable.values for name, variable in MODEL.variables.items()}
"""Values in the order of their codes (the first is 1): the first is that of a node that is off."""
MUTATIONS = tuple(MODEL.mutations)
TARGETS = {name: (m.variable, "" if m.to == WANTED else m.to) for name, m in MODEL.mutations.items()}
"""Mutation → its variable and value; an empty value: the one that is desired."""
SEEN_BY = {
    driver: tuple(name for name, variable in MODEL.variables.items() if variable.observer == driver)
    for driver in ("bmc", "node", "workload", "health")
}
"""Driver → the variables that it can see."""
BMC_STEPS = frozenset(name for name, mutation in MODEL.mutations.items() if mutation.driver == "bmc")


def code_of(variable: str, value: str) -> int:
    """The code of a value that the model declares."""
    return WORDS[variable].index(value) + 1


OFF, ON = code_of("power", "off"), code_of("power", "on")
DOWN, UP, HUNG = (code_of("os", value) for value in ("down", "up", "hung"))
OUT = code_of("workload", "out")
ACTIVE, ERROR = code_of("personality", "active"), code_of("personality", "error")
DEFAULT_MINOS = "default"
"""What a node is booted with where nobody said."""


class Fate(IntEnum):
    """What becomes of an accepted action."""

    WORKS = 0
    NOTHING = 1
    HANGS = 2
    ERROR = 3
    LIES = 4
    """It says so, and it is not so: drained while a job runs."""


class Why(IntEnum):
    """Why a device said no, besides a need that is not met. ``REASONS`` has the words of all."""

    NONE = 0
    FENCED = 1
    REFUSED = 2
    STARTED = 3
    NO_AGENT = 4
    NO_FEED = 5
    OFF = 6


REASONS = [
    "",
    "a newer or equal fence was taken before",
    "the device refused",
    "the OS is already started",
    "no agent: the OS is down",
    "what feeds the node is off",
    "the node is off",
]
_MISSING = {
    "power": "the node has no power",
    "identity": "the node has no identity",
    "image": "the node has no image",
    "config": "the node is not configured",
}


class _Need(NamedTuple):
    variable: str
    met: npt.NDArray[np.bool_]
    """By code; for codes beyond it, the last counts."""
    why: int


def _needs(mutation: Mutation) -> list[_Need]:
    """What must be true of a node before it can do this. What its agent needs of the OS is asked before."""
    found = []
    for variable, allowed in mutation.requires.items():
        if variable == "os":
            continue
        words = WORDS[variable]
        if MODEL.variables[variable].open:
            met = [False, False, True]  # unknown, absent, anything
        else:
            met = [False, *(word in allowed for word in words)]
        only = next(iter(allowed)) if len(allowed) == 1 else ""
        reason = _MISSING.get(variable) or f"the {variable} is " + (f"not {only}" if only else words[0])
        if reason not in REASONS:
            REASONS.append(reason)
        found.append(_Need(variable, np.array(met), REASONS.index(reason)))
    return found


_NEEDS = {name: _needs(mutation) for name, mutation in MODEL.mutations.items()}


def check(
    mutation: str,
    state: Mapping[str, Codes],
    fresh: npt.NDArray[np.bool_],
    codes: npt.NDArray[np.int8],
    why: npt.NDArray[np.int8],
) -> None:
    """What no machine can do, it does not: write the outcome and reason of those ``fresh`` that cannot."""

    def unless(held: npt.NDArray[np.bool_], reason: int) -> None:
        no = fresh & (codes == Outcome.DONE) & ~held
        codes[no] = Outcome.FAILED
        why[no] = reason

    boots = TARGETS[mutation][0] == "os"
    if not boots and MODEL.mutations[mutation].driver == "node":
        unless(state["os"] != DOWN, Why.NO_AGENT)
        codes[fresh & (codes == Outcome.DONE) & (state["os"] == HUNG)] = Outcome.UNKNOWN
    for need in _NEEDS[mutation]:
        unless(need.met[np.minimum(state[need.variable], len(need.met) - 1)], need.why)
    if boots:
        unless(state["os"] == DOWN, Why.STARTED)


class Words:
    """Values and their codes, as in ``Column``: 1 is the first. Variables that are open learn words as they come."""

    def __init__(self) -> None:
        self._learned = {name: {ABSENT: 1} for name, variable in MODEL.variables.items() if variable.open}

    def of(self, variable: str) -> tuple[str, ...]:
        """The values that ``variable`` has had, in the order of their codes."""
        return tuple(self._learned[variable]) if variable in self._learned else WORDS[variable]

    def code(self, variable: str, value: str) -> int:
        if variable in self._learned:
            words = self._learned[variable]
            return words.setdefault(value, len(words) + 1)
        if value not in WORDS.get(variable, ()):
            raise BadRequest(f"{value!r} is not a value of it", where=variable)
        return code_of(variable, value)

    def goals(self, mutation: str, goals: Mapping[str, Column] | None, count: int) -> Codes:
        """What ``mutation`` brings each of ``count`` nodes to; ``goals`` says it where the mutation does not."""
        variable, word = TARGETS[mutation]
        if word:
            return np.full(count, code_of(variable, word), dtype=np.int32)
        column = (goals or {}).get(variable)
        if column is None:
            raise BadRequest(f"{mutation} needs to know which {variable}", where=mutation)
        return self.coded(variable, column, count, ABSENT)

    def coded(self, variable: str, column: Column | None, count: int, otherwise: str) -> Codes:
        """``column`` in our own codes; ``otherwise`` where it says nothing."""
        if column is None:
            return np.full(count, self.code(variable, otherwise), dtype=np.int32)
        words = (otherwise, *column.words)
        return np.array([self.code(variable, word) for word in words], dtype=np.int32)[column.codes]
