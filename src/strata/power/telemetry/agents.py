"""What agents on nodes measure (RAPL's energy counters, NVIDIA's accelerators), as a source of the collector.

Agents tell when they like; what they told is handed on with the next sweep. Their counters are short: they begin anew
every few minutes, at an end that they tell. That is put right here, so that the node's counter only rises; where it
cannot be known what a counter did meanwhile, it begins anew, which the series flags as a reset.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from strata.power.telemetry.collector import Look, Nodes, NodeTold, Source, looks_of

MOST_PARTS = 64
"""Counters, or accelerators, of one node."""
MOST_TOLD = 1_000_000
"""Tellings that wait for the next sweep."""
LAPSE = 300.0
"""Seconds without a word of a BMC after which its agent's counts."""
FASTEST = 1000.0
"""Watts that no part with a counter of its own draws: how long a counter can have taken to pass its end."""
_LARGEST = 1e15

Values = dict[str, float]


class _Counter(NamedTuple):
    raw: float
    total: float
    time: float


class AgentReadings:
    """Takes what agents tell, and is a ``Source`` of it, on top of ``others``: what a node's BMC tells goes
    before, since that is the whole node. ``uid_of`` finds a node by name; below 0: there is none."""

    def __init__(self, uid_of: Callable[[str], int], others: Source, *, clock: Callable[[], float] = time.time) -> None:
        self.wraps = 0
        """Counters that passed their end."""
        self.resets = 0
        self._uid_of = uid_of
        self._others = others
        self._clock = clock
        self._counters: dict[tuple[int, str], _Counter] = {}
        self._seen: list[NodeTold] = []
        self._told = {name: np.empty(0) for name in ("energy", "accel-power")}
        """When others last told each metric of a node, by uid."""

    def take(self, node: str, metrics: Mapping[str, Any]) -> None:
        """What the agent of ``node`` told just now."""
        uid = self._uid_of(node)
        if uid < 0:
            return
        now = self._clock()
        values: Values = {}
        joules = self._energy(uid, metrics, now)
        if joules is not None and self._lacks(uid, "energy"):
            values["energy"] = joules
        gpus = _listed(metrics.get("gpus"))
        watts = [power for gpu in gpus if (power := _number(gpu.get("power_w"))) is not None]
        if watts and self._lacks(uid, "accel-power"):
            values["accel-power"] = math.fsum(watts)
        if values and len(self._seen) < MOST_TOLD:
            self._seen.append((now, uid, values))

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """What the others see now, and what agents told since the last time."""
        seen, self._seen = self._seen, []
        found = [*await self._others.look(nodes, limit)]
        for look in found:
            self._note(look)
        return found + looks_of(seen)

    async def close(self) -> None:
        await self._others.close()

    def _note(self, look: Look) -> None:
        for name in self._told.keys() & look.values.keys():
            uids = look.uids[np.isfinite(look.values[name])]
            size = int(uids.max(initial=-1)) + 1
            if size > len(self._told[name]):
                self._told[name] = np.append(self._told[name], np.full(size, -np.inf))
            self._told[name][uids] = look.time

    def _lacks(self, uid: int, metric: str) -> bool:
        told = self._told[metric]
        return uid >= len(told) or told[uid] < self._clock() - LAPSE

    def _energy(self, uid: int, metrics: Mapping[str, Any], now: float) -> float | None:
        """Joules of all parts together, risen without wraps. ``psys`` is the whole platform where there is one."""
        told, ends = metrics.get("energy_j"), metrics.get("energy_range_j")
        if not isinstance(told, Mapping):
            return None
        ends = ends if isinstance(ends, Mapping) else {}
        parts = {str(name)[:64]: joules for name, value in told.items() if (joules := _number(value)) is not None}
        if not parts or len(parts) > MOST_PARTS:
            return None
        whole = [name for name in parts if name.startswith("psys")]
        chosen = whole[:1] or [name for name in parts if name.startswith(("package", "dram"))]
        if not chosen:
            return None
        return math.fsum(self._risen(uid, name, parts[name], _number(ends.get(name)) or 0.0, now) for name in chosen)

    def _risen(self, uid: int, name: str, raw: float, end: float, now: float) -> float:
        before = self._counters.get((uid, name))
        total = raw
        if before is not None:
            # Longer than a counter takes to go round, nobody knows how often it did.
            sure = end <= 0 or now - before.time < end / FASTEST
            if raw >= before.raw and sure:
                total = before.total + raw - before.raw
            elif end > 0 and sure and (end - before.raw + raw) <= FASTEST * max(1.0, now - before.time):
                total = before.total + end - before.raw + raw
                self.wraps += 1
            else:
                self.resets += 1
        self._counters[uid, name] = _Counter(raw, total, now)
        return total


def _listed(value: object) -> list[Mapping[str, Any]]:
    found = value[:MOST_PARTS] if isinstance(value, list) else []
    return [one for one in found if isinstance(one, Mapping)]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST else None
