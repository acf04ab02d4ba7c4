"""An IPMI BMC as a ``Bmc``: power, boot, light, sensors, log, power limit (DCMI), password, console.

IPMI carries no fence: an action of a leader that was deposed is kept back by ``begin_before`` alone, which is its
lead's time limit. What changes power leaves this machine once, never again by itself; no answer is ``OutcomeUnknown``.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from strata.core.errors import BadRequest, DeviceError, NotFound, NotOffered, OutcomeUnknown, Unavailable
from strata.core.state import Fence
from strata.fleet.tasks import cancelled
from strata.hardware.bmc.ipmi import records
from strata.hardware.bmc.ipmi.client import IpmiClient
from strata.hardware.bmc.ipmi.session import APP, Refusal, Session
from strata.hardware.bmc.ipmi.store import IpmiStore
from strata.hardware.bmc.protocol import (
    Bmc,
    Boot,
    BootTarget,
    Firmware,
    Identity,
    LogEntry,
    PowerAction,
    PowerLimit,
    Reading,
)
from strata.hardware.bmc.readings import Marked, distinct

_CHASSIS, _SENSOR, _GROUP = 0x00, 0x04, 0x2C
_DCMI = b"\xdc"
_NO_LIMIT = 0x80
_LIMIT_ID = "dcmi"
_DCMI_DEFAULTS = struct.pack("<xxxBHIxxH", 0, 0, 6000, 1)
"""No exception action, correction within six seconds, samples of a second."""

_CONTROLS: Mapping[PowerAction, int] = {"off": 0, "on": 1, "cycle": 2, "nmi": 4, "graceful-off": 5}
_HARD_RESET = 3
_DEVICES: Mapping[BootTarget, int] = {"none": 0, "pxe": 1, "disk": 2, "media": 5, "setup": 6}
_TARGETS: Mapping[int, BootTarget] = {number: target for target, number in _DEVICES.items()}
_REFUSES_VALUE = 0xCC


class IpmiBmc(Bmc):
    """One BMC at ``ipmi://host[:port]``. Cheap: client and store are shared by all. See ``Bmc`` for what each call
    promises."""

    def __init__(self, client: IpmiClient, store: IpmiStore, address: str) -> None:
        self.address = address
        self._client = client
        self._store = store

    async def _ask(self, netfn: int, command: int, data: bytes = b"", *, lun: int = 0, least: int = 0) -> bytes:
        answer = await self._client.ask(self.address, netfn, command, data, lun=lun)
        if len(answer) < least:
            request = f"netfn {netfn:02X}h command {command:02X}h"
            raise DeviceError(
                "its answer is too short", node=self.address, request=request, reply=answer.hex() or "nothing"
            )
        return answer

    async def _change(self, netfn: int, command: int, data: bytes) -> None:
        """Set something to a value: it may arrive twice without harm, but no answer leaves it open."""
        try:
            await self._client.ask(self.address, netfn, command, data)
        except (Refusal, NotOffered):
            raise
        except DeviceError as wrong:
            raise OutcomeUnknown(wrong.detail, where=self.address) from wrong

    # -- who it is

    async def identity(self) -> Identity:
        """Who it is: the device id, the system's GUID, and FRU 0."""
        device = await self._ask(APP, 0x01, least=11)
        fields = await self._store.fru(self.address, 0)
        number = int.from_bytes(device[6:9], "little") & 0xFFFFF
        return Identity(
            vendor=fields.get("Manufacturer") or fields.get("Board manufacturer") or f"IANA {number}",
            model=fields.get("Product name") or fields.get("Board product name") or "",
            serial=fields.get("Serial Number") or fields.get("Board serial number") or "",
            uuid=await self._guid(),
            firmware=_version(device),
            protocol="ipmi",
        )

    async def _guid(self) -> str:
        try:
            raw = (await self._ask(APP, 0x37, least=16))[:16]
        except (Refusal, NotOffered):
            return ""
        return str(uuid.UUID(bytes_le=raw)) if any(raw) else ""

    # -- power

    async def power(self) -> str | None:
        """``on`` or ``off``."""
        state = await self._ask(_CHASSIS, 0x01, least=1)
        return "on" if state[0] & 1 else "off"

    async def set_power(
        self, action: PowerAction, *, fence: Fence | None = None, begin_before: float = float("inf")
    ) -> None:
        """Ask for it, once. ``fence`` cannot be carried."""
        control = _CONTROLS.get(action)
        if control is None:
            raise NotOffered(
                f"IPMI has no {action}", node=self.address, hint="graceful-off, and on when it is off; or cycle"
            )
        await self._control(control, begin_before, or_else=_HARD_RESET if action == "cycle" else None)

    async def _control(self, control: int, begin_before: float, or_else: int | None = None) -> None:
        def in_time() -> None:
            if time.monotonic() > begin_before:
                raise Unavailable("not begun: no time is left", where=self.address)

        async with self._client.session(self.address, sure=True) as session:
            try:
                await session.ask(_CHASSIS, 0x02, bytes((control,)), once=True, check=in_time)
            except Refusal as refusal:
                if refusal.code != _REFUSES_VALUE:
                    raise
                if or_else is None:
                    raise NotOffered("it cannot do that with its power", node=self.address) from refusal
                # It said that it did nothing: some know a reset but no cycle.
                await session.ask(_CHASSIS, 0x02, bytes((or_else,)), once=True, check=in_time)

    async def identify(self, on: bool) -> None:
        """The identify light, until it is switched off."""
        await self._change(_CHASSIS, 0x04, b"\x00\x01" if on else b"\x00")

    # -- boot

    async def boot(self) -> Boot:
        """The boot override that is set."""
        answer = await self._ask(_CHASSIS, 0x09, b"\x05\x00\x00", least=4)
        flags, device = answer[2], answer[3] >> 2 & 0x0F
        if not flags & 0x80:
            return Boot(target="none")
        return Boot(
            target=_TARGETS.get(device, "none"), once=not flags & 0x40, uefi=bool(flags & 0x20) if device else None
        )

    async def set_boot(self, boot: Boot) -> None:
        """Set the boot override."""
        device = _DEVICES.get(boot.target)
        if device is None:
            raise NotOffered(f"IPMI cannot boot from {boot.target}", node=self.address, hint="use pxe")
        uefi = boot.uefi
        if uefi is None:
            uefi = (await self.boot()).uefi or False
        # Without this, many forget the override a minute later; those that do not know it do not forget.
        with contextlib.suppress(Refusal, NotOffered):
            await self._change(_CHASSIS, 0x08, b"\x03\x08")
        flags = 0x80 | (0 if boot.once else 0x40) | (0x20 if uefi else 0)
        await self._change(_CHASSIS, 0x08, bytes((5, flags if device else 0, device << 2, 0, 0, 0)))

    # -- what it measures and remembers

    async def readings(self) -> Sequence[Reading]:
        """All sensors, and what the chassis draws (DCMI)."""
        marked, none = list[Marked](), None
        try:
            sensors = await self._store.sensors(self.address)
        except (Refusal, NotOffered) as wrong:
            sensors, none = (), wrong  # it may speak DCMI all the same
        for sensor in sensors:
            if isinstance(sensor, records.Sensor):
                try:
                    answer = await self._client.ask(
                        self.address, _SENSOR, 0x2D, bytes((sensor.number,)), lun=sensor.lun
                    )
                except (Refusal, NotOffered):
                    answer = None
                reading = records.reading(sensor, answer if answer and len(answer) >= 3 else None)
                number = f"sensor {sensor.number}"
                marked.append(Marked(reading, (number, f"{number} of {sensor.owner:02x}h, {sensor.lun}")))
        found = distinct(marked)
        try:
            draws = await self._ask(_GROUP, 0x02, _DCMI + b"\x01\x00\x00", least=18)
        except (Refusal, NotOffered):
            if none is not None:
                raise none from None
            return found
        on = draws[17] & 0x40
        found.append(
            Reading(
                name="DCMI power",
                kind="power",
                unit="W",
                value=float(int.from_bytes(draws[1:3], "little")) if on else None,
                doubt="" if on else "not measured now",
            )
        )
        return found

    async def log(self, *, after: str = "", limit: int = 1000) -> Sequence[LogEntry]:
        """The system event log."""
        return await self._store.log(self.address, after, limit)

    async def clear_log(self) -> None:
        """Empty it."""
        await self._store.clear_log(self.address)

    # -- power limit

    async def power_limits(self) -> Sequence[PowerLimit]:
        """The chassis' limit, where it speaks DCMI."""
        try:
            answer = await self._ask(_GROUP, 0x03, _DCMI + b"\x00\x00", least=6)
        except Refusal as refusal:
            if refusal.code != _NO_LIMIT:
                raise
            watts = None
        else:
            watts = float(int.from_bytes(answer[4:6], "little"))
        return (PowerLimit(id=_LIMIT_ID, name="Chassis", watts=watts, via="DCMI"),)

    async def set_power_limit(self, limit: str, watts: float | None) -> None:
        """Cap the chassis, and have the cap enforced; None stops that."""
        if limit not in ("", _LIMIT_ID):
            raise NotFound(f"no such limit: {limit[:80]}", where=self.address, hint=f"there is one: {_LIMIT_ID}")
        if watts is not None:
            if not 1 <= watts <= 0xFFFF:
                raise BadRequest(f"{watts} W cannot be set", where="watts", hint="from 1 to 65535")
            try:
                answer = await self._ask(_GROUP, 0x03, _DCMI + b"\x00\x00", least=14)
                kept = bytes(3) + answer[3:14]
            except (Refusal, NotOffered):
                kept = _DCMI_DEFAULTS
            wanted = kept[:4] + struct.pack("<H", round(watts)) + kept[6:]
            await self._change(_GROUP, 0x04, _DCMI + wanted)
        await self._change(_GROUP, 0x05, _DCMI + bytes((watts is not None, 0, 0)))

    # -- accounts

    async def set_password(self, user: str, password: str) -> None:
        """Change an account's password."""
        secret = password.encode()
        if not secret or len(secret) > 20:
            raise BadRequest("IPMI takes passwords of 1 to 20 bytes", where="password")
        access = await self._ask(APP, 0x44, b"\x0e\x01", least=1)
        for number in range(1, (access[0] & 0x3F) + 1):
            try:
                name = await self._ask(APP, 0x46, bytes((number,)))
            except Refusal:
                continue
            if name[:16].rstrip(b"\x00") == user.encode():
                break
        else:
            raise NotFound(f"it has no user {user[:16]}", where=self.address)
        long = len(secret) > 16
        padded = secret.ljust(20 if long else 16, b"\x00")
        await self._change(APP, 0x47, bytes((number | (0x80 if long else 0), 2)) + padded)

    # -- firmware

    async def firmware(self) -> Sequence[Firmware]:
        """Its own: IPMI knows of no other."""
        device = await self._ask(APP, 0x01, least=11)
        return (Firmware(id="bmc", name="BMC", version=_version(device), component="bmc"),)

    # -- the console

    def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
        """Serial over LAN."""
        return serial_console(self._client, self.address, keys)


