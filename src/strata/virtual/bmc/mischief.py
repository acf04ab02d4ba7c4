"""How a BMC's web server misbehaves: by seed, or because a test says so. Data and draws only.

What a BMC does wrong to its node (a reset ignored, a lie about power) is the model's: ``faults``.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import msgspec
import numpy as np

from strata.core.errors import BadRequest
from strata.virtual.fleet.draw import Stream, uniform


class Trick(Enum):
    """One way of answering wrongly."""

    BUSY = "busy"
    """503 with Retry-After, nothing done."""
    EXPIRED = "expired"
    """401: the session is gone."""
    HTML = "html"
    """200 with a login page."""
    CUT = "cut"
    """Half of the JSON, then the connection closes. What was asked is done."""
    ENDLESS = "endless"
    """A body without end."""
    DROP_BEFORE = "drop-before"
    """The connection closes and nothing is done."""
    DROP_AFTER = "drop-after"
    """What was asked is done, and the connection closes without a reply."""
    SILENT = "silent"
    """Nothing is done and nothing is said; the connection stays open."""
    REDIRECT = "redirect"
    """307 to another host."""
    ACCEPTED = "accepted"
    """202 without a Location; what was asked is done."""
    NULL = "null"
    """Every property that is not a link is null."""
    NO_ACTIONS = "no-actions"
    """The system offers no actions."""
    STRINGS = "strings"
    """Numbers come as strings."""
    ABSURD = "absurd"
    """The power reading is absurd."""
    POWER_NULL = "power-null"
    """The power state is null."""
    POWER_LIE = "power-lie"
    """The power state is the wrong one."""
    IGNORED = "ignored"
    """A reset is accepted, and nothing is done."""
    PRECONDITION = "precondition"
    """412 to every change."""
    FULL = "full"
    """Nobody can log in: all sessions are taken."""
    REDIRECT_HOME = "redirect-home"
    """307 to the same place on the same host."""
    HOSTILE = "hostile"
    """Every text holds markup, control characters and far too much of it."""
    BAD_BYTES = "bad-bytes"
    """Every name and model ends in a byte that is not UTF-8, half a surrogate pair and a bell."""
    WRONG_TYPES = "wrong-types"
    """Power states are numbers, lists are objects, objects are lists."""
    MEMBERS = "members"
    """Every collection has a million members."""
    HEADERS = "headers"
    """A header of a mebibyte comes with every reply."""
    NOT_THERE = "not-there"
    """501 to every read of anything but the service root and sessions: it knows hardly any command."""


class Mischief(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong on the wire, as probabilities per request. Default: nothing."""

    latency: float = 0.0
    """Seconds before each reply; drawn from half to one and a half of it."""
    slow: float = 0.0
    """Probability of ``slow_seconds`` instead."""
    slow_seconds: float = 5.0
    busy: float = 0.0
    retry_after: int = 1
    """Seconds, as told with ``busy``."""
    expired: float = 0.0
    html: float = 0.0
    cut: float = 0.0
    drop_before: float = 0.0
    drop_after: float = 0.0

    def __post_init__(self) -> None:
        if sum(getattr(self, name) for name in _DRAWN) > 1:
            raise BadRequest(f"{', '.join(_DRAWN)} together are more than certain", where="mischief")


_DRAWN = ("busy", "expired", "html", "cut", "drop_before", "drop_after")


class Prankster:
    """Decides, for one BMC, how each request is answered."""

    def __init__(self, node: int, seed: int, mischief: Mischief) -> None:
        self._node = np.array([node], dtype=np.int64)
        self._seed = seed
        self._mischief = mischief
        self._asked = 0
        self._planned: deque[tuple[Trick, str]] = deque()
        self.always: set[Trick] = set()
        """Tricks played on every request."""
        self.latency: float | None = None
        """Seconds before each reply; None: as drawn."""

    def plan(self, trick: Trick, *, times: int = 1, method: str = "") -> None:
        """Play ``trick`` on the next ``times`` requests (of that method, if one is given)."""
        self._planned.extend([(trick, method)] * times)

    def next(self, method: str) -> tuple[set[Trick], float]:
        """The tricks to play on this request, and the delay of its reply."""
        tricks = set(self.always)
        if self._planned and self._planned[0][1] in ("", method):
            tricks.add(self._planned.popleft()[0])
        mischief = self._mischief
        if mischief == _NONE:
            return tricks, self.latency or 0.0
        self._asked += 1
        chance, luck, pace = (
            float(uniform(self._seed, Stream.WIRE, self._node, 3 * self._asked + i)[0]) for i in range(3)
        )
        for name in _DRAWN:
            chance -= getattr(mischief, name)
            if chance < 0:
                tricks.add(Trick(name.replace("_", "-")))
                break
        delay = mischief.slow_seconds if luck < mischief.slow else mischief.latency * (0.5 + pace)
        return tricks, delay if self.latency is None else self.latency

    @property
    def retry_after(self) -> int:
        """Seconds that a busy BMC asks for."""
        return self._mischief.retry_after


_NONE = Mischief()
