"""A machine for the applets alone: what they ask is answered from a few arrays."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.core.errors import StrataError
from strata.power.accounting.records import Spans
from strata.power.capmc.records import STATES, NodeTable, Switch
from strata.power.capmc.rules import Rules
from strata.power.capmc.service import CapmcMachine
from strata.power.capping.terms import CapChange
from strata.power.limits.inband import Attribute, Inband, Value
from strata.power.series.records import Counts, Energy, Flags, GroupTotals, Latest, Refusals, Samples, Total, Window
from strata.power.site.limits import Parameters
from strata.power.telemetry.columns import PowerColumns, PowerRows, Uids


class FakeSeries:
    """Totals, windows and energies that were given beforehand."""

    def __init__(self) -> None:
        self.refused = Refusals()
        self.drawn: list[tuple[float, float, int]] = []
        """(time, watts, nodes)"""
        self.counters: dict[int, list[tuple[float, float]]] = {}
        """uid → (time, joules)"""
        self.used: dict[int, float] = {}

    async def total(self, metric: str, uids: Uids | None, start: float, end: float, *, step: float = 0) -> Total:
        rows = [row for row in self.drawn if start <= row[0] < end]
        times, sums, counts = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.empty(0),) * 3
        return Total(times=times, sums=sums, counts=counts.astype(np.int64))

    async def totals(self, metric: str, uids: Uids, groups: Counts, start: float, end: float) -> GroupTotals:
        """The same of every group."""
        whole = await self.total(metric, uids, start, end)
        names = np.unique(groups)
        shape = (len(whole.times), len(names))
        sums, counts = (np.broadcast_to(column[:, None], shape) for column in (whole.sums, whole.counts))
        return GroupTotals(times=whole.times, groups=names, sums=sums, counts=counts)

    async def window(self, metric: str, uids: Uids | None, start: float, end: float, *, step: float = 0) -> Window:
        assert uids is not None
        times = sorted({time for uid in uids.tolist() for time, _ in self.counters.get(uid, ()) if start <= time < end})
        values = np.full((len(times), len(uids)), np.nan)
        for column, uid in enumerate(uids.tolist()):
            for time, joules in self.counters.get(uid, ()):
                if time in times:
                    values[times.index(time), column] = joules
        return Window(metric=metric, times=np.array(times), uids=uids, values=values, flags=_flags(len(uids)))

    async def energy(self, uids: Uids | None, start: float, end: float) -> Energy:
        assert uids is not None
        known = np.array([uid for uid in uids.tolist() if uid in self.used], dtype=np.int64)
        zeros = np.zeros(len(known))
        return Energy(
            uids=known,
            joules=np.array([self.used[uid] for uid in known.tolist()]),
            known=np.ones(len(known)),
            error=zeros,
            counted=np.ones(len(known), dtype=np.bool_),
            peak=zeros,
            flags=_flags(len(known)),
        )

    async def append(self, batch: Sequence[Samples]) -> None:
        raise NotImplementedError

    async def flush(self) -> None:
        raise NotImplementedError

    async def latest(self, metric: str, uids: Uids | None, within: float) -> Latest:
        raise NotImplementedError

    async def prune(self, now: float) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def _flags(count: int) -> Flags:
    none = np.zeros(count, dtype=np.int64)
    return Flags(gaps=none, resets=none, wraps=none, absurd=none, stuck=none, differs=none)


class FakeMachine(CapmcMachine):
    """Nodes whose uid is their NID."""

    fresh = 30.0
    caller = "ab"
    trouble = ""
    parameters = Parameters()

    def __init__(self, states: Mapping[int, str], *, zone: dt.tzinfo = dt.UTC, service: Sequence[int] = ()) -> None:
        self.zone = zone
        self.rules = Rules()
        self.series = FakeSeries()
        self.inband: Inband | None = None
        self.columns = PowerColumns()
        self.time = 1_430_000_000.0
        self.cabinet = "c0-0"
        self.kept: dict[str, dict[int, Any]] = {}
        self.switched: list[tuple[str, list[int], str]] = []
        self.capped: list[tuple[str, dict[int, float]]] = []
        self.failing: dict[int, str] = {}
        self.full = ""
        """Why the site has no room for caps."""
        self.spans: dict[str, Spans] = {}
        nids = np.array(sorted(states), dtype=np.int64)
        self.table = NodeTable(
            nids=nids,
            uids=nids,
            states=np.array([STATES.index(states[nid]) for nid in nids.tolist()], dtype=np.int8),
            hardware=np.array([STATES.index(_powered(states[nid])) for nid in nids.tolist()], dtype=np.int8),
            compute=~np.isin(nids, service),
            feeds=np.zeros(len(nids), dtype=np.bool_),
        )

    def now(self) -> float:
        return self.time

    def nodes(self) -> NodeTable:
        return self.table

    def those(self, uids: Uids) -> NodeTable:
        at = np.searchsorted(self.table.uids, uids)
        cells = {
            name: getattr(self.table, name)[at] for name in ("nids", "uids", "states", "hardware", "compute", "feeds")
        }
        return NodeTable(**cells)

    def rows(self, uids: Uids) -> PowerRows:
        return self.columns.rows(uids)

    def names(self, uids: Uids) -> Sequence[str]:
        return [f"nid{uid:05d}" for uid in uids.tolist()]

    def places(self, uids: Uids) -> Sequence[str]:
        return [f"c0-0c0s{uid // 4}n{uid % 4}" for uid in uids.tolist()]

    def cabinets(self, uids: Uids) -> Sequence[str]:
        return [self.cabinet] * len(uids)

    def label(self, uids: Uids, key: str) -> Sequence[str]:
        return [""] * len(uids)

    def at_places(self, places: Sequence[str]) -> Sequence[int]:
        known = dict(zip(self.places(self.table.uids), self.table.uids.tolist(), strict=True))
        return [known.get(place, -1) for place in places]

    def below(self, place: str) -> Uids:
        return self.table.uids

    def feeders(self, uids: Uids) -> Uids:
        return np.empty(0, dtype=np.int64)

    def group(self, name: str) -> Uids | None:
        return self.table.uids if name == "all" else None

    def may_press(self) -> bool:
        return False

    async def switch(self, uids: Uids, to: Switch, *, reason: str, force: bool) -> Mapping[int, str]:
        self.switched.append((to, uids.tolist(), reason))
        return {uid: why for uid, why in self.failing.items() if uid in uids}

    def no_room(self, uids: Uids, watts: npt.NDArray[np.float64]) -> str:
        return self.full

    async def set_caps(self, changes: Sequence[CapChange]) -> Mapping[int, str]:
        for change in changes:
            pairs = dict(zip(change.uids.tolist(), change.watts.tolist(), strict=True))
            self.capped.append((change.control, pairs))
            done = ~np.isin(change.uids, list(self.failing))
            column = "cap" if change.control == "node" else "accel_cap"
            self.columns.put(change.uids[done], **{column: change.watts[done]})
        asked = {uid for change in changes for uid in change.uids.tolist()}
        return {uid: why for uid, why in self.failing.items() if uid in asked}

    async def set_limits(
        self, uids: Uids, changes: Sequence[tuple[Attribute, int]]
    ) -> Mapping[int, Sequence[Value] | StrataError]:
        assert self.inband is not None
        names = self.names(uids)
        done = await self.inband.set(names, changes)
        return {uid: done[name] for uid, name in zip(uids.tolist(), names, strict=True)}

    async def emergency_off(self, uids: Uids, reason: str) -> Mapping[int, str]:
        return {}

    async def records(self, kind: str) -> Mapping[int, Any]:
        return self.kept.get(kind, {})

    async def keep(self, kind: str, values: Mapping[int, Any]) -> None:
        row = self.kept.setdefault(kind, {}) | dict(values)
        self.kept[kind] = {uid: value for uid, value in row.items() if value is not None}

    async def stage(self, kind: str, values: Mapping[int, str]) -> None:
        """Nodes without firmware settings."""

    async def energy(self, uids: Uids, start: float, end: float) -> Energy:
        return await self.series.energy(uids, start, end)

    async def ran(self, *, job: str = "", apid: str = "") -> Spans | None:
        return self.spans.get(job or apid)


def _powered(state: str) -> str:
    return state if state in ("off", "undefined") else "on"
