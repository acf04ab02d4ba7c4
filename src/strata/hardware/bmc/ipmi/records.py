"""What is in IPMI's records: sensors (SDR), log entries (SEL), FRU data. Pure; bytes come in, our types go out.

pyghmi decodes what has tables behind it. It trusts its input, so everything is bounded here first: a record that makes
no sense becomes a reading with a doubt, an entry that says so, or an empty FRU, and never an exception.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
from pyghmi.constants import Health
from pyghmi.ipmi import events, fru, sdr
from pyghmi.ipmi.private import constants

from strata.core.redact import redact
from strata.hardware.bmc.protocol import STATE, LogEntry, Reading, ReadingKind, Severity

MOST_TEXT = 256
BMC = 0x20
"""The address of a BMC within its machine; others in a chassis (supplies, fans, further nodes) have their own."""
_BEFORE_CLOCK = 0x20000000
"""Times below this count from the BMC's start; it did not know the time."""
_MOST_OFF = 5.0
"""Seconds that a BMC's clock may be off before its times are corrected."""

_KINDS: Mapping[int, ReadingKind] = {1: "temperature", 2: "voltage", 3: "current", 4: "fan"}
_UNITS: Mapping[int, tuple[ReadingKind | None, str]] = {
    1: ("temperature", "Cel"), 2: ("temperature", "F"), 4: ("voltage", "V"), 5: ("current", "A"), 6: ("power", "W"),
    7: ("energy", "J"), 18: ("fan", "RPM"), 19: ("frequency", "Hz"),
}  # fmt: skip
_PHYSICAL: Mapping[str, tuple[float, float]] = {
    "temperature": (-100, 300), "voltage": (-100, 1000), "current": (-1000, 10_000), "fan": (0, 200_000),
    "power": (0, 100_000),
}  # fmt: skip
"""Beyond these a reading is not believed."""


class Sensor(msgspec.Struct, frozen=True):
    """One sensor that can be read."""

    number: int
    lun: int
    name: str
    kind: ReadingKind
    unit: str
    high: float | None
    low: float | None
    entry: Any
    owner: int = BMC
    """The address of the BMC that has it: a number means another sensor with each."""


class FruLocator(msgspec.Struct, frozen=True):
    """Where FRU data is, and of what."""

    number: int
    name: str
    entity: int
    owner: int = BMC


class _Entry(sdr.SDREntry):  # type: ignore[misc]
    """pyghmi's, with a name decoder that always ends (its own never does for packed six-bit text)."""

    def tlv_decode(self, tlv: int, data: Any) -> str:
        return packed_text(tlv, bytes(data))


