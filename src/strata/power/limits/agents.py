"""Limits that nodes' kernels keep, set by the agents on them: ``Inband`` over one command to an agent.

The command is ``limits`` with any of ``min_khz``, ``max_khz`` and ``cstate_max`` (none of them: change nothing); its
result is what is in force afterwards. What an agent tells is looked at as anything from outside is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from strata.core.errors import DeviceError, StrataError
from strata.core.fault_isolation import contained
from strata.power.limits.inband import Answers, Attribute, Change, Value

SLOTS = 256
"""Agents that are asked at a time."""
_KEYS: Mapping[Attribute, str] = {
    "freq": "khz",
    "freq-min": "min_khz",
    "freq-max": "max_khz",
    "sleep-limit": "cstate_max",
}
_MOST = 10**9
_STATES = 64
_CLOCKS = 256

Told = Mapping[str, Any]
Command = Callable[[str, Mapping[str, int]], Awaitable[Told]]
"""``command(node, limits)``: what is in force afterwards. Raises an error of ours where that cannot be had."""


class AgentNodes:
    """Implements ``strata.power.limits.inband.Inband``."""

    def __init__(self, command: Command) -> None:
        self._command = command

    async def choices(self, names: Sequence[str], attribute: Attribute) -> Mapping[str, Sequence[int] | StrataError]:
        """The clocks that the processors have (the two ends of a range without steps), or the sleep states."""

        async def one(name: str) -> Sequence[int]:
            told = await self._command(name, {})
            if attribute == "sleep-limit":
                deepest = max(_number(told, "cstates", _STATES) or 0, (_number(told, "cstate_max", _STATES) or 0) + 1)
                return list(range(deepest))
            for key, most in (("available_khz", _CLOCKS), ("hardware_khz", 2)):
                clocks = told.get(key)
                if isinstance(clocks, list) and 0 < len(clocks) <= most and all(_sound(khz, _MOST) for khz in clocks):
                    return sorted(set(clocks))
            raise DeviceError("its agent does not report the frequency range of its processors", node=name)

        return await _each(names, one)

    async def get(self, names: Sequence[str], attributes: Sequence[Attribute]) -> Answers:
        """What the attributes are."""

        async def one(name: str) -> Sequence[Value]:
            told, now = await self._command(name, {}), time.time()
            return [_value(told, attribute, now) for attribute in attributes]

        return await _each(names, one)

    async def set(self, names: Sequence[str], changes: Sequence[Change]) -> Answers:
        """All changes of a node together: the agent sets both ends of a range in the order in which they fit."""
        wanted = {_KEYS[attribute]: value for attribute, value in changes if attribute != "freq"}

        async def one(name: str) -> Sequence[Value]:
            try:
                await self._command(name, wanted)
            except DeviceError as error:
                return [Value(trouble=str(error))] * len(changes)
            now, no = time.time(), "the frequency itself cannot be set, only its limits"
            return [Value(trouble=no) if what == "freq" else Value(value, now) for what, value in changes]

        return await _each(names, one)


async def _each(names: Sequence[str], one: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    gate = asyncio.Semaphore(SLOTS)

    async def asked(name: str) -> Any:
        async with gate:
            try:
                with contained(name, whom="its agent"):
                    return await one(name)
            except StrataError as error:
                return error

    return dict(zip(names, await asyncio.gather(*map(asked, names)), strict=True))


def _value(told: Told, attribute: Attribute, now: float) -> Value:
    found = _number(told, _KEYS[attribute], _MOST)
    return Value(trouble="it does not tell") if found is None else Value(found, now)


def _number(told: Told, key: str, most: int) -> int | None:
    value = told.get(key)
    return value if _sound(value, most) else None


def _sound(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
