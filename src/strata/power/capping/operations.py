"""Setting the power caps of many nodes as tracked work: what falls goes first, what rises only when all of it fell.

It survives a restart: setting a cap twice is the same as once. Where a cap that makes room could not be lowered,
none is raised: whoever gave the caps counted on it. Where the site has a limit, every cap is booked before it is set
(``SitePower.book``), and one for which there is no room yet waits, or goes up in steps; others go on meanwhile
(``CapOrder``). A job looks whether it was cancelled after every wait, before it does anything more. A node that is
frozen when its turn comes is left alone: a cap that it was to fall to makes no room.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.distinct import distinct
from strata.core.errors import BadRequest, Conflict, NotFound
from strata.core.nodeset import fold
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Step
from strata.power.capping.order import CapOrder, Rows, Turn
from strata.power.capping.sender import NOT_KNOWN, CapSender, Sent, Watts
from strata.power.capping.terms import CapChange
from strata.power.site.site import SitePower
from strata.power.telemetry.columns import PowerColumns, Uids

KIND = "power-cap"
PATIENCE = 20.0
"""Seconds that who asked waits; then the operation goes on without them. Slurm gives a request 30, in which the command
starts, and what it asks is checked, booked and kept, on a machine that may be busy."""
RETRY = 2.0
"""Seconds until a cap for which there was no room is asked for again."""
RAMP_WAIT, LIMIT_WAIT = 1800.0, 90.0
"""Seconds without any cap having been set after which a job gives up: for the ramp, which makes room by itself; and for
the limit, under which others may be on their way down."""
OVERTAKEN = "not set: a later request gave the node another cap"
FROZEN = "frozen: nothing is started until a person lifts it"

_CHUNK = 1000
_AUDITED = 1000  # characters of a list of nodes in the audit log
_HELD_BACK = "not raised: another cap of the same request, which makes room for it, could not be lowered"
_NO_ROOM = "not set: the site's limit, ramp or band left no room for it"


async def unfinished(fleet: Fleet, kind: str, author: str, total: int, arguments: Mapping[str, Any]) -> str:
    """Start an operation and wait for it, at most ``PATIENCE``: why what has not ended by then has not; empty: it is
    done."""
    job = await fleet.operations.start(kind, author, total, arguments)
    try:
        async with asyncio.timeout(PATIENCE):
            ended = await fleet.operations.wait(job.id)
    except TimeoutError:
        return f"not finished after {PATIENCE:.0f} s; it goes on as operation {job.id}"
    if ended.state == "done":
        return ""
    return next((one.detail for one in ended.errors if not one.node), f"operation {job.id} was {ended.state}")


class Became(NamedTuple):
    """What became of caps that were asked for."""

    failed: Mapping[int, str]
    """Why not, by uid: refused, or not known, or not ended yet."""
    unsure: frozenset[int]
    """Those of them that may be set yet, or may have been."""


class CapOperations:
    """Sets caps with ``sender``, as far as the ``site``'s limit allows."""

    def __init__(self, fleet: Fleet, sender: CapSender, columns: PowerColumns, site: SitePower | None = None) -> None:
        self._fleet = fleet
        self._sender = sender
        self._columns = columns
        self._site = site
        self._open: dict[str, _Told] = {}
        self._order = CapOrder()
        fleet.operations.register(KIND, self._work)
        self.read = self._sender.read
        """The caps of nodes as they say themselves: 0 without one, NaN where there is no answer."""

    async def set_caps(self, author: str, changes: Sequence[CapChange]) -> Mapping[int, str]:
        """Set them; why not, by uid. What has not ended within ``PATIENCE`` goes on as an operation, and is told so."""
        return (await self.ask_for(author, changes)).failed

    async def ask_for(self, author: str, changes: Sequence[CapChange]) -> Became:
        """The same, for who has to know what is not decided yet."""
        moves = [move for change in changes for move in self._moves(change)]
        moves.sort(key=lambda move: bool(move["rises"]))
        total = sum(len(change.uids) for change in changes)
        ticket = secrets.token_hex(8)
        arguments = {"moves": moves, "ticket": ticket, "asked": time.time()}
        await self._audit(author, changes, moves)
        told = self._open[ticket] = _Told(uid for change in changes for uid in change.uids.tolist())
        try:
            why = await unfinished(self._fleet, KIND, author, total, arguments)
            left = told.left if why else []
            unsure = {uid for uid, words in told.failed.items() if words.startswith(NOT_KNOWN)}
            return Became(told.failed | dict.fromkeys(left, why), frozenset(unsure.union(left)))
        finally:
            del self._open[ticket]

    async def under_way(self, author: str, uids: Iterable[int]) -> list[str]:
        """The operations of somebody that set caps of any of these nodes and are not over."""
        those = np.fromiter(uids, np.int64)
        if not len(those):
            return []
        found = await self._fleet.operations.recent(limit=2**31)
        mine = [one for one in found if (one.kind, one.author) == (KIND, author) and not one.over]
        return [one.id for one in mine if np.isin(_flat(one.arguments["moves"]).uids, those).any()]

    async def withdraw(self, author: str, uids: Iterable[int]) -> bool:
        """Have them set no more; whether all of them are over."""
        those = list(uids)
        for ident in await self.under_way(author, those):
            with contextlib.suppress(Conflict, NotFound):  # it is over already
                await self._fleet.operations.cancel(ident, author)
                await self._fleet.operations.wait(ident)
        return not await self.under_way(author, those)

    # -- what whoever asks has to know first

    @property
    def here(self) -> bool:
        """Whether this controller is the one that sets caps for all."""
        return self._site is None or self._site.leads

    def set_by(self) -> str:
        """Why caps are nobody's to ask for; empty: they may be asked for."""
        return "" if self._site is None else self._site.set_by()

    def no_room(self, uids: Uids, watts: Watts) -> str:
        """Why the site cannot have nodes at these caps (0: none), all of them together; empty: it can."""
        return "" if self._site is None else self._site.no_room(uids, watts)

    def least(self, uids: Uids) -> Watts:
        """The lowest caps that nodes take; NaN: nobody knows."""
        return self._columns.column("least", uids)

    def most(self, uids: Uids) -> Watts:
        """What nodes draw without a cap; NaN: nobody knows."""
        return self._columns.column("most", uids)

    async def _audit(self, author: str, changes: Sequence[CapChange], moves: Sequence[Mapping[str, Any]]) -> None:
        """Have it on record which nodes are to get which caps."""
        uids = distinct(np.concatenate([change.uids for change in changes]))
        caps = ""
        for move in moves:
            watts = f"{move['watts']:g} W" if move["watts"] else "none"
            caps += f"{'; ' if caps else ''}{move['control']} {watts}: {self._folded(intset.unpack(move['uids']))}"
            if len(caps) > _AUDITED:
                break
        detail = {"caps": caps[:_AUDITED], "nodes": len(uids)}
        await self._fleet.ledger.commit(author, "caps.set", self._folded(uids), [], None, detail)

    def _folded(self, uids: Uids) -> str:
        nodes = self._fleet.registry.indices_of(uids)
        return fold(self._fleet.view.names(nodes[nodes >= 0]))[:_AUDITED]

    def _moves(self, change: CapChange) -> list[dict[str, Any]]:
        """Nodes that get the same cap together, apart by whether it falls or rises."""
        before = self._columns.column("cap" if change.control == "node" else "accel_cap", change.uids)
        free = np.where(np.isnan(before) | (before == 0), np.inf, before)
        rises = np.where(change.watts == 0, np.inf, change.watts) > free
        found = []
        for up in (False, True):
            for watts in distinct(change.watts[rises == up]).tolist():
                uids = change.uids[(rises == up) & (change.watts == watts)]
                found.append({"control": change.control, "watts": watts, "rises": up, "uids": intset.pack(uids)})
        return found

    async def _work(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        told = self._open.get(arguments["ticket"], _Told())
        begin, refused, *more = position or (0, False)
        caps = _flat(arguments["moves"])
        falling = int((~caps.rises).sum())
        overtaken = intset.unpack(more[0] if more else ())
        turn = Turn(arguments.get("asked", 0.0), caps.uids, caps.accel, caps.rises, overtaken)
        turn.open[:begin] = False
        with self._order.entered(turn):
            while begin < len(caps.uids):
                # A chunk never has both: all that falls has ended before anything rises.
                end = min(begin + _CHUNK, falling if begin < falling else len(caps.uids))
                rows = np.arange(begin, end)
                failed: dict[int, str] = {}
                if begin >= falling and refused:
                    failed = dict.fromkeys(caps.uids[rows].tolist(), _HELD_BACK)
                    turn.open[rows] = False
                    told.take(caps.uids[rows], failed)
                else:
                    async with contextlib.aclosing(self._set(turn, caps, rows, failed, told)) as waits:
                        async for _ in waits:
                            # Durable, so that a cancel is heard of wherever it was asked for.
                            yield Step(position=_position(begin, refused, turn), durable=True)
                    refused = refused or (begin < falling and self._missing(caps, rows, failed))
                names = self._names(failed)
                done = end - begin - len(failed)
                yield Step(position=_position(end, refused, turn), done=done, failed=names, durable=refused)
                begin = end

    async def _set(
        self, turn: Turn, caps: _Caps, rows: Rows, failed: dict[int, str], told: _Told
    ) -> AsyncGenerator[None, None]:
        """Set them, those later whose time has not come or for which there is no room yet; yields after each wait."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        left = rows
        while True:
            late = left[turn.overtaken[left]]
            failed |= told.take(caps.uids[late], dict.fromkeys(caps.uids[late].tolist(), OVERTAKEN))
            left = left[turn.open[left]]
            frozen = left[self._frozen(caps.uids[left])]
            failed |= told.take(caps.uids[frozen], dict.fromkeys(caps.uids[frozen].tolist(), FROZEN))
            turn.open[frozen] = False
            left = left[turn.open[left]]
            if not len(left):
                return
            turn.stuck = False
            mine = self._order.claim(turn, left)
            set_, ended = left[:0], left[:0]
            try:
                set_, ended, why = await self._act(caps, mine)
                failed |= told.take(caps.uids[ended], why)
            finally:
                self._order.give_back(turn, mine, ended)
            left = left[turn.open[left] | turn.overtaken[left]]
            if not turn.open[left].any():
                continue
            turn.stuck = len(ended) < len(mine)
            if len(set_) or not turn.stuck:
                since = loop.time()
            over = self._site is not None and self._site.no_room(caps.uids[left], caps.watts[left])
            if loop.time() - since > (LIMIT_WAIT if over else RAMP_WAIT):
                failed |= told.take(caps.uids[left], dict.fromkeys(caps.uids[left].tolist(), _NO_ROOM))
                turn.open[left] = False
                return
            await self._order.change(RETRY)
            yield

    async def _act(self, caps: _Caps, rows: Rows) -> tuple[Rows, Rows, Mapping[int, str]]:
        """Set what may be set now: which were set to anything; which are over, and why not, of those that failed."""
        if not len(rows):
            return rows, rows, {}
        granted = await self._booked(caps, rows)
        some = ~np.isnan(granted)
        rows, granted = rows[some], granted[some]
        if not len(rows):
            return rows, rows, {}
        uids, accel = caps.uids[rows], caps.accel[rows]
        sent = await self._sender.send(uids, granted, np.where(accel, "accel", "node").tolist())
        self._settle(uids, granted, ~accel, sent)
        return rows, rows[~sent.done | (granted == caps.watts[rows])], sent.why

    def _frozen(self, uids: Uids) -> Mask:
        nodes = self._fleet.registry.indices_of(uids)
        mask: Mask = nodes >= 0
        mask[mask] = self._fleet.registry.brakes.frozen[nodes[mask]]
        return mask

    def _missing(self, caps: _Caps, rows: Rows, failed: Mapping[int, str]) -> bool:
        """Whether one of these that failed was to make room; a frozen node that has its cap already was not."""
        frozen = [uid for uid, why in failed.items() if why == FROZEN]
        rows = rows[np.isin(caps.uids[rows], frozen)]
        whole, accel = (self._columns.column(name, caps.uids[rows]) for name in ("cap", "accel_cap"))
        now = np.where(caps.accel[rows], accel, whole)
        return len(frozen) < len(failed) or bool((now != caps.watts[rows]).any())

    async def _booked(self, caps: _Caps, rows: Rows) -> Watts:
        """Caps of whole nodes only: those of accelerators are part of them."""
        granted = caps.watts[rows].copy()
        whole = ~caps.accel[rows]
        if self._site is not None and whole.any():
            granted[whole] = await self._site.book(caps.uids[rows[whole]], caps.watts[rows[whole]])
        return granted

    def _settle(self, uids: Uids, watts: Watts, whole: Mask, sent: Sent) -> None:
        if self._site is not None and whole.any():
            part = Sent(done=sent.done[whole], refused=sent.refused[whole], why={})
            self._site.settle(uids[whole], watts[whole], part)

    def _names(self, failed: Mapping[int, str]) -> list[tuple[str, str]]:
        nodes = self._fleet.registry.indices_of(np.fromiter(failed, np.int64, len(failed)))
        names = self._fleet.registry.names
        return [
            (names[index] if index >= 0 else "", why)
            for index, why in zip(nodes.tolist(), failed.values(), strict=True)
        ]


class _Told:
    """What an operation has to tell whoever waits for it."""

    def __init__(self, uids: Iterable[int] = ()) -> None:
        self._left = Counter(uids)
        self.failed: dict[int, str] = {}

    @property
    def left(self) -> list[int]:
        """Uids of which something has not ended."""
        return [uid for uid, count in self._left.items() if count > 0]

    def take(self, uids: Uids, failed: Mapping[int, str]) -> Mapping[int, str]:
        """These have ended; ``failed`` of them."""
        self._left.subtract(uids.tolist())
        self.failed.update(failed)
        return failed


class _Caps(NamedTuple):
    """One row for each cap."""

    uids: npt.NDArray[np.int64]
    watts: Watts
    accel: Mask
    rises: Mask


def _flat(moves: Sequence[Mapping[str, Any]]) -> _Caps:
    parts = [_Caps(np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_), np.empty(0, np.bool_))]
    for move in moves:
        if move["control"] not in ("node", "accel"):
            raise BadRequest("not a control", where=str(move["control"])[:40])
        uids = intset.unpack(move["uids"])
        values = (float(move["watts"]), move["control"] == "accel", bool(move["rises"]))
        parts.append(_Caps(uids, *(np.full(len(uids), value) for value in values)))
    return _Caps(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _position(begin: int, refused: bool, turn: Turn) -> tuple[int, bool, intset.Runs]:
    """Where a successor goes on; it drops what was overtaken."""
    return begin, refused, intset.pack(np.flatnonzero(turn.overtaken))
