"""Limits that a node's own kernel keeps: the range of its clock and the deepest sleep of its processors.

``Inband`` is what the service asks. Nodes that have an agent are asked through it (``AgentNodes``); ``VirtualNodes``
stands in for the kernels of simulated ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from strata.core.errors import BadRequest, StrataError, Unavailable

Attribute = Literal["freq", "freq-min", "freq-max", "sleep-limit"]

T = TypeVar("T")

FREQUENCIES = (1200000, 1400000, 1600000, 1800000, 2000000, 2200000, 2400000, 2600000, 2601000)
"""kHz that a virtual node's processors have."""
SLEEPS = ("POLL", "C1", "C1E", "C3", "C6", "C7")
_AT_FIRST: dict[Attribute, int] = {
    "freq-min": FREQUENCIES[0],
    "freq-max": FREQUENCIES[-1],
    "sleep-limit": len(SLEEPS) - 1,
}
_WITH_A_WRONG_ONE = "not changed: another limit of the same request cannot be had"


class Value(msgspec.Struct, frozen=True):
    """One reading, and when it was made; or why there is none."""

    value: int = 0
    time: float = 0.0
    trouble: str = ""


Change = tuple[Attribute, int]
Answers = Mapping[str, Sequence[Value] | StrataError]
"""Of each node, a value for each attribute that was asked for or changed; or why the node could not be asked."""


class Inband(Protocol):
    """Asks the kernels of many nodes. A node that cannot be asked says why, and holds nobody up."""

    async def choices(self, names: Sequence[str], attribute: Attribute) -> Mapping[str, Sequence[int] | StrataError]:
        """What the attribute may be."""
        ...

    async def get(self, names: Sequence[str], attributes: Sequence[Attribute]) -> Answers:
        """What the attributes are."""
        ...

    async def set(self, names: Sequence[str], changes: Sequence[Change]) -> Answers:
        """Change the attributes, one after the other; what became of each."""
        ...


class VirtualNodes:
    """Nodes that aren't there. What their kernels keep is in a file for each that was changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writing = threading.Lock()
        """Each node's file is read, changed and written as a whole."""

    async def choices(self, names: Sequence[str], attribute: Attribute) -> Mapping[str, Sequence[int] | StrataError]:
        """What the attribute may be."""
        return dict.fromkeys(names, _choices(attribute))

    async def get(self, names: Sequence[str], attributes: Sequence[Attribute]) -> Answers:
        """What the attributes are. A clock is as fast as its limits allow."""

        def one(name: str) -> Sequence[Value]:
            limits, now = self._limits(name), time.time()
            return [Value(limits["freq-max" if what == "freq" else what], now) for what in attributes]

        return await asyncio.to_thread(_each, names, one)

    async def set(self, names: Sequence[str], changes: Sequence[Change]) -> Answers:
        """Change the attributes, one after the other; a change that fails does not keep the next from being tried. What
        the processors cannot have is found before anything is changed."""
        wrong = {what: str(error) for what, value in changes if (error := _wrong(what, value)) is not None}
        if wrong:
            refused = tuple(Value(trouble=wrong.get(what, _WITH_A_WRONG_ONE)) for what, _ in changes)
            return dict.fromkeys(names, refused)

        def one(name: str) -> Sequence[Value]:
            with self._writing:
                limits = self._limits(name)
                done = [_changed(limits, what, value) for what, value in changes]
                path = self._path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(msgspec.json.encode(limits))
            return done

        return await asyncio.to_thread(_each, names, one)

    def _limits(self, name: str) -> dict[Attribute, int]:
        path = self._path(name)
        return {**_AT_FIRST, **(msgspec.json.decode(path.read_bytes()) if path.exists() else {})}

    def _path(self, name: str) -> Path:
        # By digest: a node's name is not to be trusted as a path, and no directory has 100,000 entries.
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self._directory / digest[:2] / f"{digest[2:18]}.json"


def _each(names: Sequence[str], one: Callable[[str], T]) -> dict[str, T | StrataError]:
    found: dict[str, T | StrataError] = {}
    for name in names:
        try:
            found[name] = one(name)
        except (OSError, ValueError) as error:
            found[name] = Unavailable(f"what its kernel keeps cannot be read or written: {type(error).__name__}")
    return found


def _choices(attribute: Attribute) -> Sequence[int]:
    return range(len(SLEEPS)) if attribute == "sleep-limit" else FREQUENCIES


def _wrong(attribute: Attribute, value: int) -> BadRequest | None:
    """Why the processors cannot have it, whatever else is set."""
    if attribute == "freq":
        return BadRequest("the frequency itself cannot be set, only its limits", where=attribute)
    low, *_, high = _choices(attribute)
    if low <= value <= high:
        return None
    if attribute == "sleep-limit":
        return BadRequest(f"{value} is not a sleep state", where=attribute, hint=f"{low} to {high}")
    return BadRequest(f"{value} kHz is outside {low} to {high} kHz", where=attribute)


def _changed(limits: dict[Attribute, int], attribute: Attribute, value: int) -> Value:
    tried = {**limits, attribute: value}
    if tried["freq-min"] > tried["freq-max"]:
        other = limits["freq-max" if attribute == "freq-min" else "freq-min"]
        return Value(trouble=str(BadRequest(f"{value} kHz is beyond the other limit, {other} kHz", where=attribute)))
    limits[attribute] = value
    return Value(value, time.time())


def troubles(names: Sequence[str], values: Sequence[Value]) -> str:
    """Why a node is not as it was asked to be, its attributes called ``names``; empty: it is. The first of two settings
    of the same limit may fail harmlessly: the last one counts."""
    last = {name: value.trouble for name, value in zip(names, values, strict=True)}
    why: dict[str, list[str]] = {}
    for name, trouble in last.items():
        if trouble:
            why.setdefault(trouble, []).append(name)
    return "; ".join(f"{', '.join(names)}: {trouble}" for trouble, names in why.items())
