"""What each node last said of its hardware: a file beside the store, since nobody decides anything by it."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from strata.core.errors import NotFound, Unavailable
from strata.provisioning.agents.records import HostHardware, InventoryView
from strata.store.side_file import FileThread, connect

_SCHEMA = "CREATE TABLE IF NOT EXISTS inventory (node TEXT PRIMARY KEY, time REAL NOT NULL, body BLOB NOT NULL)"
_VERSION = 1
T = TypeVar("T")
_hardware = msgspec.json.Decoder(HostHardware).decode


class Inventories:
    """The file at ``path``. Close it."""

    def __init__(self, path: Path) -> None:
        self._thread = FileThread("agent inventories", lambda: connect(path, _SCHEMA, _VERSION))
        self.close = self._thread.close

    async def put(self, node: str, body: bytes) -> None:
        """Keep what ``node`` said (JSON); what it said before is forgotten."""
        row = (node, time.time(), zlib.compress(body, 3))
        await self._run(
            "kept", lambda db: db.execute("INSERT OR REPLACE INTO inventory VALUES (?, ?, ?)", row).fetchall()
        )

    async def get(self, node: str) -> InventoryView:
        """What ``node`` last said."""
        query = "SELECT time, body FROM inventory WHERE node = ?"
        rows = await self._run("read", lambda db: list(db.execute(query, (node,))))
        if not rows:
            raise NotFound("the node's agent has not reported its hardware yet", where=node)
        return InventoryView(node=node, time=rows[0][0], inventory=msgspec.json.decode(zlib.decompress(rows[0][1])))

    async def hardware(self) -> dict[str, HostHardware]:
        """What all nodes last said that can be understood, by their names."""
        return await self._run("read", _all)

    async def _run(self, done: str, work: Callable[[apsw.Connection], T]) -> T:
        try:
            return await self._thread.run(work)
        except apsw.Error as error:
            raise Unavailable(f"it cannot be {done}: {type(error).__name__}", where="inventory") from error


def _all(db: apsw.Connection) -> dict[str, HostHardware]:
    found = {}
    for node, time_, body in db.execute("SELECT node, time, body FROM inventory"):
        with contextlib.suppress(msgspec.MsgspecError):  # a node says what it likes
            found[node] = msgspec.structs.replace(_hardware(zlib.decompress(body)), time=time_)
    return found
