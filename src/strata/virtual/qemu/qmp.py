"""QEMU's own control channel (QMP): commands with replies, and events as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strata.core.errors import DeviceError, OutcomeUnknown

_MOST_LINE = 4 << 20
_PATIENCE = 30.0
"""Seconds for a reply: emulation on a busy machine is slow, and QEMU answers between two pieces of it."""


class Qmp:
    """One connection, greeted and ready."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Callable[[str], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._heard = heard
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._task = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(cls, path: str, heard: Callable[[str], None]) -> Qmp:
        """Connect to the socket at ``path``. ``heard`` gets the name of every event."""
        reader, writer = await asyncio.open_unix_connection(path, limit=_MOST_LINE)
        try:
            async with asyncio.timeout(_PATIENCE):
                greeting = await reader.readline()
            if b'"QMP"' not in greeting:
                raise DeviceError("QEMU did not greet", node=path)
        except BaseException:
            writer.close()
            raise
        found = cls(reader, writer, heard)
        try:
            await found.ask("qmp_capabilities")
        except BaseException:
            found.drop()
            raise
        return found

    async def ask(self, command: str, **arguments: object) -> Any:
        """The reply to ``command``. Raises ``DeviceError`` when QEMU refuses, ``OutcomeUnknown`` when it is gone."""
        self._count += 1
        number = self._count
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        body: Mapping[str, object] = {"execute": command, "id": number, "arguments": arguments}
        try:
            if self._task.done():
                raise OutcomeUnknown("QEMU has ended", where=command)
            self._writer.write(msgspec.json.encode(body) + b"\n")
            async with asyncio.timeout(_PATIENCE):
                return await future
        except TimeoutError:
            raise OutcomeUnknown(f"QEMU did not answer within {_PATIENCE:g} s", where=command) from None
        finally:
            self._waiting.pop(number, None)

    def drop(self) -> None:
        """Let go of the connection, at once. Who waits for a reply is told that there will be none."""
        self._task.cancel()
        self._writer.close()

    def let_end(self, over: Callable[[Qmp], None]) -> None:
        """Its process has ended: what that said last is still heard, then the connection is let go of."""

        def finish(_: object) -> None:
            self._writer.close()
            over(self)

        self._task.add_done_callback(finish)

    async def close(self) -> None:
        """Let go of the connection; the machine goes on."""
        self.drop()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(msgspec.json.decode(line))
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # it died in the middle of a line
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(OutcomeUnknown("QEMU has ended"))

    def _take(self, message: Any) -> None:
        if "event" in message:
            self._heard(str(message["event"]))
            return
        future = self._waiting.get(message.get("id", 0))
        if future is None or future.done():
            return
        if "error" in message:
            told = message["error"]
            future.set_exception(DeviceError(str(told.get("desc", told))[:500], node="QEMU"))
        else:
            future.set_result(message.get("return"))
