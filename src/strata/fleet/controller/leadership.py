"""Who leads which part of the fleet: shards by lease, with an epoch that only grows.

Each controller has one lease. A shard's leader is whoever holds ``shard/<n>`` under its lease; the revision at which it
took it is the *epoch*, the upper half of every fence. A controller believes that it leads only until its lease could
have run out, counted on its own monotonic clock from before the renewal was sent; so two never believe it at once for
longer than a request takes, and fences settle the rest.

What only one controller does is a *duty*, held in the same way by one of those that can do it: not every controller has
every layer, and whoever leads a shard need not have the one that carries rollouts on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from strata.core.errors import Conflict, StrataError
from strata.fleet.settings import LeadershipSettings
from strata.store.protocol import Delete, Put, Store

log = logging.getLogger(__name__)

MEMBER = "controller/"
"""Keys of the controllers that are there."""
SHARDS = "shards"
"""The key of how many parts the fleet is divided into."""

DUTY = "duty/"
"""Keys of who does what only one controller does."""
BATON = "baton"
"""The key of who may use what the shares of a budget leave over."""

BATON_TIME = 10.0
"""Seconds after which it is passed on."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds a shard: a controller's name, and which start of it."""

    controller: str
    instance: str


class Duty:
    """Something that only one controller does, of those that can."""

    def __init__(self, leadership: Leadership, name: str) -> None:
        self._leadership = leadership
        self._name = name

    @property
    def here(self) -> bool:
        """Whether this controller does it now."""
        return self._leadership.does(self._name)

    @property
    def by(self) -> str:
        """The controller that does it, as last seen; empty: nobody, or nobody knows."""
        return self._leadership.doers.get(self._name, "")


