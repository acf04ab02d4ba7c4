"""Tells of nodes that drivers see nothing of: in the log, and as alarms that begin, follow the reason, and end.

Who is silent and why is known to the engine (``Facts.silence``). It is told where it stands in the way of what is
wanted, and of drivers that are to see every node (``always``) whatever is wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

import numpy as np

from strata.core.nodeset import fold
from strata.engine.table import Mask
from strata.fleet.alarm import Alarm
from strata.fleet.controller.controller import Controller

log = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds between two reckonings."""
LOOKS = 3
"""Looks in vain, one after the other, after which it is told."""
MOST_NAMED = 200
"""Characters of a nodeset in the log."""


class Silences:
    """Watches ``controller``'s looks; ``tell`` takes the alarms."""

    def __init__(self, controller: Controller, tell: Callable[[Alarm], None]) -> None:
        self._controller = controller
        self._tell = tell
        self._told: dict[tuple[str, str], str] = {}
        """Driver and node → what was told last."""
        self._in_the_way: dict[str, list[bool]] = {}
        self.always: set[str] = set()
        """Drivers whose silence matters whatever is wanted."""
        self.elsewhere: set[str] = set()
        """Drivers that tell of their silence themselves: once for what does not answer, not once for each node."""

    def knew(self, driver: str, node: str) -> None:
        """It was told before our time."""
        self._told.setdefault((driver, node), "")

    async def run(self) -> None:
        """Watch, for ever."""
        while True:
            await asyncio.sleep(EVERY)
            self.reckon()

    def reckon(self) -> None:
        """Tell what has changed since the last time."""
        controller = self._controller
        news: dict[tuple[str, str], list[str]] = {}
        silent: set[tuple[str, str]] = set()
        for driver, observer in controller.engine.facts.observers.items():
            if driver in self.elsewhere:
                continue
            blind = np.flatnonzero((observer.blind >= LOOKS) & self._matters(driver, observer.variables))
            for index in blind.tolist():
                silence = controller.engine.facts.silence(observer.variables[0], index)
                key = (driver, controller.registry.names[index])
                silent.add(key)
                why = (silence.why if silence is not None else "") or "it did not say why"
                if self._told.get(key) != why:
                    self._told[key] = why
                    news.setdefault((driver, why), []).append(key[1])
        self._end(silent)
        for (driver, why), names in news.items():
            extra = {"driver": driver, "nodes": fold(names)[:MOST_NAMED], "count": len(names), "why": why}
            log.warning("a driver sees nothing of nodes", extra=extra)
            for name in names:
                message = f"{driver} sees nothing of it: {why}"
                self._tell(Alarm(kind="look-failed", message=message, node=name, about=driver, severity="warning"))

    def _end(self, silent: Collection[tuple[str, str]]) -> None:
        registry, engine = self._controller.registry, self._controller.engine
        for key in [key for key in self._told if key not in silent]:
            driver, name = key
            index, observer = registry.find(name), engine.facts.observers.get(driver)
            if index >= 0 and observer is not None:
                if engine.progress.epoch[index] == 0:
                    self._told[key] = ""  # whoever leads it tells; it may have been over meanwhile
                    continue
                # Nothing was seen since we took it over, or it is looked at in vain again.
                if observer.blind[index] or not self._seen(observer.variables, index):
                    continue
            del self._told[key]
            message = f"{driver} sees it again" if index >= 0 else "the node is gone"
            self._tell(Alarm(kind="look-failed", message=message, node=name, about=driver, severity="ok"))

    def _seen(self, variables: Collection[str], index: int) -> bool:
        columns = self._controller.engine.table.columns
        return any(columns[name].fact[index] and not columns[name].implied[index] for name in variables)

    def _matters(self, driver: str, variables: Collection[str]) -> Mask:
        """Of which nodes the silence of a driver is worth telling."""
        engine = self._controller.engine
        progress = engine.progress
        ours: Mask = progress.alive & (progress.epoch > 0)
        if driver in self.always:
            return ours
        decisions = engine.decider.decisions
        known = self._in_the_way.setdefault(driver, [])
        known += [not set(variables).isdisjoint(one.plan.unseen) for one in decisions[len(known) :]]
        in_the_way = np.array([*known, False], dtype=bool)  # the last is for nodes without a decision
        found: Mask = ours & in_the_way[progress.decision]
        return found
