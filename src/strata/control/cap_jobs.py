"""Setting the power caps of many nodes as tracked work: what falls goes first, what rises only when all of it fell.

A job survives a restart: setting a cap twice is the same as once. Where a cap that makes room could not be lowered,
none is raised: whoever gave the caps counted on it. Where the site has a limit, every cap is booked before it is set
(``CapBooks``), and one for which there is no room yet waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from strata.control.cap_sender import CapSender, Sent, Watts
from strata.control.columns import Mask
from strata.control.job_record import Step
from strata.control.service import Service
from strata.core import intset
from strata.core.errors import BadRequest
from strata.power.capmc.machine import CapChange
from strata.power.columns import PowerColumns, Uids

KIND = "power-cap"
PATIENCE = 25.0
"""Seconds that who asked waits; then the job goes on without them."""
RETRY = 2.0
"""Seconds until a cap for which there was no room is asked for again."""
RAMP_WAIT, LIMIT_WAIT = 1800.0, 90.0
"""Seconds without any cap having been set after which a job gives up: for the ramp, which makes room by itself; and for
the limit, under which others may be on their way down."""

_CHUNK = 1000
_HELD_BACK = "not raised: another cap of the same request, which makes room for it, could not be lowered"
_NO_ROOM = "not set: the site's limit, ramp or band left no room for it"


class CapBooks(Protocol):
    """Who keeps the sum of all caps under the site's limit. Only caps of whole nodes are booked: those of accelerators
    are part of them."""

    def no_room(self, uids: Uids, watts: Watts) -> str:
        """Why these caps (0: none) cannot be, all of them together; empty: they can."""
        ...

    async def book(self, uids: Uids, watts: Watts) -> Mask:
        """Which of these caps may be set now; they are booked then."""
        ...

    def settle(self, uids: Uids, watts: Watts, sent: Sent) -> None:
        """What became of caps that were booked."""
        ...


class CapJobs:
    """Sets caps with ``sender``, as far as ``books`` allow."""

    def __init__(self, fleet: Service, sender: CapSender, columns: PowerColumns, books: CapBooks | None = None) -> None:
        self._fleet = fleet
        self._sender = sender
        self._columns = columns
        self._books = books
        self._open: dict[str, _Told] = {}
        self._turn = asyncio.Lock()
        """One job after the other, as they were asked for: a scheduler raises once it was told that others fell, or may
        fall yet."""
        fleet.jobs_.register(KIND, self._work)

    async def set_caps(self, author: str, changes: Sequence[CapChange]) -> Mapping[int, str]:
        """Set them; why not, by uid. What has not ended within ``PATIENCE`` goes on as a job, and is told as such."""
        moves = [move for change in changes for move in self._moves(change)]
        moves.sort(key=lambda move: bool(move["rises"]))
        total = sum(len(change.uids) for change in changes)
        ticket = secrets.token_hex(8)
        told = self._open[ticket] = _Told(uid for change in changes for uid in change.uids.tolist())
        try:
            job = await self._fleet.jobs_.start(KIND, author, total, {"moves": moves, "ticket": ticket})
            try:
                async with asyncio.timeout(PATIENCE):
                    ended = await self._fleet.jobs_.wait(job.id)
            except TimeoutError:
                return told.failed | dict.fromkeys(
                    told.left, f"not finished after {PATIENCE:.0f} s; it goes on as job {job.id}"
                )
            if told.left and ended.state != "done":
                why = next((detail for node, detail in ended.errors if not node), f"job {job.id} was {ended.state}")
                return told.failed | dict.fromkeys(told.left, why)
            return told.failed
        finally:
            del self._open[ticket]

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
        told = self._open.get(arguments["ticket"], _Told())
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
                failed = {}
                async for waits in self._set(uids[part], watts[part], control[part], failed):
                    if waits:
                        yield Step(position=(begin, refused))  # so that it can be cancelled meanwhile
                refused = refused or (begin < falling and bool(failed))
            told.take(uids[part], failed)
            names = self._names(failed)
            yield Step(position=(end, refused), done=end - begin - len(failed), failed=names, durable=refused)
            begin = end

    async def _set(
        self, uids: Uids, watts: Watts, control: Sequence[str], failed: dict[int, str]
    ) -> AsyncGenerator[bool, None]:
        """Set them, those for which there is no room yet later; yields True while it waits for that."""
        left, controls = np.arange(len(uids)), np.array(control)
        loop = asyncio.get_running_loop()
        since = loop.time()
        while len(left):
            granted = await self._booked(uids[left], watts[left], controls[left])
            now = left[granted]
            if len(now):
                since = loop.time()
                sent = await self._sender.send(uids[now], watts[now], controls[now].tolist())
                failed |= sent.why
                self._settle(uids[now], watts[now], controls[now], sent)
            left = left[~granted]
            if not len(left):
                return
            over = self._books is not None and self._books.no_room(uids[left], watts[left])
            if loop.time() - since > (LIMIT_WAIT if over else RAMP_WAIT):
                failed |= dict.fromkeys(uids[left].tolist(), _NO_ROOM)
                return
            yield True
            await asyncio.sleep(RETRY)

    async def _booked(self, uids: Uids, watts: Watts, controls: npt.NDArray[np.str_]) -> Mask:
        granted = np.ones(len(uids), np.bool_)
        whole = controls == "node"
        if self._books is not None and whole.any():
            granted[whole] = await self._books.book(uids[whole], watts[whole])
        return granted

    def _settle(self, uids: Uids, watts: Watts, controls: npt.NDArray[np.str_], sent: Sent) -> None:
        whole = controls == "node"
        if self._books is not None and whole.any():
            part = Sent(done=sent.done[whole], refused=sent.refused[whole], why={})
            self._books.settle(uids[whole], watts[whole], part)

    def _names(self, failed: Mapping[int, str]) -> list[tuple[str, str]]:
        nodes = self._fleet.registry.indices_of(np.fromiter(failed, np.int64, len(failed)))
        names = self._fleet.registry.names
        return [
            (names[index] if index >= 0 else "", why)
            for index, why in zip(nodes.tolist(), failed.values(), strict=True)
        ]


class _Told:
    """What a job has to tell whoever waits for it."""

    def __init__(self, uids: Iterable[int] = ()) -> None:
        self._left = Counter(uids)
        self.failed: dict[int, str] = {}

    @property
    def left(self) -> list[int]:
        """Uids of which something has not ended."""
        return [uid for uid, count in self._left.items() if count > 0]

    def take(self, uids: Uids, failed: Mapping[int, str]) -> None:
        """These have ended."""
        self._left.subtract(uids.tolist())
        self.failed.update(failed)


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
