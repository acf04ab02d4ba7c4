"""The write-ahead record of effects: what is about to be done is durable before it is done.

A controller that starts, or takes a shard over, finds here what its predecessor began; it waits and looks instead of
doing it again. One row per act, not per node.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.errors import StrataError
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)

PREFIX = "intent/"


class Intent(msgspec.Struct, frozen=True):
    """An act that may have been done."""

    mutation: str
    uids: tuple[tuple[int, int], ...]
    started: float
    """Unix time."""
    controller: str


class Intents:
    """Writes and removes this controller's records. ``session`` makes its keys its own."""

    def __init__(self, store: Store, controller: str, session: str) -> None:
        self._store = store
        self._controller = controller
        self._session = session
        self._keys: dict[int, str] = {}
        self._finished: list[str] = []

    async def write(self, acts: Mapping[int, tuple[str, npt.NDArray[np.int64]]], wall: float) -> None:
        """Make acts durable (generation → mutation and uids), before any of them is begun."""
        ops: list[Op] = []
        for generation, (mutation, uids) in acts.items():
            key = f"{PREFIX}{self._session}-{generation:010d}"
            intent = Intent(mutation, intset.pack(np.sort(uids)), wall, self._controller)
            ops.append(Put(key, msgspec.msgpack.encode(intent)))
            self._keys[generation] = key
        room = self._store.max_ops
        removed = self._finished[: max(0, room - len(ops) % room)]
        ops += [Delete(key) for key in removed]
        for start in range(0, len(ops), room):
            await self._store.txn(ops[start : start + room])
        del self._finished[: len(removed)]

    def finished(self, generations: Iterable[int]) -> None:
        """These have ended; their rows go with the next write, or with ``sweep``."""
        self._finished += [key for g in generations if (key := self._keys.pop(g, None)) is not None]

    async def sweep(self) -> None:
        """Remove the rows of what has ended."""
        while self._finished:
            part = self._finished[: self._store.max_ops]
            await self._store.txn([Delete(key) for key in part])
            del self._finished[: len(part)]

    def adopt(self, key: str, generation: int) -> None:
        """``generation`` stands for an older row: when it ends, that row goes."""
        self._keys[generation] = key

    async def left_behind(self) -> Sequence[tuple[str, Intent]]:
        """Every row that is not this session's own, oldest first."""
        page = await self._store.range(PREFIX)
        own = f"{PREFIX}{self._session}-"
        found = []
        for entry in page.entries:
            if entry.key.startswith(own):
                continue
            try:
                found.append((entry.modified, entry.key, msgspec.msgpack.decode(entry.value, type=Intent)))
            except msgspec.DecodeError as error:
                log.error("unreadable intent", extra={"key": entry.key, "error": str(error)})
        return [(key, intent) for _, key, intent in sorted(found, key=lambda row: row[0])]

    async def forget(self, keys: Sequence[str]) -> None:
        """Remove old rows that nobody will end any more."""
        try:
            for start in range(0, len(keys), self._store.max_ops):
                await self._store.txn([Delete(key) for key in keys[start : start + self._store.max_ops]])
        except StrataError as error:
            log.warning("old intents not removed", extra={"error": str(error)})
