"""Asks the BMCs of nodes for their power one by one, many at a time. Whoever does not answer holds up nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from strata.core.errors import NotOffered, StrataError
from strata.core.fault_isolation import contained
from strata.fleet.tasks import all_cancelled
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.pace import Pace
from strata.power.telemetry.collector import NOBODY, Look, Nodes, looks_of
from strata.power.telemetry.redfish import Plan, make_plan, read_plan
from strata.power.telemetry.values import Values, from_readings


class AskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How hard BMCs are asked. Times in seconds."""

    at_once: int = 128
    """BMCs asked at a time."""
    patience: float = 0.25
    """One that takes longer gives its place to the next (and goes on)."""
    patience_first: float = 2.5
    """The same for one that is looked at for the first time: to find out what it tells takes some ten requests."""
    at_most: int = 4096
    """Under way, the slow ones included."""
    probes: int = 512
    """Silent BMCs whose time has come that are tried in one sweep."""
    slow_every: int = 2
    """Temperatures are read in every so many sweeps."""
    again: float = 3600.0
    """Until a BMC that tells nothing of power is looked at again."""
    anew: float = 86_400.0
    """Until it is found out again what a BMC tells: it may have new firmware, or new parts."""


class _Known(msgspec.Struct, eq=False):
    """What is remembered of one BMC."""

    plan: Plan | None
    found: float
    sweeps: int = 0
    behind: float | None = None
    """Seconds from the BMC's time of a reading until it is here, at best: by how much its clock is behind ours."""

    def here(self, read_at: float, now: float) -> float:
        """When that was by our clock. The quickest answer of all says how its clock stands to ours; one that was set
        meanwhile is learned anew."""
        behind = now - read_at
        if self.behind is None or not 0.0 <= behind - self.behind <= RESET:
            self.behind = behind
        return read_at + self.behind


RESET = 120.0
"""Seconds: a reading that seems to be so old is one of a clock that was set."""


class NodeSource:
    """Reads nodes through ``bmcs``, which are the caller's to close."""

    def __init__(
        self,
        bmcs: Bmcs,
        *,
        settings: AskSettings | None = None,
        describe: Callable[[int, str], None] = lambda uid, kind: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``describe(uid, kind)`` hears what machine a node is, when that is found out."""
        self._describe = describe
        self.lost = 0
        """Looks at a node that came to nothing."""
        self._bmcs = bmcs
        self._settings = settings or AskSettings()
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._others: dict[str, float] = {}
        """Of other protocols, those that tell nothing of power, and until when that is believed."""
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._uids: tuple[Nodes, dict[str, int]] = (NOBODY, {})
        told = self._settings
        self._pace = Pace(at_once=told.at_once, patience=told.patience, at_most=told.at_most)
        self._first = Pace(at_once=told.at_once, patience=told.patience_first, at_most=told.at_most)
        self._seen: list[tuple[float, int, Values]] = []
        self._next = 0

    async def close(self) -> None:
        tasks = list(self._busy.values())
        await all_cancelled(tasks)

    def reported(self, addresses: Sequence[str], report: Mapping[str, object]) -> int:
        """A metric report that a BMC sent by itself, for the nodes at ``addresses``; of how many it told."""
        told = 0
        for address in addresses:
            known, uid = self._known.get(address), self._uids[1].get(address)
            if known is None or known.plan is None or uid is None:
                continue
            try:
                with contained(address):
                    values = known.plan.of_report(dict(report))
            except StrataError:
                continue
            values.pop("air", None)
            if values:
                self._seen.append((self._clock(), uid, values))
                told += 1
        return told

    async def look(self, nodes: Nodes, limit: float) -> Sequence[Look]:
        """Ask all that are not still being asked."""
        if self._uids[0] is not nodes:
            self._uids = (nodes, dict(zip(nodes.bmcs, nodes.uids.tolist(), strict=True)))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        begun: list[asyncio.Task[None]] = []
        silent: list[int] = []
        uids, count = nodes.uids.tolist(), len(nodes.bmcs)
        first, self._next = self._next % max(count, 1), 0
        for turn in range(count):
            place = (first + turn) % count
            if loop.time() > deadline:
                self._next = place  # too many for the time: the next sweep begins with those that were left out
                break
            dead = self._bmcs.is_due(nodes.bmcs[place])
            if dead:
                silent.append(place)
            elif dead is False and (task := await self._begin(uids[place], nodes.bmcs[place])):
                begun.append(task)
        for place in silent[: self._settings.probes]:  # last, and nobody waits for them
            await self._begin(uids[place], nodes.bmcs[place])
        left = deadline - loop.time()
        if begun and left > 0:
            await asyncio.wait(begun, timeout=left)
        seen, self._seen = self._seen, []
        return looks_of(seen)

    async def _begin(self, uid: int, address: str) -> asyncio.Task[None] | None:
        """Ask one as soon as there is room; None: it is still being asked."""
        if uid in self._busy:
            return None
        place = await (self._pace if address in self._known else self._first).place()
        task = self._busy[uid] = asyncio.get_running_loop().create_task(self._ask(uid, address))
        task.add_done_callback(place.leaves)
        task.add_done_callback(lambda _: self._busy.pop(uid, None))
        return task

    async def _ask(self, uid: int, address: str) -> None:
        try:
            with contained(address):
                values, read_at = await self._read(uid, address)
        except StrataError as error:
            self.lost += 1
            self._bmcs.failed(address, error)
            return
        self._bmcs.answered(address)
        if values:
            now, known = self._clock(), self._known.get(address)
            self._seen.append((now if read_at is None or known is None else known.here(read_at, now), uid, values))

    async def _read(self, uid: int, address: str) -> tuple[Values, float | None]:
        now = self._bmcs.clock()
        if not address.startswith(("http://", "https://")):
            if now < self._others.get(address, 0.0):
                return {}, None
            try:
                values = from_readings(await self._bmcs.open(address).readings())
            except NotOffered:
                values = {}
            if not values:
                self._others[address] = now + self._settings.again
            return values, None
        client = self._bmcs.redfish
        target = client.target(address)
        known = self._known.get(address)
        age = now - known.found if known else 0.0
        if known is None or age > (self._settings.anew if known.plan else self._settings.again):
            try:
                plan: Plan | None = await make_plan(client, target)
            except NotOffered:
                plan = None
            known = self._known[address] = _Known(plan, now)
            if plan is not None and plan.kind:
                self._describe(uid, plan.kind)
        if known.plan is None:
            return {}, None
        slow = known.sweeps % self._settings.slow_every == 0
        found = await read_plan(client, target, known.plan, slow=slow)
        known.sweeps += 1
        return found
