"""A machine's serial line: what the guest prints goes to all who watch, what they type goes to the guest."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from strata.virtual.bmc.console import Console

MOST_LOG = 16 << 20
"""Bytes: a log that grew longer than this begins anew."""
_PIECE = 1 << 16


class Serial(Console):
    """The line of one machine. Watchers stay while the machine is off and on again.

    QEMU itself writes ``log``, also while nobody is connected; here it is kept short.
    """

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self, path: str) -> None:
        """Take up the line whose socket is at ``path``."""
        await self.disconnect()
        reader, self._writer = await asyncio.open_unix_connection(path)
        self._task = asyncio.get_running_loop().create_task(self._read(reader))

    async def disconnect(self) -> None:
        task, writer = self._task, self._writer
        self._task = self._writer = None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def type(self, data: bytes) -> None:
        """To the guest; lost while the machine is off, as with any cable."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            size = self._log.stat().st_size
            while data := await reader.read(_PIECE):
                self.write(data)
                size += len(data)
                if size > MOST_LOG:
                    size = 0
                    os.truncate(self._log, 0)
