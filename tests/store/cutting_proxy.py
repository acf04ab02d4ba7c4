"""A proxy before one etcd member that can swallow answers: the request is carried out, and nobody hears of it."""

from __future__ import annotations

import asyncio
import contextlib


class CuttingProxy:
    """Forwards bytes; ``swallow`` answers to transactions are cut off after etcd gave them."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallow = 0

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        """``host:port`` of the proxy."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        their_reader, their_writer = await asyncio.open_connection(*self._target)
        cut = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                up = group.create_task(self._up(reader, their_writer, cut))
                await self._down(their_reader, writer, cut)
                up.cancel()
        except (ExceptionGroup, asyncio.CancelledError):
            # The connection is over, whoever ended it.
            return
        finally:
            for each in (writer, their_writer):
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            self._tasks.discard(task)

    async def _up(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, cut: asyncio.Event) -> None:
        while data := await reader.read(65536):
            if b"POST /v3/kv/txn" in data and self.swallow:
                self.swallow -= 1
                cut.set()
            to.write(data)
            await to.drain()

    async def _down(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, cut: asyncio.Event) -> None:
        while data := await reader.read(65536):
            if cut.is_set():
                return
            to.write(data)
            await to.drain()
