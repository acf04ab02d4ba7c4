"""What CAPMC knows of nodes, as arrays: an applet about 100,000 of them is a few array operations and one reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import Conflict
from strata.power.telemetry.columns import Uids
from strata.store.audit import Ledger
from strata.store.protocol import Delete, Op, Put, Store

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

STATES = ("disabled", "halt", "off", "on", "ready", "standby", "diag", "undefined")
"""What CAPMC calls the states of nodes. ``undefined``: nobody knows."""
FLAGS = ("alert", "resvd", "warn")

OFF = STATES.index("off")
READY = STATES.index("ready")
DISABLED = STATES.index("disabled")

Switch = Literal["on", "off", "reinit"]


class NodeTable(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, one cell each."""

    nids: npt.NDArray[np.int64]
    """-1: it has none."""
    uids: Uids
    states: npt.NDArray[np.int8]
    """Positions in ``STATES``."""
    hardware: npt.NDArray[np.int8]
    """The same by what the hardware alone tells: on, off or undefined."""
    compute: Mask
    feeds: Mask
    """Outlets and chassis: they give power to others, and run nothing."""
    flags: Mapping[str, Mask] = {}

    def find(self, nids: npt.NDArray[np.int64]) -> Positions:
        """Where each NID is, in a table that ascends by NID; -1 where there is no such node."""
        if not len(self.nids):
            return np.full(len(nids), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.nids, nids), len(self.nids) - 1)
        found: Positions = np.where(self.nids[at] == nids, at, -1)
        return found

    @property
    def ready(self) -> Mask:
        """Whose OS runs."""
        mask: Mask = self.states == READY
        return mask


class Drive(msgspec.Struct, frozen=True, kw_only=True):
    """A solid-state drive of a node, as its inventory has it. None and empty: not known."""

    model: str = ""
    serial: str = ""
    vendor: str = ""
    part: str = ""
    firmware: str = ""
    size: int | None = None
    """Bytes."""
    life_left: float | None = None
    """Percent."""


PREFIX = "capmc/"
CHUNK = 1024

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[int, Any]).decode


class CapmcRecords:
    """The records of a store."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    async def read(self, kind: str) -> Mapping[int, Any]:
        found: dict[int, Any] = {}
        for entry in (await self._store.range(f"{PREFIX}{kind}/")).entries:
            found |= _decode(entry.value)
        return found

    async def write(self, author: str, kind: str, values: Mapping[int, Any]) -> None:
        """Put values in their rows; None takes one out."""
        by_chunk: dict[int, dict[int, Any]] = {}
        for uid, value in values.items():
            by_chunk.setdefault(uid // CHUNK, {})[uid] = value
        if not by_chunk:
            return
        while True:
            ops: list[Op] = []
            expect: dict[str, int] = {}
            for chunk, changes in by_chunk.items():
                key = f"{PREFIX}{kind}/{chunk:08d}"
                entry = await self._store.get(key)
                row = _decode(entry.value) if entry else {}
                row = {uid: value for uid, value in (row | changes).items() if value is not None}
                expect[key] = entry.modified if entry else 0
                ops.append(Put(key, _encode(row)) if row else Delete(key))
            try:
                await self._ledger.commit_many(
                    author, "capmc.keep", kind[:100], ops, expect, {"kind": kind[:100], "nodes": len(values)}
                )
                return
            except Conflict:
                continue  # somebody else wrote the same rows: again, on top of theirs
