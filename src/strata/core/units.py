"""Watts and seconds as people write them: ``2MW``, ``250W``, ``90s``, ``1h30m``; a plain number is either."""

from __future__ import annotations

import math
import re

_WATTS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(k|M|G)?W?\Z")
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SPAN = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+\Z")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?\Z")
_LONGEST = 40


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


def show_watts(value: float) -> str:
    """Short: ``250 W``, ``1.5 kW``, ``2 MW``."""
    for unit, size in (("GW", 1e9), ("MW", 1e6), ("kW", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} W"