def _version(device: Any) -> str:
    return f"{device[2] & 0x7F}.{device[3]:02x}"


_SOL_INSTANCE = bytes((1, 1))
_ENCRYPT_AND_AUTHENTICATE = bytes((0xC0, 0, 0, 0))
_QUEUED = 64
"""Chunks that may wait for their reader. Beyond that they are not acknowledged, and the BMC holds them back."""
_KEEP_ALIVE = 20.0
_TYPED = 64
"""Bytes that are typed in one payload: every BMC takes as many."""
_TYPED_TRIES = 5
_TYPED_PATIENCE = 0.5
_WORDS = {
    0x80: ("somebody else has it open", "close the other console, or wait a minute"),
    0x81: ("serial over LAN is switched off", "switch it on in the BMC's settings"),
    0x82: ("it has no room for another console", "close one"),
    0x83: ("it cannot encrypt the console", "update its firmware"),
}


async def serial_console(client: IpmiClient, address: str, keys: asyncio.Queue[bytes] | None) -> AsyncIterator[bytes]:
    """Bytes as they come; none at first: it is open. Raises ``DeviceError`` when it cannot be had, or breaks off."""
    session = await client.fresh(address)
    feed = _Feed(session)
    active = False
    typing: asyncio.Task[None] | None = None
    try:
        try:
            await session.ask(APP, 0x48, _SOL_INSTANCE + _ENCRYPT_AND_AUTHENTICATE)
        except Refusal as refusal:
            words, hint = _WORDS.get(refusal.code, (str(refusal), ""))
            raise DeviceError(words, node=address, request="serial over LAN", hint=hint) from refusal
        active = True
        if keys is not None:
            typing = asyncio.create_task(feed.type(keys), name="keys of a console")
        yield b""
        while True:
            try:
                async with asyncio.timeout(_KEEP_ALIVE):
                    yield await feed.next()
            except TimeoutError:
                await session.ask(APP, 0x01)
    finally:
        session.serial = None
        if typing is not None:
            await cancelled(typing)
        try:
            if active and session.open:
                # Lost or refused, it is over: the BMC forgets by itself.
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
        self._sent = 0
        """The number of what was typed last."""
        self._taken = asyncio.Event()
        self._accepted = 0
        session.serial = self._take

    async def next(self) -> bytes:
        if self._ended and self._chunks.empty():
            raise DeviceError("the BMC ended the console", node=self._session.name)
        chunk = await self._chunks.get()
        if not chunk:
            raise DeviceError("the BMC ended the console", node=self._session.name)
        return chunk

    async def type(self, keys: asyncio.Queue[bytes]) -> None:
        """Send what is typed, a piece at a time: the next when the BMC has taken the one before. One that it does not
        take is sent again a few times, with the same number, and then lost, as on any serial line."""
        while True:
            rest = await keys.get()
            tries = 0
            while rest and tries < _TYPED_TRIES:
                self._sent = self._sent % 15 + 1
                piece = rest[:_TYPED]
                self._taken.clear()
                self._accepted = 0
                for _ in range(_TYPED_TRIES):
                    self._session.send_serial(bytes((self._sent, 0, 0, 0)) + piece)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_TYPED_PATIENCE):
                            await self._taken.wait()
                            break
                tries = 0 if self._accepted else tries + 1
                rest = rest[self._accepted :]

    def _take(self, payload: bytes) -> None:
        if len(payload) < 4:
            return
        if self._sent and payload[1] & 0x0F == self._sent and not self._taken.is_set():
            self._accepted = min(payload[2], _TYPED)
            self._taken.set()
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
