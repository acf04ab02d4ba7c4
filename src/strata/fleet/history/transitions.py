"""The durable record of fact changes: what goes to the store under ``transition/``, in rows of bounded size.

One entry says the same change of many nodes once, with the nodes as runs of uids. Knows nothing of who reads it
(``strata.fleet.history.history`` keeps an index by node).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.errors import Corrupt

PREFIX = "transition/"
MOST_NODES = 10_000
"""Nodes per entry."""
MOST_BYTES = 500_000
"""Bytes per row."""

_OVERHEAD = 40
"""More than MessagePack adds to an entry or a pair of integers needs beyond its texts."""


class FactChange(NamedTuple):
    """The same change of some nodes, as the engine sees it."""

    variable: str
    old: str
    new: str
    source: str
    cause: str
    """Why, in a word: the mutation that did it, ``seen``, ``aged``..."""
    uids: npt.NDArray[np.int64]


class Change(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of a ``FactChange``."""

    variable: str
    old: str
    new: str
    source: str
    cause: str
    uids: intset.Runs


class Transition(msgspec.Struct, frozen=True, array_like=True):
    """One row: what changed at ``time``, as ``controller`` saw it."""

    time: float
    """Unix time."""
    controller: str
    changes: tuple[Change, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Transition)


def key_of(seq: int) -> str:
    """The store's key of row ``seq``."""
    return f"{PREFIX}{seq:016d}"


def seq_of(key: str) -> int:
    """The number in a row's key."""
    try:
        return int(key.removeprefix(PREFIX))
    except ValueError:
        raise Corrupt("not the key of a transition", where=key[:80]) from None


def rows_of(time: float, controller: str, changes: Iterable[FactChange]) -> list[Transition]:
    """Changes cut into rows: at most ``MOST_NODES`` nodes per entry and ``MOST_BYTES`` bytes per row."""
    rows: list[Transition] = []
    entries: list[Change] = []
    size = 0
    for change in changes:
        uids = np.sort(change.uids)
        for first in range(0, len(uids), MOST_NODES):
            runs = intset.pack(uids[first : first + MOST_NODES])
            texts = sum(len(text.encode()) for text in change[:5])
            weight = texts + _OVERHEAD + 20 * len(runs)
            if entries and size + weight > MOST_BYTES:
                rows.append(Transition(time, controller, tuple(entries)))
                entries, size = [], 0
            entries.append(Change(*change[:5], runs))
            size += weight
    if entries:
        rows.append(Transition(time, controller, tuple(entries)))
    return rows


def encode(row: Transition) -> bytes:
    """The stored form of a row."""
    return _encoder.encode(row)


def decode(value: bytes, where: str = "") -> Transition:
    """Read a row; ``Corrupt`` if it is not one."""
    try:
        return _decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"unreadable transition: {error}", where=where) from None
