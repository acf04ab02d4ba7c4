"""Sets and reads the power caps of many nodes through their BMCs, side by side. Columns learn what was set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import NotOffered, OutcomeUnknown, StrataError
from strata.core.fault_isolation import contained
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.batches import batch_of
from strata.hardware.bmc import caps
from strata.hardware.bmc.protocol import Bmc
from strata.power.telemetry.columns import PowerColumns, Uids

SLOTS = 256
"""BMCs that are spoken to at a time."""

NOT_KNOWN = "not known whether it was done"
"""Begins the words for a cap that may be in force or not."""
_LATE = f"{NOT_KNOWN}: no answer in time"

Watts = npt.NDArray[np.float64]


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of caps, one cell for each. Neither done nor refused: not known."""

    done: Mask
    refused: Mask
    why: Mapping[int, str]
    """By uid, of all that were not done."""


class CapSender:
    """One for a process. ``open_`` opens the BMC at an address."""

    def __init__(self, fleet: Fleet, open_: Callable[[str], Bmc], columns: PowerColumns) -> None:
        self._fleet = fleet
        self._open = open_
        self._columns = columns
        self._limits: dict[tuple[str, str], Sequence[str]] = {}
        """(address, control) → the limits that it is made of: they do not change while a BMC lives."""

    async def send(
        self, uids: Uids, watts: Watts, control: str | Sequence[str], *, within: float | None = None
    ) -> Sent:
        """Set caps (0: take them off); give up what has not ended ``within`` so many seconds."""
        controls = [control] * len(uids) if isinstance(control, str) else control
        done, refused = np.zeros(len(uids), np.bool_), np.zeros(len(uids), np.bool_)
        why: dict[int, str] = {}

        async def one(place: int, address: str) -> None:
            try:
                with contained(address):
                    await self._cap(address, controls[place], float(watts[place]) or None)
                done[place] = True
            except OutcomeUnknown as error:
                why[int(uids[place])] = f"{NOT_KNOWN}: {error}"
            except StrataError as error:
                self._limits.pop((address, controls[place]), None)
                refused[place] = True
                why[int(uids[place])] = str(error)

        there = await self._each(uids, one, within)
        refused[~there] = True
        why |= dict.fromkeys(uids[~there].tolist(), "it is no more")
        open_ = ~(done | refused)
        why |= {uid: _LATE for uid in uids[open_].tolist() if uid not in why}
        now = self._fleet.controller.clock.wall()
        for what, column in (("node", "cap"), ("accel", "accel_cap")):
            told = done & (np.array(controls) == what)
            self._columns.put(uids[told], **{column: watts[told], f"{column}_time": now})
        return Sent(done=done, refused=refused, why=why)

    async def read(self, uids: Uids, *, within: float = 20.0) -> Watts:
        """The caps of nodes as they say themselves: 0 without one, NaN where there is no answer."""
        found = np.full(len(uids), np.nan)

        async def one(place: int, address: str) -> None:
            try:
                with contained(address):
                    limits = await self._open(address).power_limits() if address else ()
                    own = caps.whole(limits, address)
            except StrataError:
                return
            if own is not None:
                found[place] = own.watts or 0.0

        await self._each(uids, one, within)
        return found

    async def _each(self, uids: Uids, one: Callable[[int, str], Awaitable[None]], within: float | None) -> Mask:
        """Do ``one`` (place in ``uids``, address of the BMC) for all nodes that there are, some at a time. What takes
        longer is ended, and so is all of it if nobody waits any more. Which nodes there are."""
        nodes, gate = self._fleet.registry.indices_of(uids), asyncio.Semaphore(SLOTS)
        living = np.flatnonzero(nodes >= 0)
        batch = batch_of(self._fleet.registry, nodes[living])

        async def turn(place: int, address: str) -> None:
            async with gate:
                await one(place, address)

        tasks = [asyncio.create_task(turn(*pair)) for pair in zip(living.tolist(), batch.bmcs, strict=True)]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=within)
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
        there: Mask = nodes >= 0
        return there

    async def _cap(self, address: str, control: str, watts: float | None) -> None:
        if not address:
            raise NotOffered("it has no BMC's address")
        bmc = self._open(address)
        limits = self._limits.get((address, control))
        if limits is None:
            limits = self._limits[address, control] = await _limits(bmc, control)
        for limit in limits:
            await bmc.set_power_limit(limit, None if watts is None else watts / len(limits))


async def _limits(bmc: Bmc, control: str) -> Sequence[str]:
    """Which of a BMC's limits are the node's, or its accelerators' (all of them, in equal parts)."""
    found = await bmc.power_limits()
    node = None if control == "accel" else caps.whole(found, bmc.address)
    wanted = caps.accelerators(found) if control == "accel" else [node] if node else []
    if not wanted:
        raise NotOffered(f"it has no {control} cap", node=bmc.address)
    return [one.id for one in wanted]
