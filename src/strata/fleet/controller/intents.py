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
from strata.core.errors import Corrupt, StrataError
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
        self._abandoned: dict[int, str] = {}
        self._ended: list[str] = []
        self._finished: list[str] = []  # each once: two generations may stand for one row

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
        """These have ended."""
        for generation in generations:
            key = self._keys.pop(generation, None) or self._abandoned.pop(generation, None)
            if key is not None:
                self._ended.append(key)

    def abandon(self, generation: int) -> str | None:
        """The lead was lost while this was under way: its row is for the next leader, who may be ourselves. Its key."""
        key = self._keys.pop(generation, None)
        if key is not None:
            self._abandoned[generation] = key
        return key

    def mark(self) -> int:
        """A point in the order of what has ended, for ``release``."""
        return len(self._ended)

    def release(self, mark: int) -> None:
        """What ended before ``mark`` is in the log by now: its rows may go. Whoever reads the store in order thus never
        sees an act vanish before its effect is known."""
        self._finished = list(dict.fromkeys(self._finished + self._ended[:mark]))
        del self._ended[:mark]

    async def sweep(self) -> None:
        """Remove the rows of what has ended."""
        while self._finished:
            part = self._finished[: self._store.max_ops]
            await self._store.txn([Delete(key) for key in part])
            del self._finished[: len(part)]

    def adopt(self, key: str, generation: int) -> None:
        """``generation`` stands for an older row: when it ends, that row goes."""
        self._abandoned = {old: row for old, row in self._abandoned.items() if row != key}
        self._keys[generation] = key

    def is_own(self, key: str) -> bool:
        """Whether a row is this session's."""
        return key.startswith(f"{PREFIX}{self._session}-")

    @staticmethod
    def decode(value: bytes) -> Intent:
        """Read a row; ``Corrupt`` if it is not one."""
        try:
            return msgspec.msgpack.decode(value, type=Intent)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"unreadable intent: {error}", where="intent") from None

    async def listed(self) -> list[tuple[str, bytes]]:
        """Every row that nobody here is working on, oldest first."""
        entries = (await self._store.range(PREFIX)).entries
        free = set(self._abandoned.values())
        ordered = sorted(entries, key=lambda entry: entry.modified)
        return [(e.key, e.value) for e in ordered if not self.is_own(e.key) or e.key in free]

    async def left_behind(self) -> Sequence[tuple[str, Intent]]:
        """The same, read."""
        return [(key, self.decode(value)) for key, value in await self.listed()]

    async def forget(self, keys: Sequence[str]) -> None:
        """Remove old rows that nobody will end any more."""
        try:
            for start in range(0, len(keys), self._store.max_ops):
                await self._store.txn([Delete(key) for key in keys[start : start + self._store.max_ops]])
        except StrataError as error:
            log.warning("old intents not removed", extra={"error": str(error)})
