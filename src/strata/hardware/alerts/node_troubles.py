"""What befalls nodes as the engine sees it, as alerts: power that was lost, faults, restarts of hung nodes.

What happens opens an alert at once (``noticed``); what is so now opens and ends them every few seconds, whoever opened
them and before whichever restart. Only of nodes that this controller leads. Whole columns are looked at, and nodes by
themselves only where they are in trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from strata.core.column import Indices
from strata.engine.effects import Effects
from strata.engine.progress import Phase
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.fleet.tasks import all_cancelled, beside
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.hub import EventHub
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.words import plain

POWER_LOST = "power/lost"
FAULTED = "node/faulted"
HUNG = "node/power-cycled"
CONSOLE = "console/"
"""How the keys of what a kernel printed begin: that kernel is gone when another has started."""

EVERY = 5.0
"""Seconds between two looks at who is in trouble."""
SLICE = 2000
"""Nodes that are told of before others have their turn: a power cut takes the whole machine."""
AT_ONCE = 10_000
"""Open alerts of one kind that are looked at in one look; the rest has its turn in the next ones."""
BY_HAND = 300.0
"""Seconds for which power that goes off was switched off by the person who did that here."""


class NodeTroubles:
    """Watches one fleet. ``start`` it, and ``stop`` it."""

    def __init__(self, fleet: Fleet, hub: EventHub) -> None:
        self._fleet = fleet
        self._hub = hub
        self._registry = fleet.registry
        self._engine = fleet.controller.engine
        self._clock = fleet.controller.clock
        self._by_hand: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        """Of faulted nodes: what was told."""
        self._turns: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to notice."""
        self._fleet.controller.noticed.append(self.noticed)
        self._fleet.controller.switched.append(self.switched)
        self._registry.departed.append(self.departed)
        beside(self._tasks, self._run(), name="troubles of nodes")

    async def stop(self) -> None:
        """Notice no more."""
        self._fleet.controller.noticed.remove(self.noticed)
        self._fleet.controller.switched.remove(self.switched)
        self._registry.departed.remove(self.departed)
        await all_cancelled(self._tasks)

    # -- what happens

    def switched(self, nodes: Indices) -> None:
        """Somebody switches the power of these by hand: that it goes off is no loss."""
        now = self._clock.now()
        self._by_hand = {name: until for name, until in self._by_hand.items() if until > now}
        self._by_hand.update(dict.fromkeys(self._fleet.view.names(nodes), now + BY_HAND))

    def departed(self, name: str) -> None:
        """The node is gone, and what was wrong with it concerns nobody any more."""
        self._reasons.pop(name, None)
        self._hub.alerts.subject_gone(name)

    def noticed(self, effects: Effects) -> None:
        """What came of a step of the engine."""
        for change in effects.changes:
            if (change.variable, change.old, change.new, change.cause) == ("power", "on", "off", ""):
                said = f"its power went off, and nobody here asked for that ({change.source} says so)"
                self._tell(self._fleet.view.names(self._lost(change.nodes)), POWER_LOST, "critical", said)
        os = self._engine.table.columns.get("os")
        begins = ("power", "on") if os is None else ("os", "up")
        for change in effects.changes:
            if (change.variable, change.new) == begins:
                self._end_console(change.nodes)
        for act in effects.acts:
            if act.mutation == "power-off" and os is not None:
                hung = act.nodes[os.last[act.nodes] == os.word_code("hung")]
                said = "it was power-cycled because it hung: it had started, and its agent did not answer"
                self._tell(self._fleet.view.names(hung[~self._wanted_off(hung)]), HUNG, "warning", said)

    def _lost(self, nodes: Indices) -> Indices:
        """Of these, whose power is off: those from whom it was taken."""
        busy = self._engine.progress.phase[nodes] >= Phase.ACTING  # a boot may well switch it off and on
        nodes = nodes[~busy & self._managed(nodes) & ~self._wanted_off(nodes)]
        if not self._by_hand or not len(nodes):
            return nodes
        now = self._clock.now()
        return nodes[[self._by_hand.get(name, 0.0) <= now for name in self._fleet.view.names(nodes)]]

    def _end_console(self, nodes: Indices) -> None:
        """A kernel that was in trouble is gone: another one has started."""
        self._hub_take(
            self._event(name, alert.key, "ok", "it has started anew since")
            for name in self._fleet.view.names(nodes)
            for alert in self._hub.alerts.open_on(name)
            if alert.key.startswith(CONSOLE)
        )

    # -- what is so

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.look()

    def look(self) -> None:
        """Open and end what the columns show."""
        progress, columns = self._engine.progress, self._engine.table.columns
        led = progress.alive & (progress.epoch > 0)
        self._look_at_faults(led & progress.fault, led)
        if "power" in columns:
            power = columns["power"]
            off = power.fact == power.word_code("off")
            everybody = np.arange(len(off), dtype=np.int64)
            self._end(POWER_LOST, led & (power.fact != 0) & (~off | self._wanted_off(everybody)), "it has power again")
        if "os" in columns:
            self._end(HUNG, led & (columns["os"].fact == columns["os"].word_code("up")), "it is up again")

    def _look_at_faults(self, faulted: Mask, led: Mask) -> None:
        indices = np.flatnonzero(faulted)
        reasons = {
            self._registry.names[i]: plain(self._engine.progress.reasons.get(i, "failed too often"), 400)
            for i in indices.tolist()
        }
        told = {alert.node for alert in self._hub.alerts.open_of(FAULTED)}
        news = [name for name, why in reasons.items() if name not in told or self._reasons.get(name) != why]
        self._hub_take(self._event(name, FAULTED, "critical", f"faulted: {reasons[name]}") for name in news)
        self._reasons = reasons
        self._end(FAULTED, led & ~faulted, "it is not faulted any more")

    def _end(self, key: str, well: Mask, said: str) -> None:
        """End the alerts of this key of nodes that are well."""
        begin = self._turns.get(key, 0)
        found = self._hub.alerts.open_of(key, begin, AT_ONCE)
        self._turns[key] = begin + AT_ONCE if len(found) == AT_ONCE else 0
        over = []
        for alert in found:
            index = self._registry.find(alert.node)
            if 0 <= index < len(well) and well[index]:
                over.append(self._event(alert.node, key, "ok", said))
        self._hub_take(over)

    # -- words

    def _wanted_off(self, nodes: Indices) -> Mask:
        """Of which nodes somebody wants that they are off."""
        column = self._engine.table.columns["power"]
        off = np.array([bool(words) and set(words) == {"off"} for words in column.goals], dtype=np.bool_)
        found: Mask = off[column.goal[nodes]]
        return found

    def _managed(self, nodes: Indices) -> Mask:
        """Of which nodes somebody wants anything."""
        found: Mask = np.zeros(len(nodes), dtype=np.bool_)
        for column in self._engine.table.columns.values():
            found |= column.goal[nodes] != 0
        return found

    def _tell(self, names: Sequence[str], key: str, severity: Severity, said: str) -> None:
        self._hub_take(self._event(name, key, severity, said) for name in names)

    def _hub_take(self, events: Iterable[HardwareEvent]) -> None:
        found = list(islice(waiting := iter(events), SLICE))
        if found:
            self._hub.take(found)
        if len(found) == SLICE:
            beside(self._tasks, self._take_rest(waiting), name="troubles of nodes")

    async def _take_rest(self, events: Iterator[HardwareEvent]) -> None:
        while found := list(islice(events, SLICE)):
            self._hub.take(found)
            await asyncio.sleep(0)

    def _event(self, name: str, key: str, severity: Severity, said: str) -> HardwareEvent:
        return HardwareEvent(
            time=self._clock.wall(), severity=severity, message=said, source="strata", key=key, node=name
        )