def packed_text(kind: int, data: bytes) -> str:
    """Text in one of IPMI's four encodings, by its type/length byte."""
    data = data[: kind & 0x1F or len(data)]
    if kind >> 6 == 1:
        return "".join("0123456789 -.:,_"[nibble] for byte in data for nibble in (byte >> 4, byte & 0x0F))
    if kind >> 6 == 2:
        bits = int.from_bytes(data, "little")
        return "".join(chr(0x20 + (bits >> 6 * place & 0x3F)) for place in range(len(data) * 8 // 6))
    return plain(data.decode("utf-8" if kind >> 6 == 0 else "latin-1", "replace"))


def plain(text: object) -> str:
    """Text from a device: one line, no control characters, not long."""
    if isinstance(text, bytes | bytearray):
        text = bytes(text).decode("latin-1")
    words = "".join(letter if letter.isprintable() else " " for letter in str(text or "")[: 4 * MOST_TEXT])
    return redact(" ".join(words.split())[:MOST_TEXT])


def sensor(record: bytes) -> Sensor | FruLocator | None:
    """A record of the sensor repository, if it is something that can be read."""
    try:
        return _sensor(record)
    except Exception:
        return None


def _sensor(record: bytes) -> Sensor | FruLocator | None:
    entry = _Entry(bytearray(record), constants, False)
    if entry.sdrtype == sdr.TYPE_FRU:
        owner = record[5] & 0xFE
        return FruLocator(entry.fru_number, plain(entry.fru_name), record[5 + 7] if len(record) > 12 else 0, owner)
    if entry.sdrtype != sdr.TYPE_SENSOR or not entry.readable:
        return None
    body = record[5:]
    kind, unit = _UNITS.get(body[16], (None, plain(entry.unit_suffix)))
    if body[15] & 1:
        kind, unit = "utilisation", "%"
    high = low = None
    if entry.rectype == 1 and entry.linearization is not None and entry.linearization <= 11 and len(body) > 35:
        high = _number(entry, body[32]) if body[13] & 0x10 else None
        low = _number(entry, body[35]) if body[13] & 0x02 else None
    return Sensor(
        entry.sensor_number, entry.sensor_lun, plain(entry.sensor_name), _KINDS.get(body[7]) or kind or "other", unit,
        high, low, entry, entry.sensor_owner,
    )  # fmt: skip


def reading(found: Sensor, answer: bytes | None) -> Reading:
    """A sensor as it was read; ``answer`` None: it could not be."""
    value, health, doubt = None, None, "absent"
    if answer is not None:
        try:
            decoded = found.entry.decode_sensor_reading(None, bytearray(answer))
            if not decoded.unavailable:
                value, health = decoded.value, _severity(decoded.health)
                doubt = "" if value is not None else STATE
        except Exception:
            doubt = "makes no sense"
    least, most = _PHYSICAL.get(found.kind, (-math.inf, math.inf))
    if value is not None and not (math.isfinite(value) and least <= value <= most):
        value, doubt = None, "absurd"
    return Reading(
        name=found.name, kind=found.kind, unit=found.unit, value=None if value is None else round(value, 3),
        health=health, high=found.high, low=found.low, doubt=doubt,
    )  # fmt: skip


def log_entry(record: bytes, names: Mapping[tuple[int, int], str], ahead: float) -> LogEntry:
    """A record of the event log. ``names`` of sensors by (number, lun); ``ahead``: seconds that its clock is ahead."""
    number, kind = struct.unpack_from("<HB", record)
    stamp = struct.unpack_from("<I", record, 3)[0] if kind < 0xE0 else 0
    time = None
    if _BEFORE_CLOCK <= stamp < 0xFFFFFFFF:
        time = stamp - ahead if abs(ahead) > _MOST_OFF else float(stamp)
    name, severity, words, code = "", _severity(Health.Ok), "", ""
    if kind == 0xF0:
        severity, words = "critical", "Linux kernel panic: " + plain(record[5:16].partition(b"\x00")[0])
    elif kind < 0xC0 and len(record) >= 16:
        name = names.get((record[11], record[8] & 3), f"sensor {record[11]}")
        severity, words = _standard(record[10], record[12], record[13:16])
        code = f"IPMI.{record[10]:02X}.{record[12] & 0x7F:02X}.{record[13] & 0x0F:X}"
    if not words:
        words = f"record of the kind {kind:02X}h: {record[3:16].hex()}"
    text = f"{name}: {words}" if name else words
    return LogEntry(
        id=f"{number:04x}-{stamp:08x}", time=time, severity=severity, message=text, message_id=code, sensor=name
    )


def _standard(sensor_type: int, event: int, data: bytes) -> tuple[Severity, str]:
    """Severity and words of an event of a standard sensor."""
    over, kind, offset = bool(event & 0x80), event & 0x7F, data[0] & 0x0F
    table = constants.generic_type_offsets.get(kind, {})
    if kind == 0x6F:
        table = constants.sensor_type_offsets.get(sensor_type, {})
    meaning = table.get(offset, {})
    words = plain(meaning.get("desc", f"event {kind:02X}h/{offset:X}h of a sensor of type {sensor_type:02X}h"))
    more = None
    if kind == 0x6F:
        try:
            more = events.decode_eventdata(sensor_type, offset, data, constants, None)
        except Exception:
            more = None
    if more:
        words += f" ({plain(more)})"
    severity = _severity(meaning.get("deassertion_severity" if over else "severity", Health.Ok))
    return severity, f"{words}: over" if over else words


def fru_fields(data: bytes) -> Mapping[str, str]:
    """FRU data by pyghmi's names for its fields; empty if it makes no sense."""
    try:
        found = fru.FRU(rawdata=bytearray(data)).info or {}
    except Exception:
        return {}
    return {name: plain(value) for name, value in found.items() if isinstance(value, str | bytes | bytearray) and value}


def _number(entry: Any, raw: int) -> float | None:
    if entry.numeric_format == 2:
        raw = sdr.twos_complement(raw, 8)
    elif entry.numeric_format == 1:
        raw = sdr.ones_complement(raw, 8)
    try:
        value = float(entry.decode_value(None, raw))
    except (ArithmeticError, ValueError):
        return None
    return round(value, 3) if math.isfinite(value) else None


def _severity(health: int) -> Severity:
    if health & (Health.Critical | Health.Failed):
        return "critical"
    return "warning" if health & Health.Warning else "ok"
