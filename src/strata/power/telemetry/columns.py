"""What is known of every node's power right now, as columns by uid: whole-system questions never ask the hardware.

Whoever looks at nodes (telemetry, who sets a cap) puts what it saw; whoever asks gets it with its time. NaN: not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import BadRequest
from strata.power.telemetry.counters import Counters

Floats = npt.NDArray[np.float64]
Uids = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

MOST_UIDS = 50_000_000
RECENT = 90.0
"""Seconds by which a node's power may be older or newer than its counter to say how fast that rises."""


class Kind(msgspec.Struct, frozen=True, order=True):
    """A configuration of hardware that many nodes share. ``name`` is opaque and unique, ``desc`` for people."""

    name: str = ""
    desc: str = ""


UNKNOWN_KIND = Kind()


class PowerRows(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of some nodes, in the order of ``uids``. Watts; ``energy`` in joules; ``*_time`` in Unix seconds.
    ``cap`` 0: known to have none; NaN: nobody has looked."""

    uids: Uids
    cap: Floats
    cap_time: Floats
    accel_cap: Floats
    accel_cap_time: Floats
    least: Floats
    most: Floats
    accel_least: Floats
    accel_most: Floats
    supply: Floats
    static: Floats
    powerup: Floats
    power: Floats
    power_time: Floats
    energy: Floats
    energy_time: Floats
    kind: Codes
    """Positions in ``kinds``."""
    kinds: Sequence[Kind]


COLUMNS = tuple(name for name in PowerRows.__struct_fields__ if name not in ("uids", "kind", "kinds"))


def placed(among: Uids, uids: Uids) -> tuple[Uids, npt.NDArray[np.bool_]]:
    """Where each of ``uids`` is in ``among`` (ascending), and which of them are in it at all: of others the place says
    nothing."""
    places = np.searchsorted(among, uids).astype(np.int64)
    there: npt.NDArray[np.bool_] = np.append(among, -1)[places] == uids
    return places, there


class PowerColumns:
    """The newest of everything, for one process. Not safe for threads: written and read in the event loop."""

    def __init__(self) -> None:
        self._columns: dict[str, Floats] = {name: np.empty(0) for name in COLUMNS}
        self._kind: Codes = np.empty(0, dtype=np.int32)
        self._kinds: list[Kind] = [UNKNOWN_KIND]
        self._codes: dict[Kind, int] = {UNKNOWN_KIND: 0}
        self.counters = Counters()
        """Energy counters that go on between two readings."""

    def put(self, uids: Uids, **columns: npt.NDArray[np.floating] | float) -> None:
        """Note what was seen: ``put(uids, power=watts, power_time=now)``. A value is for all, or one for each uid. What
        comes with a time is old news where something newer is known: a look from before a cap was set ends after it."""
        self._grow(uids)
        for name in columns:
            if name not in self._columns:
                known = ", ".join(COLUMNS)
                raise BadRequest(f"there is no column {name!r}", where="columns", hint=f"there are: {known}")
        for name, values in columns.items():
            clock = f"{name.removesuffix('_time')}_time"
            if clock not in columns:
                self._columns[name][uids] = values
            elif not name.endswith("_time"):
                times = np.broadcast_to(np.asarray(columns[clock], dtype=np.float64), uids.shape)
                news = ~(self._columns[clock][uids] > times)
                self._columns[name][uids[news]] = np.broadcast_to(values, uids.shape)[news]
                self._columns[clock][uids[news]] = times[news]
                if name == "energy":
                    self._count(uids[news])

    def _count(self, uids: Uids) -> None:
        """Of nodes whose counters were just read."""
        times = self._columns["energy_time"][uids]
        news = np.abs(self._columns["power_time"][uids] - times) <= RECENT
        watts = np.where(news, self._columns["power"][uids], np.nan)
        self.counters.take(uids, self._columns["energy"][uids], times, watts)

    def describe(self, uids: Uids, kind: Kind) -> None:
        """Say what hardware these nodes are."""
        self._grow(uids)
        code = self._codes.get(kind)
        if code is None:
            code = self._codes[kind] = len(self._kinds)
            self._kinds.append(kind)
        self._kind[uids] = code

    def forget(self, uids: Uids) -> None:
        """Of nodes that are no more nothing is known."""
        uids = uids[uids < len(self._kind)]
        for column in self._columns.values():
            column[uids] = np.nan
        self._kind[uids] = 0
        self.counters.forget(uids)

    def rows(self, uids: Uids) -> PowerRows:
        """What is known of these nodes: copies, which later news does not change."""
        self._grow(uids)
        found = {name: column[uids] for name, column in self._columns.items()}
        return PowerRows(uids=uids, kind=self._kind[uids], kinds=tuple(self._kinds), **found)

    def column(self, name: str, uids: Uids) -> Floats:
        self._grow(uids)
        found: Floats = self._columns[name][uids]
        return found

    def _grow(self, uids: Uids) -> None:
        size = int(uids.max(initial=-1)) + 1
        if size <= len(self._kind):
            return
        if size > MOST_UIDS or int(uids.min(initial=0)) < 0:
            raise BadRequest(f"uids are from 0 to {MOST_UIDS}", where="uids")
        room = max(size, 2 * len(self._kind), 1024)
        for name, column in self._columns.items():
            larger = np.full(room, np.nan)
            larger[: len(column)] = column
            self._columns[name] = larger
        kinds = np.zeros(room, dtype=np.int32)
        kinds[: len(self._kind)] = self._kind
        self._kind = kinds
