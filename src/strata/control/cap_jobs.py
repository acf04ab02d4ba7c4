"""Setting the power caps of many nodes as tracked work: what falls goes first, what rises only when all of it fell.

A job survives a restart: setting a cap twice is the same as once. Where a cap that makes room could not be lowered,
none is raised: whoever gave the caps counted on it. Columns learn of every cap that was set.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.control.job_record import Step
from strata.control.service import Service
from strata.core import intset
from strata.core.errors import BadRequest, NotOffered, OutcomeUnknown, StrataError
from strata.hardware.bmc import Controller
from strata.power.capmc.machine import CapChange
from strata.power.columns import PowerColumns

KIND = "power-cap"
SLOTS = 256
"""Controllers that are spoken to at a time."""
PATIENCE = 25.0
"""Seconds that who asked waits; then the job goes on without them."""

_CHUNK = 1000
_HELD_BACK = "not raised: another cap of the same request, which makes room for it, could not be lowered"
_ACCELERATORS = ("gpu", "accel")

Watts = npt.NDArray[np.float64]


class CapJobs:
    """Sets caps through the nodes' controllers."""

    def __init__(self, fleet: Service, open_: Callable[[str], Controller], columns: PowerColumns) -> None:
        self._fleet = fleet
        self._open = open_
        self._columns = columns
        self._limits: dict[tuple[str, str], Sequence[str]] = {}
        """(address, control) → the limits that it is made of: they do not change while a controller lives."""
        self._failures: dict[str, dict[int, str]] = {}
        self._turn = asyncio.Lock()
        """One job after the other, as they were asked for: a scheduler raises once it was told that others fell, or may
        fall yet."""
        fleet.jobs_.register(KIND, self._work)

    async def set_caps(self, author: str, changes: Sequence[CapChange]) -> Mapping[int, str]:
        """Set them; why not, by uid, as far as that is known within ``PATIENCE``."""
        moves = [move for change in changes for move in self._moves(change)]
        moves.sort(key=lambda move: bool(move["rises"]))
        total = sum(len(change.uids) for change in changes)
        ticket = secrets.token_hex(8)
        failures = self._failures[ticket] = {}
        try:
            job = await self._fleet.jobs_.start(KIND, author, total, {"moves": moves, "ticket": ticket})
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._fleet.jobs_.wait(job.id)
            except TimeoutError:
                return dict(failures)
            return failures
        finally:
            del self._failures[ticket]

    def _moves(self, change: CapChange) -> list[dict[str, Any]]:
        """Nodes that get the same cap together, apart by whether it falls or rises."""
        before = self._columns.column("cap" if change.control == "node" else "accel_cap", change.uids)
        free = np.where(np.isnan(before) | (before == 0), np.inf, before)
        rises = np.where(change.watts == 0, np.inf, change.watts) > free
        found = []
        for up in (False, True):
            for watts in np.unique(change.watts[rises == up]).tolist():
                uids = change.uids[(rises == up) & (change.watts == watts)]
                found.append({"control": change.control, "watts": watts, "rises": up, "uids": intset.pack(uids)})
        return found

    async def _work(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        async with self._turn, contextlib.aclosing(self._steps(arguments, position)) as steps:
            async for step in steps:
                yield step

    async def _steps(self, arguments: Mapping[str, Any], position: Any) -> AsyncGenerator[Step, None]:
        told = self._failures.get(arguments["ticket"], {})
        start, refused = position or (0, False)
        uids, watts, control, rises = _flat(arguments["moves"])
        falling = int((~rises).sum())
        begin = start
        while begin < len(uids):
            # A chunk never has both: all that falls has ended before anything rises.
            end = min(begin + _CHUNK, falling if begin < falling else len(uids))
            part = slice(begin, end)
            if begin >= falling and refused:
                failed = dict.fromkeys(uids[part].tolist(), _HELD_BACK)
            else:
                failed = await self._set(uids[part], watts[part], control[part])
                refused = refused or (begin < falling and bool(failed))
            told.update(failed)
            names = self._names(failed)
            yield Step(position=(end, refused), done=end - begin - len(failed), failed=names, durable=refused)
            begin = end

    async def _set(self, uids: npt.NDArray[np.int64], watts: Watts, control: Sequence[str]) -> dict[int, str]:
        nodes = self._fleet.registry.indices_of(uids)
        failed = {int(uid): "it is no more" for uid in uids[nodes < 0].tolist()}
        batch = self._fleet.controller.batch(nodes[nodes >= 0])
        gate = asyncio.Semaphore(SLOTS)

        async def one(uid: int, address: str, value: float, what: str) -> None:
            async with gate:
                try:
                    await self._cap(address, what, value or None)
                except StrataError as error:
                    self._limits.pop((address, what), None)
                    doubt = "not known whether it was done: " if isinstance(error, OutcomeUnknown) else ""
                    failed[uid] = f"{doubt}{error}"

        living = np.flatnonzero(nodes >= 0).tolist()
        places = zip(batch.uids.tolist(), batch.bmcs, living, strict=True)
        await asyncio.gather(*(one(uid, bmc, float(watts[i]), control[i]) for uid, bmc, i in places))
        good = ~np.isin(uids, list(failed))
        now = self._fleet.controller.clock.wall()
        for what, column in (("node", "cap"), ("accel", "accel_cap")):
            done = good & (np.array(control) == what)
            self._columns.put(uids[done], **{column: watts[done], f"{column}_time": now})
        return failed

    async def _cap(self, address: str, control: str, watts: float | None) -> None:
        if not address:
            raise NotOffered("it has no controller's address")
        controller = self._open(address)
        limits = self._limits.get((address, control))
        if limits is None:
            limits = self._limits[address, control] = await _limits(controller, control)
        for limit in limits:
            await controller.set_power_limit(limit, None if watts is None else watts / len(limits))

    def _names(self, failed: Mapping[int, str]) -> list[tuple[str, str]]:
        nodes = self._fleet.registry.indices_of(np.fromiter(failed, np.int64, len(failed)))
        names = self._fleet.registry.names
        return [
            (names[index] if index >= 0 else "", why)
            for index, why in zip(nodes.tolist(), failed.values(), strict=True)
        ]


async def _limits(controller: Controller, control: str) -> Sequence[str]:
    """Which of a controller's limits are the node's (the first), or its accelerators' (all of them, in equal parts)."""
    found = await controller.power_limits()
    accelerators = [one.id for one in found if any(word in f"{one.id} {one.name}".lower() for word in _ACCELERATORS)]
    wanted = accelerators if control == "accel" else [one.id for one in found if one.id not in accelerators][:1]
    if not wanted:
        raise NotOffered(f"it has no {control} cap", node=controller.address)
    return wanted


def _flat(moves: Sequence[Mapping[str, Any]]) -> tuple[npt.NDArray[np.int64], Watts, list[str], npt.NDArray[np.bool_]]:
    """One row for each cap."""
    uids, watts, control, rises = [], [], [], []
    for move in moves:
        if move["control"] not in ("node", "accel"):
            raise BadRequest("not a control", where=str(move["control"])[:40])
        members = intset.unpack(move["uids"])
        uids.append(members)
        watts.append(np.full(len(members), float(move["watts"])))
        control += [str(move["control"])] * len(members)
        rises.append(np.full(len(members), bool(move["rises"])))
    if not uids:
        return np.empty(0, np.int64), np.empty(0), [], np.empty(0, np.bool_)
    return np.concatenate(uids), np.concatenate(watts), control, np.concatenate(rises)
