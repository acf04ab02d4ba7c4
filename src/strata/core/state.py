"""What is believed of a node and what is wanted of it, one value at a time.

The engine keeps the same as columns (``strata.engine.table``); these are the forms that people, the API and the
history see.
"""

from __future__ import annotations

import enum
from typing import Literal, get_args

import msgspec

State = Literal[
    "unmanaged", "ready", "off", "converging", "waiting", "faulted", "held", "frozen", "unreachable", "unknown"
]
"""What can be said of a node as a whole; each is in just one. ready: at its goal; off: at its goal, without power;
waiting: for a guard, a budget or a back-off; unreachable: no plan leads to its goal; unmanaged: nobody desires
anything; unknown: not yet observed."""
STATES: tuple[State, ...] = get_args(State)
"""By number, as the engine holds them."""


class Desire(msgspec.Struct, frozen=True, kw_only=True):
    """What the owners want. More than one value: any of them will do."""

    variable: str
    values: tuple[str, ...]
    author: str
    revision: int
    """The store's revision at which it was acknowledged."""
    origin: str
    """``node`` (set on the node itself) or the name of the document it comes from."""


class Outcome(enum.IntEnum):
    """What a driver saw of one node in one batch. The whole set: nothing else can happen."""

    DONE = 0
    """Accepted by the device. The fact still has to show it."""
    FAILED = 1
    """The device said no, or answered wrongly."""
    UNKNOWN = 2
    """No answer: it may have happened. Look before trying again."""
    FENCED = 3
    """Somebody newer leads. Not tried, and not to be tried by us."""
    WITHHELD = 4
    """A person put the brake on before it began. Not tried. Drivers never say this."""
    UNTRIED = 5
    """What the step needs is not there, or would be hurt by it: an image, a boot profile, a job that runs. Nobody was
    told anything, so nobody failed."""


class Fence(msgspec.Struct, frozen=True, order=True):
    """Orders effects on one node. A device or driver refuses one that is not above the last it took."""

    epoch: int
    """The store's revision at which the actor took the lead for the node's shard."""
    generation: int
    """The number of the effect in that epoch."""
