"""Nodes whose boots fail: after so many in a row that did not arrive, a node is held and a person is told why."""

from __future__ import annotations

import asyncio
import logging

from strata.core.errors import StrataError
from strata.provisioning.alarm import Alarm, AlarmSink
from strata.provisioning.boot.ground import Ground
from strata.provisioning.identity.identity import Identity
from strata.provisioning.networks import Networks

log = logging.getLogger(__name__)

TAIL = 400
"""Characters of a node's console that are shown as the reason why it is held."""
_PANIC = "Kernel panic - not syncing"


class FailedBoots:
    """Gives up on nodes. ``stop`` it."""

    def __init__(self, networks: Networks, identity: Identity, ground: Ground, alarm: AlarmSink) -> None:
        self._networks = networks
        self._identity = identity
        self._ground = ground
        self._alarm = alarm
        self._holding: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Finish what was begun."""
        if self._holding:
            await asyncio.wait(self._holding.values())

    def too_many(self, name: str) -> bool:
        """Whether so many boots of the node failed that it gets no other before a person looked."""
        return self._identity.record(name).attempts >= self._networks.attempts

    def hold(self, name: str) -> None:
        """Hold the node, in the background."""
        if name not in self._holding:
            self._holding[name] = asyncio.get_running_loop().create_task(self._hold(name), name=f"hold {name}")

    async def _hold(self, name: str) -> None:
        """Hold the node, then count anew: when a person releases it, it gets all its tries again."""
        attempts = self._identity.record(name).attempts
        try:
            tail = _telling(_plain(await self._ground.console_tail(name)))
            reason = f"{attempts} boots in a row did not arrive" + (f"; its console said: {tail}" if tail else "")
            await self._ground.hold(name, reason)
            await self._identity.forgive(name)
            self._alarm(Alarm(kind="boot-failed", message=f"{attempts} boots in a row did not arrive", node=name))
        except StrataError as error:
            log.warning("a node that does not boot could not be held", extra={"node": name, "reason": str(error)})
        finally:
            del self._holding[name]


def _telling(text: str) -> str:
    """The end of it; of a panic its beginning, which says why: a long trace comes after it."""
    at = text.rfind(_PANIC)
    return text[at : at + TAIL] if at >= 0 else text[-TAIL:]


def _plain(text: str) -> str:
    """What a console printed, on one line and without what could move somebody's cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
