"""Which nodes have booted, whoever had them do it: read off the transition log.

A node that was seen without power, or with its OS down, has booted when its OS is up again. One that restarts faster
than anybody looks shows by having lost its image. Where nobody tells of operating systems, power that comes back says
so, and a BMC that was made to restart its node.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import numpy as np

from strata.core import intset
from strata.core.errors import Compacted
from strata.core.model import ABSENT, UNKNOWN
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.history import transitions
from strata.fleet.history.transitions import Change
from strata.fleet.recurring import Recurring
from strata.power.capmc import staged
from strata.power.capmc.service import CapmcService
from strata.power.telemetry.columns import Uids
from strata.store.protocol import Event

log = logging.getLogger(__name__)

Booted = Callable[[Uids], Awaitable[None]]
"""Is told of nodes that have booted."""

_SELF = Principal(name="strata", role="admin")
_AGAIN = 1.0  # seconds until it is told again after that failed


class CapmcBoots:
    """Follows the nodes that this controller leads, and tells ``booted`` of each that has."""

    def __init__(self, fleet: Fleet, booted: Booted) -> None:
        self._fleet = fleet
        self._booted = booted
        self._has_os = "os" in fleet.controller.model.variables
        self._fallen: set[int] = set()
        """Who was seen down, and not yet up again."""
        self._due: set[int] = set()
        """Who has booted, and nobody was told yet."""
        self._next = 0
        """The revision to follow the log from."""
        self._following = Recurring(
            "boots", self._follow, lambda: _AGAIN, trouble="the log of transitions cannot be followed"
        )
        self._telling = Recurring(
            "boots that are told of",
            self._tell,
            lambda: _AGAIN if self._due else None,
            trouble="what nodes booted with could not be kept",
        )

    async def start(self) -> None:
        await self._begin()
        self._fleet.controller.restarted.append(self._restarted)
        await self._following.start()
        await self._telling.start()

    async def stop(self) -> None:
        if self._restarted in self._fleet.controller.restarted:
            self._fleet.controller.restarted.remove(self._restarted)
        await self._following.stop()
        await self._telling.stop()

    async def _begin(self) -> None:
        self._next = await self._fleet.controller.store.revision() + 1
        view, registry = self._fleet.view, self._fleet.registry
        down = view.fact_mask("power", "off")
        if self._has_os:
            down = down | view.fact_mask("os", "down")
        self._fallen = set(registry.uids[down & registry.alive].tolist())

    async def _follow(self) -> None:
        try:
            stream = self._fleet.controller.store.watch(transitions.PREFIX, start=self._next)
            async with contextlib.aclosing(stream):  # type: ignore[type-var]
                async for events in stream:
                    self._next = events[-1].revision + 1
                    self._note(self._seen(events))
        except Compacted:
            log.warning("boots may have been missed: the log of transitions was not followed in time")
            await self._begin()

    def _seen(self, events: Sequence[Event]) -> Iterable[int]:
        """Who has booted, as this controller saw it; what others saw come up, they tell."""
        own, up = self._fleet.controller.name, set[int]()
        for event in events:
            if event.value is None:
                continue
            row = transitions.decode(event.value, event.key)
            self._fall(row.changes)
            risen = self._rise(row.changes)
            if row.controller == own:
                up |= risen
        return up

    def _fall(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if (change.variable, change.new) in (("power", "off"), ("os", "down")):
                self._fallen.update(intset.unpack(change.uids).tolist())

    def _rise(self, changes: Iterable[Change]) -> set[int]:
        up: set[int] = set()
        for change in changes:
            sign = (change.variable, change.new)
            if sign == (("os", "up") if self._has_os else ("power", "on")):
                up |= self._fallen.intersection(intset.unpack(change.uids).tolist())
            elif sign == ("image", ABSENT) and change.old not in (ABSENT, UNKNOWN, ""):
                up |= set(intset.unpack(change.uids).tolist()) - self._fallen
        self._fallen -= up
        return up

    def _restarted(self, nodes: Indices) -> None:
        if not self._has_os:
            self._note(self._fleet.registry.uids[nodes].tolist())

    def _note(self, uids: Iterable[int]) -> None:
        self._due.update(uids)
        if self._due:
            self._telling.soon()

    async def _tell(self) -> None:
        due, self._due = self._due, set()
        try:
            if due:
                await self._booted(np.array(sorted(due), dtype=np.int64))
        except BaseException:
            self._due |= due
            raise


def boots_of(capmc: CapmcService) -> CapmcBoots:
    """Notes from its start on with which staged settings nodes boot."""

    async def booted(uids: Uids) -> None:
        await staged.booted(capmc.of(_SELF), uids[capmc.fleet.registry.indices_of(uids) >= 0])

    return CapmcBoots(capmc.fleet, booted)
