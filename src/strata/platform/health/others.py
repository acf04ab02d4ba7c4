"""How many nodes run and fail each check at the other controllers: each hears only the agents that are attached to it,
and whether a check is to be trusted is a question about all nodes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strata.fleet.fleet import Fleet
from strata.platform.health.judge import Distrust
from strata.store.followed import Followed

PREFIX = "health-share/"


class OtherShares:
    """``start``, then ``stop``. A controller's record ends with its lease."""

    def __init__(self, fleet: Fleet) -> None:
        self._leadership = fleet.controller.leadership
        self._mine = PREFIX + fleet.controller.name
        self._told: Mapping[str, Distrust] = {}
        self._found: dict[str, Mapping[str, Distrust]] = {}
        self._followed = Followed(fleet.store, PREFIX, self._take, self._found.clear)
        self.start = self._followed.start
        self.stop = self._followed.stop

    def tell(self, shares: Mapping[str, Distrust]) -> None:
        """What the nodes say that this controller hears, for the others."""
        if shares != self._told:
            self._told = dict(shares)
            self._leadership.announce(self._mine, msgspec.msgpack.encode(self._told))

    def of(self, check: str) -> Distrust:
        """How many nodes fail a check at the others, and run it."""
        shares = [shares[check] for key, shares in self._found.items() if key != self._mine and check in shares]
        return Distrust(sum(one.failing for one in shares), sum(one.of for one in shares))

    def _take(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._found.pop(key, None)
        else:
            self._found[key] = msgspec.msgpack.decode(value, type=dict[str, Distrust])
