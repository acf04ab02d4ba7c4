"""Files on their way in, piece by piece: an archive or what a build needs is larger than one request may be."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path

from strata.core.errors import BadRequest, Conflict, NotFound, Unavailable
from strata.fleet.disk import require_room
from strata.provisioning.images.disk_space import HINT
from strata.provisioning.images.shelf import Shelf

MOST_BYTES = 64 << 30
MOST_AT_ONCE = 32
KEPT_FOR = 86400.0
"""Seconds after which an upload that nobody goes on with is removed."""


class Uploads:
    """Those under way."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._turns: dict[str, asyncio.Lock] = {}

    async def begin(self) -> str:
        """A new, empty one; its name, which nobody can guess."""
        folder = self._shelf.root / "uploads"
        now = time.time()
        for path in folder.iterdir():
            if path.stat().st_mtime < now - KEPT_FOR:
                path.unlink(missing_ok=True)
        if len(list(folder.iterdir())) >= MOST_AT_ONCE:
            raise Unavailable(f"{MOST_AT_ONCE} uploads are under way", hint="try again later")
        ident = secrets.token_hex(16)
        os.close(os.open(self._shelf.upload(ident), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return ident

    async def write(self, ident: str, offset: int, data: bytes) -> int:
        """Add a piece at its end; its bytes then. A piece that came already (its answer was lost) is no harm."""
        path = self.path(ident)
        async with self._turns.setdefault(ident, asyncio.Lock()):
            return await asyncio.to_thread(_write, path, offset, data)

    def path(self, ident: str) -> Path:
        """Where it is; ``NotFound``."""
        path = self._shelf.upload(ident)
        if not path.is_file():
            raise NotFound("no such upload on this controller", where="upload", hint="send it again")
        return path

    async def remove(self, ident: str) -> None:
        """Forget it."""
        self._turns.pop(ident, None)
        self.path(ident).unlink(missing_ok=True)


def _write(path: Path, offset: int, data: bytes) -> int:
    size = path.stat().st_size
    if offset < 0:
        raise BadRequest("a piece cannot begin before the beginning", where="offset")
    if offset > size:
        raise Conflict(f"{size} bytes are there, and this piece begins at {offset}", revision=size, where="offset")
    if offset + len(data) > MOST_BYTES:
        raise BadRequest(f"more than {MOST_BYTES >> 30} GiB", where="upload")
    require_room(path.parent, len(data), "upload", HINT)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    return max(size, offset + len(data))
