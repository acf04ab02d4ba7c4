"""Watts, seconds, memory and numbers of things as people write them: ``2MW``, ``90s``, ``1h30m``, ``16G``.

A plain number is any of them.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise

_WATTS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(k|M|G)?W?\Z")
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SPAN = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+\Z")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?\Z")
_LONGEST = 40

SIZE = r"^[0-9]{1,9}([MGT]i?B?)?$(?!\n)"
"""A size of memory as it is written: the pattern of fields that hold one."""
_SIZE = re.compile(SIZE)
_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


class Watts(float):
    """Power, read by ``watts``. For fields of documents."""


class Seconds(float):
    """A length of time, read by ``seconds``. For fields of documents."""


def watts(text: str) -> Watts:
    """``2MW``, ``1.5 kW``, ``250W`` or ``250``; raises ``ValueError``."""
    found = _WATTS.match(text) if len(text) <= _LONGEST else None
    value = float(found[1]) * _TIMES[found[2] or ""] if found else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:_LONGEST]!r} is not a power such as 250W, 1.5kW, 2MW")
    return Watts(value)


def seconds(text: str) -> Seconds:
    """``90s``, ``10m``, ``1h30m`` or ``90``; raises ``ValueError``."""
    short = len(text) <= _LONGEST
    if short and _NUMBER.match(text):
        return Seconds(text)
    if not short or not _SPAN.match(text):
        raise ValueError(f"{text[:_LONGEST]!r} is not a length of time such as 90s, 10m, 1h30m")
    return Seconds(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def mebibytes(text: str) -> int:
    """``16G``, ``500M``, or a number of MiB; raises ``ValueError``."""
    if not _SIZE.match(text) or not (value := int(text.rstrip("MGTiB")) * _MIB[text.lstrip("0123456789")[:1]]):
        raise ValueError(f"{text[:_LONGEST]!r} is not a size such as 500M, 4G")
    return value


def show_mebibytes(value: int) -> str:
    """Short: ``500 MiB``, ``16 GiB``, ``1.5 GiB``."""
    return f"{value / 1024:.4g} GiB" if value >= 1024 else f"{value} MiB"


def show_watts(value: float) -> str:
    """Short: ``250 W``, ``1.5 kW``, ``2 MW``."""
    for unit, size in (("GW", 1e9), ("MW", 1e6), ("kW", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} W"


def show_seconds(value: float) -> str:
    """Short: ``12s``, ``3m10s``, ``5h``, ``2d4h``."""
    left = round(max(value, 0))
    for (unit, size), (small, part) in pairwise((("d", 86400), ("h", 3600), ("m", 60), ("s", 1))):
        if left >= size:
            rest = left % size // part
            return f"{left // size}{unit}" + (f"{rest}{small}" if rest else "")
    return f"{left}s"


def many(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_confirmed(said: str, words: str) -> bool:
    """Whether somebody typed the words that confirm something; scripts may say ``1 nodes`` for ``1 node``."""
    return said.strip().lower().replace(" 1 nodes", " 1 node") == words.lower()
