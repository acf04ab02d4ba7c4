"""Serial over LAN: what a node's serial console prints, through its IPMI controller. Only ever read, never typed at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from strata.core.errors import DeviceError, OutcomeUnknown
from strata.hardware.ipmi.client import IpmiClient
from strata.hardware.ipmi.session import APP, Refusal, Session

_SOL_INSTANCE = bytes((1, 1))
_ENCRYPT_AND_AUTHENTICATE = bytes((0xC0, 0, 0, 0))
_QUEUED = 64
"""Chunks that may wait for their reader. Beyond that they are not acknowledged, and the controller holds them back."""
_KEEP_ALIVE = 20.0
_WORDS = {
    0x80: ("somebody else has it open", "close the other console, or wait a minute"),
    0x81: ("serial over LAN is switched off", "switch it on in the controller's settings"),
    0x82: ("it has no room for another console", "close one"),
    0x83: ("it cannot encrypt the console", "update its firmware"),
}


async def serial_console(client: IpmiClient, address: str) -> AsyncIterator[bytes]:
    """Bytes as they come; none at first: it is open. Raises ``DeviceError`` when it cannot be had, or breaks off."""
    session = await client.fresh(address)
    feed = _Feed(session)
    active = False
    try:
        try:
            await session.ask(APP, 0x48, _SOL_INSTANCE + _ENCRYPT_AND_AUTHENTICATE)
        except Refusal as refusal:
            words, hint = _WORDS.get(refusal.code, (str(refusal), ""))
            raise DeviceError(words, node=address, request="serial over LAN", hint=hint) from refusal
        active = True
        yield b""
        while True:
            try:
                async with asyncio.timeout(_KEEP_ALIVE):
                    yield await feed.next()
            except TimeoutError:
                await session.ask(APP, 0x01)
    finally:
        session.serial = None
        try:
            if active and session.open:
                # Lost or refused, it is over: the controller forgets by itself.
                with contextlib.suppress(DeviceError, OutcomeUnknown):
                    await session.ask(APP, 0x49, _SOL_INSTANCE + bytes(4), once=True)
            await session.log_out()
        finally:
            client.dismiss(session)


class _Feed:
    """Takes payloads, acknowledges them, and hands out what is new in each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._last = 0
        self._size = 0
        self._ended = False
        session.serial = self._take

    async def next(self) -> bytes:
        if self._ended and self._chunks.empty():
            raise DeviceError("the controller ended the console", node=self._session.name)
        chunk = await self._chunks.get()
        if not chunk:
            raise DeviceError("the controller ended the console", node=self._session.name)
        return chunk

    def _take(self, payload: bytes) -> None:
        if len(payload) < 4:
            return
        sequence, status, text = payload[0] & 0x0F, payload[3], payload[4:]
        if status & 0x10 and not self._ended:
            self._ended = True
            if not self._chunks.full():
                self._chunks.put_nowait(b"")
            return
        if not sequence or self._chunks.full():
            return
        # One that comes again was not acknowledged in time; it may have grown since.
        fresh = text[self._size :] if sequence == self._last else text
        self._last, self._size = sequence, len(text)
        self._session.send_serial(bytes((0, sequence, min(len(text), 255), 0)))
        if fresh:
            self._chunks.put_nowait(fresh)
