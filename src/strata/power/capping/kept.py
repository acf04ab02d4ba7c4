"""A ledger of caps as bytes, for a successor: what is kept of each node, and how it is carried over to other nodes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from strata.core.errors import Corrupt
from strata.power.capping.terms import Column, Rows, Use

_FRESH = (np.nan, np.nan, -np.inf, -np.inf, 0.0, -np.inf, 0.0, -np.inf)
"""What is kept, column by column, of a node that nobody has heard of."""


class _Kept(msgspec.Struct):
    use: bytes
    columns: list[bytes]


def pack(use: NDArray[np.int8], columns: Sequence[Column]) -> bytes:
    """All of it as bytes."""
    return msgspec.msgpack.encode(_Kept(use.tobytes(), [column.tobytes() for column in columns]))


def unpack(snapshot: bytes) -> tuple[NDArray[np.int8], list[Column]]:
    """What ``pack`` was given; to be read only. Raises ``Corrupt``."""
    try:
        kept = msgspec.msgpack.decode(snapshot, type=_Kept)
        columns = [np.frombuffer(column, np.float64) for _, column in zip(_FRESH, kept.columns, strict=True)]
        return np.frombuffer(kept.use, np.int8), columns
    except (msgspec.MsgspecError, ValueError) as error:
        raise _unreadable(error) from None


def moved(snapshot: bytes, places: Rows) -> bytes:
    """A snapshot for other nodes: row by row the place in the old one; -1: it is new, and counts as not capped."""
    use, columns = unpack(snapshot)
    try:
        # The last place is that of everybody who is new.
        found = [np.append(column, fresh)[places] for fresh, column in zip(_FRESH, columns, strict=True)]
        return pack(np.append(use, np.int8(Use.BUSY))[places].astype(np.int8), found)
    except IndexError as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> Corrupt:
    return Corrupt(f"the ledger of caps cannot be read: {error}", hint="read the caps from the nodes")
