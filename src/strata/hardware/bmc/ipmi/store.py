"""Reads what an IPMI BMC keeps: sensor records, FRU data, the event log. Piecewise and bounded.

Nothing that a BMC says makes these loops endless: records are counted, and none is read twice.
"""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.bmc.ipmi.client import IpmiClient
from strata.hardware.bmc.ipmi.records import BMC, FruLocator, Sensor, fru_fields, log_entry, sensor
from strata.hardware.bmc.ipmi.session import APP, Refusal
from strata.hardware.bmc.protocol import LogEntry

STORAGE = 0x0A
_END = 0xFFFF
_WHOLE = 0xFF
_PIECE = 24
_MOST_RECORDS = 2048
_MOST_FRU = 4096
_KEPT = 64
_TOO_LONG = (0xC8, 0xC9, 0xCA, 0xFF)
"""How BMCs say that they cannot return so much at once (FFh: unspecified, of some older ones)."""
_NONE = (0x81, 0xC3, 0xC9, 0xCB)
"""How they say that there is no such FRU or record."""

_AT = frozenset((BMC, 0))
"""Addresses that a BMC goes by in its own records; 0 is left in by those that do not care."""

Sensors = tuple[Sensor | FruLocator, ...]


class IpmiStore:
    """Sensor records are kept for models that are alike: a thousand equal nodes are asked for theirs once."""

    def __init__(self, client: IpmiClient) -> None:
        self._client = client
        self._known: OrderedDict[bytes, Sensors] = OrderedDict()

    async def sensors(self, address: str) -> Sensors:
        """What the BMC's sensor repository holds."""
        device = await self._client.ask(address, APP, 0x01)
        about = await self._client.ask(address, STORAGE, 0x20)
        # Device, firmware, product, and when the repository was last added to and erased.
        key = device + about[:3] + about[5:13]
        if key not in self._known:
            self._known[key] = await self._read_sensors(address)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def _read_sensors(self, address: str) -> Sensors:
        found: list[Sensor | FruLocator] = []
        seen: set[int] = set()
        record, piece, reserved = 0, _WHOLE, b"\x00\x00"
        while record != _END and record not in seen and len(seen) < _MOST_RECORDS:
            seen.add(record)
            if piece == _WHOLE:
                try:
                    answer = await self._client.ask(address, STORAGE, 0x23, struct.pack("<HHBB", 0, record, 0, _WHOLE))
                    following, data = int.from_bytes(answer[:2], "little"), answer[2:]
                except Refusal as refusal:
                    if refusal.code not in _TOO_LONG:
                        raise
                    piece = _PIECE
            if piece != _WHOLE:
                reserved = reserved if any(reserved) else await self._client.ask(address, STORAGE, 0x22)
                following, data = await self._pieces(address, record, reserved)
            understood = sensor(data)
            if understood is not None:
                found.append(understood)
            record = following
        return own(found)

    async def _pieces(self, address: str, record: int, reserved: bytes) -> tuple[int, bytes]:
        data, size, following = b"", 5, _END
        while len(data) < size:
            want = 5 if not data else min(_PIECE, size - len(data))
            request = reserved[:2] + struct.pack("<HBB", record, len(data), want)
            answer = await self._client.ask(address, STORAGE, 0x23, request)
            if len(answer) <= 2:
                raise DeviceError("a sensor record breaks off", node=address, reply=answer.hex() or "nothing")
            following = int.from_bytes(answer[:2], "little")
            data += answer[2 : 2 + want]
            size = data[4] + 5 if len(data) >= 5 else size
        return following, data

    async def fru(self, address: str, number: int) -> Mapping[str, str]:
        """The fields of one FRU; empty where there is none."""
        try:
            about = await self._client.ask(address, STORAGE, 0x10, bytes((number,)))
            size = min(int.from_bytes(about[:2], "little"), _MOST_FRU)
            data, piece = b"", 128
            while len(data) < size:
                want = min(piece, size - len(data))
                try:
                    answer = await self._client.ask(
                        address, STORAGE, 0x11, struct.pack("<BHB", number, len(data), want)
                    )
                except Refusal as refusal:
                    if refusal.code not in _TOO_LONG or piece <= 8:
                        raise
                    piece //= 2
                    continue
                if len(answer) < 2:
                    break
                data += answer[1 : 1 + want]
        except NotOffered:
            return {}
        except Refusal as refusal:
            if refusal.code in _NONE:
                return {}
            raise
        return fru_fields(data)

    async def log(self, address: str, after: str, limit: int) -> Sequence[LogEntry]:
        """Entries of the event log after ``after``, oldest first. If that one is gone (the log was cleared, or went
        round), from the beginning."""
        # Not everything that has a log has sensor records.
        try:
            described = await self.sensors(address)
        except (Refusal, NotOffered):
            described = ()
        names = {(found.number, found.lun): found.name for found in described if isinstance(found, Sensor)}
        ahead = await self._clock_ahead(address)
        record = 0
        if after:
            last = await self._entry(address, _number(after))
            if last is not None and log_entry(last[1], names, ahead).id == after:
                record = last[0]
        found: list[LogEntry] = []
        seen: set[int] = set()
        while record != _END and record not in seen and len(found) < limit:
            seen.add(record)
            read = await self._entry(address, record)
            if read is None:
                break
            record = read[0]
            found.append(log_entry(read[1], names, ahead))
        return found

    async def _entry(self, address: str, record: int) -> tuple[int, bytes] | None:
        """One record, and the number of the next."""
        try:
            answer = await self._client.ask(address, STORAGE, 0x43, struct.pack("<HHBB", 0, record, 0, _WHOLE))
        except Refusal as refusal:
            if refusal.code in _NONE:
                return None
            raise
        if len(answer) < 2 + 16:
            raise DeviceError("a log record breaks off", node=address, reply=answer.hex() or "nothing")
        return int.from_bytes(answer[:2], "little"), answer[2:18]

    async def _clock_ahead(self, address: str) -> float:
        try:
            answer = await self._client.ask(address, STORAGE, 0x48)
        except (Refusal, NotOffered):
            return 0.0
        return int.from_bytes(answer[:4], "little") - time.time()

    async def clear_log(self, address: str) -> None:
        """Empty the event log."""
        reserved = await self._client.ask(address, STORAGE, 0x42)
        await self._client.ask(address, STORAGE, 0x47, reserved[:2] + b"CLR\xaa")


def own(found: Sequence[Sensor | FruLocator]) -> Sensors:
    """Those that the BMC has itself. The repository of one in a chassis also tells of other BMCs' sensors and
    FRUs: asked for by their numbers, the BMC would answer with its own. One that goes by another address than a BMC's
    has none at that, and all are taken for its own."""
    at = {one.owner for one in found if isinstance(one, Sensor)} or {one.owner for one in found}
    return tuple(one for one in found if one.owner in _AT or not at & _AT)


def _number(entry: str) -> int:
    """The number of the record in an entry's id; 0, the first, where it is no id of ours."""
    try:
        return int(entry.partition("-")[0], 16) & 0xFFFF
    except ValueError:
        return 0
