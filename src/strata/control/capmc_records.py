"""What CAPMC's callers left for later (bias factors, staged modes), by node, durable: rows of many nodes each.

Rows are at ``capmc/KIND/CHUNK``: one for 1024 uids, so that a setting of the whole machine is about a hundred rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strata.core.errors import Conflict
from strata.store.audit import Ledger
from strata.store.protocol import Delete, Op, Put, Store

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
        """All of a kind."""
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
