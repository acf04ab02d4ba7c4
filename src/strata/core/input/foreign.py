"""What devices and programs of others send, read leniently: a byte that is wrong spoils itself, and not all around it.

Bytes that are not UTF-8 become U+FFFD. JSON with such bytes, with halves of surrogate pairs, control characters within
texts, a byte order mark, or ``NaN`` is still read. What comes out can be encoded, stored and shown again.
"""

from __future__ import annotations

import json
import math
import re
from typing import NamedTuple

import msgspec

_decode = msgspec.json.Decoder().decode
_BLANKED = bytes.maketrans(bytes(range(0x20)), b" " * 0x20)
"""Control characters: between the parts of JSON they are spaces or wrong, within its texts they are only wrong."""
_HALF = re.compile(
    r"\\u(?:d[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})|(?<!\\ud[89ab][0-9a-f]{2}\\u)d[c-f][0-9a-f]{2})", re.IGNORECASE
)
_DIGITS = 18
"""Of a whole number that fits 64 bits whatever they are."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


class Read(NamedTuple):
    """What JSON said, and what was wrong with it all the same (empty: nothing)."""

    value: object
    flaw: str = ""


def read_text(data: bytes) -> str:
    """Text of others."""
    return data.decode("utf-8", "replace")


def read_json(data: bytes) -> Read:
    """JSON of others. Raises ``ValueError`` for what is none, however kindly one looks."""
    try:
        return Read(_decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    flaw = "its JSON is malformed"
    try:
        data.decode()
    except UnicodeDecodeError:
        flaw = "its text is not UTF-8"
    text = _HALF.sub(r"\\ufffd", read_text(data.translate(_BLANKED)).removeprefix("\ufeff"))
    try:
        return Read(json.loads(text, parse_int=_integer, parse_float=_finite, parse_constant=lambda _: None), flaw)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def mended(data: bytes) -> bytes:
    """JSON of others as JSON that every reader takes. Raises like ``read_json``."""
    return msgspec.json.encode(read_json(data).value)


def one_line(text: str) -> str:
    """``text`` without what drives terminals, breaks lines or cannot be encoded."""
    return text if text.isprintable() else _UNFIT.sub(" ", text)


def _integer(digits: str) -> int | float | None:
    return int(digits) if len(digits) <= _DIGITS else _finite(digits)


def _finite(digits: str) -> float | None:
    found = float(digits)
    return found if math.isfinite(found) else None