class Leadership:
    """Keeps this controller's share of the shards.

    ``gained(shards: {shard: epoch})`` is awaited before the shards count as led; ``lost(shards)`` is called the moment
    that they must not be acted for any more; ``moved()`` when the baton came to us, or left us; ``quiet()`` returns
    once all that was decided before is written down; ``reached(revision)`` once the view holds all up to it.
    """

    def __init__(
        self,
        store: Store,
        settings: LeadershipSettings,
        me: Holder,
        clock: Callable[[], float],
        *,
        gained: Callable[[dict[int, int]], Awaitable[None]],
        lost: Callable[[list[int]], None],
        moved: Callable[[], None],
        quiet: Callable[[], Awaitable[None]],
        reached: Callable[[int], Awaitable[None]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._me = me
        self._clock = clock
        self._gained = gained
        self._lost = lost
        self._moved = moved
        self._quiet = quiet
        self._reached = reached
        self._baton_since = 0.0
        self._lease = 0
        self._valid_until = -math.inf
        self._poke = asyncio.Event()
        self._announced: dict[str, bytes] = {}
        self._written: tuple[int, dict[str, bytes]] = (0, {})
        self.baton = False
        """Whether we may use what is left over. Passing it on comes after everything that we did with it, in the
        store's order; so the next one knows of all that."""
        self.epochs: dict[int, int] = {}
        """Shards that we lead, and since which revision."""
        self.since: dict[int, float] = {}
        """Since when we lead them, on the clock."""
        self._duties: dict[str, int] = {}
        """Duties that we can do → since which revision we do it; 0: we do not."""
        self._doers: dict[str, str] = {}
        self._holders: dict[int, tuple[str, int]] = {}
        self._holders_seen = -math.inf

    @property
    def valid_until(self) -> float:
        """Nothing may be begun after this, on the clock."""
        return self._valid_until

    @property
    def holders(self) -> Mapping[int, tuple[str, int]]:
        """Every shard's leader and epoch, as last seen. Empty where that is longer ago than a lease lasts: nobody can
        know any more."""
        return self._holders if self._clock() < self._holders_seen + self._settings.lease else {}

    @property
    def doers(self) -> Mapping[str, str]:
        """Who does each duty, as last seen. Empty like ``holders``."""
        return self._doers if self._clock() < self._holders_seen + self._settings.lease else {}

    def duty(self, name: str) -> Duty:
        """Say that this controller can do something that only one does: it will, whenever nobody else does."""
        self._duties.setdefault(name, 0)
        self.poke()
        return Duty(self, name)

    def does(self, duty: str) -> bool:
        """Whether this controller does it, for as long as its lease lasts."""
        return self._duties.get(duty, 0) > 0 and self._clock() < self._valid_until

    @property
    def seen(self) -> float:
        """When it was last seen who leads, on the clock: what others lead is known up to then."""
        return self._holders_seen

    def poke(self) -> None:
        """Something about the leaders changed: look now rather than at the next renewal."""
        self._poke.set()

    def announce(self, key: str, value: bytes) -> None:
        """Keep a record in the store for as long as this controller is there."""
        self._announced[key] = value
        self.poke()

    async def agree(self) -> None:
        """See that all controllers divide the fleet alike, before this one leads any part of it: under different
        numbers a node would have two leaders, or none. ``Conflict`` if they do not."""
        self._lease = await self._store.grant(self._settings.lease)
        await self._members()  # before looking: of two that come at once with different numbers, one sees the other
        while True:
            found = await self._store.get(SHARDS)
            told = msgspec.msgpack.decode(found.value, type=int) if found is not None else 0
            if told == self._settings.shards:
                return
            others = [name for name in await self._members() if name != self._me.controller]
            if told and others:
                await self.resign()
                raise Conflict(
                    f"the other controllers ({', '.join(others)}) divide the fleet into {told} shards, "
                    f"this one into {self._settings.shards}",
                    where="leadership.shards",
                    hint=f"start it with --set leadership.shards={told}; to change that, stop all controllers first",
                )
            value = msgspec.msgpack.encode(self._settings.shards)
            with contextlib.suppress(Conflict):  # somebody was faster: look again
                await self._store.txn([Put(SHARDS, value)], expect={SHARDS: found.modified if found else 0})

    async def run(self) -> None:
        """Renew and take what is free, until cancelled."""
        while True:
            try:
                await self._tick()
            except StrataError as error:
                log.warning("leadership not renewed", extra={"error": str(error)})
            wait: float = self._settings.renew_every
            if self.epochs:
                wait = min(wait, max(0.0, self._valid_until - self._clock()))
            try:
                async with asyncio.timeout(wait):
                    await self._poke.wait()
                    self._poke.clear()
            except TimeoutError:
                pass
            self.lapse()

    def lapse(self) -> None:
        """Stop leading if the lease may have run out. Whoever may have slept asks this before it believes anything."""
        if self.epochs and self._clock() >= self._valid_until:
            log.warning("leadership lost: the lease could not be renewed in time")
            self._drop(list(self.epochs))

    async def resign(self) -> None:
        """Give everything back at once, for a fast takeover."""
        self._drop(list(self.epochs))
        self._duties = dict.fromkeys(self._duties, 0)
        if self._lease:
            await self._store.revoke(self._lease)
            self._lease = 0

    def _drop(self, shards: list[int]) -> None:
        if len(shards) == len(self.epochs):
            self._set_baton(False)
        for shard in shards:
            self.epochs.pop(shard, None)
            self.since.pop(shard, None)
        if shards:
            self._lost(shards)

    async def _tick(self) -> None:
        sent = self._clock()
        if not self._lease or not await self._store.renew(self._lease):
            self._drop(list(self.epochs))
            self._duties = dict.fromkeys(self._duties, 0)
            self._lease = await self._store.grant(self._settings.lease)
        self._valid_until = sent + self._settings.lease
        members = await self._members()
        shards = await self._store.range("shard/")
        held: dict[int, tuple[Holder, int]] = {}
        for entry in shards.entries:
            held[int(entry.key.removeprefix("shard/"))] = (
                msgspec.msgpack.decode(entry.value, type=Holder),
                entry.modified,
            )
        self._holders = {shard: (holder.controller, epoch) for shard, (holder, epoch) in held.items()}
        self._holders_seen = sent
        stolen = [s for s, epoch in self.epochs.items() if s not in held or held[s][1] != epoch]
        if stolen:
            log.warning("shards were taken over", extra={"shards": len(stolen)})
            self._drop(stolen)
        share = math.ceil(self._settings.shards / max(1, len(members)))
        await self._take_duties()
        await self._give_back(share)
        await self._take(share, held)
        await self._pass_baton(members)

    async def _members(self) -> list[str]:
        """The controllers that are there, ourselves among them."""
        mine = f"{MEMBER}{self._me.controller}"
        entries = {entry.key: entry for entry in (await self._store.range(MEMBER)).entries}
        if mine not in entries or entries[mine].lease != self._lease:
            await self._store.txn([Put(mine, self._value(), self._lease)])
        wanted = (self._lease, dict(self._announced))
        if wanted != self._written and self._announced:
            try:
                await self._store.txn([Put(key, value, self._lease) for key, value in self._announced.items()])
                self._written = wanted
            except StrataError as error:  # whom the others do not find can lead all the same
                log.warning("the other controllers are not told", extra={"error": str(error)})
        return sorted(key.removeprefix(MEMBER) for key in {*entries, mine})

    async def _give_back(self, share: int) -> None:
        extra = sorted(self.epochs)[share:]
        if not extra:
            return
        expect = {shard_key(shard): self.epochs[shard] for shard in extra}
        self._drop(extra)
        await self._quiet()
        try:
            await self._store.txn([Delete(key) for key in expect], expect=expect)
        except Conflict:
            log.info("shards to give back were gone already")

    async def _take(self, share: int, held: dict[int, tuple[Holder, int]]) -> None:
        gained: dict[int, int] = {}
        for shard in range(self._settings.shards):
            if len(self.epochs) + len(gained) >= share:
                break
            if shard in self.epochs:
                continue
            expected = 0
            if shard in held:
                holder, modified = held[shard]
                # Under our own name: taken by our last start, which is gone (fences hold it off if it is not), or by
                # us in a request whose answer was lost.
                if holder.controller != self._me.controller:
                    continue
                expected = modified
            try:
                gained[shard] = await self._store.txn(
                    [Put(shard_key(shard), self._value(), self._lease)], expect={shard_key(shard): expected}
                )
            except Conflict:
                continue  # another was faster
        await self._let_go(
            {shard: epoch for shard, (holder, epoch) in held.items() if holder.controller == self._me.controller},
            gained,
        )
        if gained:
            await self._gained(gained)
            if self._clock() < self._valid_until:
                self.epochs |= gained
                self.since |= dict.fromkeys(gained, self._clock())
                self._holders |= {shard: (self._me.controller, epoch) for shard, epoch in gained.items()}
            else:
                self._lost(list(gained))

    async def _take_duties(self) -> None:
        """Take those of our duties that nobody does; let go of those that another does, as it seems."""
        if not self._duties:
            return
        found = {entry.key.removeprefix(DUTY): entry for entry in (await self._store.range(DUTY)).entries}
        self._doers = {
            name: msgspec.msgpack.decode(entry.value, type=Holder).controller for name, entry in found.items()
        }
        for name, since in list(self._duties.items()):
            entry = found.get(name)
            if entry is not None and entry.modified == since:
                continue
            self._duties[name] = 0
            if entry is not None and self._doers[name] != self._me.controller:
                continue
            try:
                taken = await self._store.txn(
                    [Put(DUTY + name, self._value(), self._lease)],
                    expect={DUTY + name: entry.modified if entry is not None else 0},
                )
            except Conflict:
                continue  # another was faster
            await self._reached(taken)  # what the one before us did is known before anything follows from it
            self._duties[name] = taken
            self._doers[name] = self._me.controller
            log.info("doing what one controller does", extra={"duty": name})

    async def _let_go(self, ours: dict[int, int], gained: dict[int, int]) -> None:
        """Shards under our name that we neither lead nor took now are more than our share: others shall have them."""
        stray = {shard_key(s): epoch for s, epoch in ours.items() if s not in self.epochs and s not in gained}
        if stray:
            try:
                await self._store.txn([Delete(key) for key in stray], expect=stray)
            except Conflict:
                log.debug("somebody has taken them meanwhile")

    async def _pass_baton(self, members: list[str]) -> None:
        """Take the baton when nobody has it; pass it on when it was ours for long enough."""
        entry = await self._store.get(BATON)
        holder = entry.value.decode() if entry is not None else ""
        if holder != self._me.controller:
            self._set_baton(False)
        if holder not in members:
            next_holder = self._me.controller
        elif holder == self._me.controller and not self.baton:
            # From before a restart, or passed to us: only once we know of all that was done with it.
            assert entry is not None
            await self._reached(entry.modified)
            self._set_baton(True)
            return
        elif self.baton and len(members) > 1 and self._clock() >= self._baton_since + BATON_TIME:
            next_holder = members[(members.index(self._me.controller) + 1) % len(members)]
        else:
            return
        self._set_baton(False)
        await self._quiet()
        try:
            await self._store.txn(
                [Put(BATON, next_holder.encode())], expect={BATON: entry.modified if entry is not None else 0}
            )
        except Conflict:
            log.debug("another was faster at the baton")

    def _set_baton(self, ours: bool) -> None:
        if ours != self.baton:
            self.baton = ours
            self._baton_since = self._clock()
            self._moved()

    def _value(self) -> bytes:
        return msgspec.msgpack.encode(self._me)


def shard_key(shard: int) -> str:
    """The key of a shard's leader."""
    return f"shard/{shard:04d}"
