"""The controllers that have the platform layer. What only one does (rollouts, following a branch, playbooks) is done by
whoever leads the first shard; where that one has no platform layer nobody does it, and somebody has to be told."""

from __future__ import annotations

import logging

from strata.fleet.alarm import Alarm, AlarmSeverity
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.store.followed import Followed

log = logging.getLogger(__name__)

PREFIX = "platform-controller/"
_EVERY = 30.0


class PlatformControllers:
    """Follows who has it. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._found: set[str] = set()
        self._followed = Followed(fleet.store, PREFIX, self._take, self._found.clear)
        self._told = ""
        self._round = Recurring("platform layer", self._look, lambda: _EVERY, trouble="who leads cannot be told")

    async def start(self) -> None:
        """Say that this one has it, and know of the others."""
        await self._followed.start()
        self._fleet.controller.leadership.announce(PREFIX + self._fleet.controller.name, b"1")
        self._fleet.begin(self._round.start)

    async def stop(self) -> None:
        """Follow no more. The own record ends with the lease."""
        await self._round.stop()
        await self._followed.stop()

    @property
    def missing(self) -> str:
        """Why nobody does what only one controller does; empty: somebody does."""
        leader, _ = self._fleet.controller.leadership.holders.get(0, ("", 0))
        if not leader or leader == self._fleet.controller.name or leader in self._found:
            return ""
        return (
            f"controller {leader} leads the first shard and has no platform layer: no rollout, branch or playbook goes"
            " on; start it with the platform layer too ('layers' in its configuration file), or stop it"
        )

    async def _look(self) -> None:
        missing = self.missing
        if missing == self._told:
            return
        self._told = missing
        if missing:
            log.error("nobody carries on what one controller does", extra={"reason": missing})
        message = missing or "whoever leads the first shard has the platform layer"
        severity: AlarmSeverity = "critical" if missing else "ok"
        self._fleet.alarm(Alarm(kind="controller", severity=severity, message=message, about="platform layer"))

    def _take(self, key: str, value: bytes | None) -> None:
        (self._found.discard if value is None else self._found.add)(key.removeprefix(PREFIX))
