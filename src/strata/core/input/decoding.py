"""What decoders raise for bytes that came from outside and are not what belongs there: one list, for all who decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from strata.core.errors import BadRequest

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""Not JSON, or not of the type; nested too deeply; not UTF-8 (which msgspec leaves to Python to say)."""


def decoded(decode: Callable[[bytes], T], data: bytes, where: str = "body") -> T:
    """What a request carries; ``BadRequest`` says what is wrong with it."""
    try:
        return decode(data)
    except UNREADABLE as error:
        raise BadRequest(str(error)[:200], where=where) from None
