"""What hardware there is, in the store and at hand: BMCs, their parts, their history, what cannot be true.

One small record per BMC is kept in memory and level with the store (``Known``), so that several controllers of
Strata agree; the parts are read when they are asked for. A record is written only when something has changed. What
does not fit together is reported and never resolved by guessing: above all, a BMC that is suddenly somebody
else does not take the place of the one that was there before a person accepts it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from strata.core.errors import NotFound
from strata.hardware.bmc.protocol import Severity
from strata.hardware.discovery.sources import bmc_of
from strata.hardware.events.records import EventSink, HardwareEvent
from strata.hardware.inventory.changes import changes, is_stranger, unwell, with_unread
from strata.hardware.inventory.index import Mark, Marks, Serials, hashed, marks
from strata.hardware.inventory.records import Change, ChangeKind, Component, Found, Known, Machine, Parts, Place
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)

BMCS = "hardware/controller/"
PARTS = "hardware/parts/"

LARGEST = 1_000_000
"""Bytes that one record, or all of one transaction, may take; etcd takes 1.5 MB."""

known_of = msgspec.msgpack.Decoder(Known).decode
"""A BMC as it was written down."""
_decode_parts = msgspec.msgpack.Decoder(Parts).decode


def event(change: Change, node_at: Callable[[str], str]) -> HardwareEvent:
    """What others are told of a change. ``node_at``: the name of the node at an address."""
    severity: Severity = "ok"
    if change.what == "health":
        severity = change.new  # type: ignore[assignment]
    elif change.what in ("removed", "swapped", "moved"):
        severity = "warning"
    elif change.what == "bmc-swapped" and not change.detail.startswith("accepted"):
        severity = "critical"
    what = f"{change.kind or 'BMC'} {change.what}: {change.detail}"
    values = f" ({change.old or 'nothing'} → {change.new or 'nothing'})" if change.old or change.new else ""
    return HardwareEvent(
        time=change.time,
        severity=severity,
        message=what + values,
        source="discovery",
        key=f"{'health' if change.what == 'health' else 'inventory'}/{change.component or 'controller'}",
        node=change.node or node_at(change.machine or change.bmc),
        bmc=change.bmc,
    )


def summary(found: Found, before: Known | None, told: bytes) -> Known:
    """What is at hand of a BMC. ``told``: the digest of its account as it came."""
    counts: dict[str, int] = {}
    for part in found.components:
        counts[part.kind] = counts.get(part.kind, 0) + 1
    managers = tuple(part.id for part in found.components if part.kind == "manager")
    macs = [mac for part in found.components if part.parent in managers for mac in part.macs]
    return Known(
        address=found.address,
        identity=found.identity,
        first=before.first if before else found.time,
        seen=found.time,
        digest=told,
        machines=found.machines,
        counts=counts,
        ports=len(found.ports),
        macs=tuple(dict.fromkeys(macs)),
        serials=hashed({part.serial for part in found.components if part.serial}),
        trouble=found.trouble,
        places=before.places if before else {},
    )


def digest(found: Found) -> bytes:
    """Of everything but when it was seen and whether it is on."""
    machines = tuple(msgspec.structs.replace(machine, power="") for machine in found.machines)
    same = msgspec.structs.replace(found, time=0.0, machines=machines)
    return blake2b(_encode(same), digest_size=12).digest()


def put_known(known: Known) -> Put:
    """Write down a BMC."""
    return Put(BMCS + known.address, _encode(known))


def packed(found: Found) -> tuple[Found, bytes]:
    """The parts as they are stored, of which there may be fewer than were found: some BMCs make them up."""
    while True:
        # Parts of one machine are much alike: a fifth of the bytes, at a cost that nobody notices.
        parts = Parts(components=found.components, ports=found.ports, fabric=found.fabric)
        data = zlib.compress(_encode(parts), 1)
        if len(data) <= LARGEST:
            return found, data
        found = msgspec.structs.replace(
            found,
            components=found.components[: len(found.components) // 2],
            ports=found.ports[: len(found.ports) // 2],
            trouble=("/: it tells of more parts than are kept", *found.trouble[:8]),
        )


def unpacked(value: bytes) -> Parts:
    """Parts as they were written down."""
    return _decode_parts(zlib.decompress(value))


HISTORY = "hardware-history/"
_PAGE = 500
_FAR = 10**16
"""Microseconds; later than any time that is written here."""

_encode = msgspec.msgpack.Encoder().encode
_decode_changes = msgspec.msgpack.Decoder(tuple[Change, ...]).decode


def put_history(changes: Sequence[Change]) -> Put:
    """Write what has changed at one BMC at one time."""
    return Put(f"{_key(changes[0].time)}/{changes[0].bmc}", _encode(tuple(changes)))


def _key(time: float) -> str:
    return f"{HISTORY}{_FAR - int(time * 1e6):017d}"


POLLED = frozenset(("fan", "power-supply"))
"""Parts of nodes' BMCs that are looked at all the time: how they are is told by whoever does that."""

SEEN_EVERY = 3600.0
"""Seconds after which the store hears that an unchanged BMC was seen again."""

Outcome = Literal["new", "changed", "same", "swapped"]


class Recorded(NamedTuple):
    """What became of one BMC's account."""

    address: str
    outcome: Outcome
    changes: tuple[Change, ...] = ()


class Clash(NamedTuple):
    """Something that several BMCs claim to have alone."""

    mark: Mark
    value: str
    holders: tuple[str, ...]
    since: float


class Inventory:
    """All discovered hardware. ``start`` it, and ``stop`` it."""

    def __init__(
        self,
        store: Store,
        *,
        sink: EventSink = lambda events: None,
        node_at: Callable[[str], str] = lambda address: "",
    ) -> None:
        self._store = store
        self._sink = sink
        self._node_at = node_at
        self._known: dict[str, Known] = {}
        self._sorted: list[str] | None = None
        self._swapped: set[str] = set()
        self._marks = Marks()
        self._serials = Serials()
        self._shared: dict[tuple[tuple[str, int], ...], Mapping[str, int]] = {}
        self._followed = Followed(store, BMCS, self._take, self._clear)
        self.start, self.stop = self._followed.start, self._followed.stop

    # -- looking

    def __len__(self) -> int:
        return len(self._known)

    def addresses(self) -> Sequence[str]:
        """Of every BMC, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self._known)
        return self._sorted

    def get(self, address: str) -> Known | None:
        """The BMC at an address (which may also name one of its systems)."""
        return self._known.get(address.rstrip("/")) or self._known.get(bmc_of(address)[0])

    def machine(self, bmc: str) -> tuple[Known, Machine] | None:
        """The machine that a node's ``bmc`` names; None: it was not discovered, or it is not clear which it is."""
        known = self.get(bmc)
        if known is None:
            return None
        system = bmc_of(bmc)[1]
        found = [machine for machine in known.machines if not system or machine.id == system]
        return (known, found[0]) if len(found) == 1 else None

    def holders(self, mark: Mark, value: str) -> tuple[str, ...]:
        """BMCs with this MAC, serial, UUID or place."""
        return self._marks.holders((mark, value))

    def clashes(self) -> Iterator[Clash]:
        """What several BMCs claim to have alone."""
        for mark, value, holders in self._marks.clashes():
            yield Clash(mark, value, holders, max(self._known[holder].first for holder in holders))

    def strangers(self) -> Iterator[Known]:
        """BMCs in whose place somebody else answers."""
        for address in sorted(self._swapped):
            yield self._known[address]

    async def parts(self, address: str) -> Parts:
        """The parts of one BMC; none where there is none."""
        known = self.get(address)
        entry = await self._store.get(PARTS + (known.address if known else address))
        return unpacked(entry.value) if entry else Parts()

    async def walk(self, after: str = "") -> AsyncIterator[list[tuple[Known, Parts]]]:
        """All BMCs with their parts, by address, some at a time."""
        while True:
            page = await self._store.range(PARTS, after=PARTS + after if after else "", limit=200)
            found = ((entry.key.removeprefix(PARTS), entry.value) for entry in page.entries)
            yield [(self._known[address], unpacked(value)) for address, value in found if address in self._known]
            if not page.more:
                return
            after = page.entries[-1].key.removeprefix(PARTS)

    # -- taking in

    async def record(
        self, founds: Sequence[Found], *, accept: Collection[str] = (), touch: bool = False
    ) -> list[Recorded]:
        """Take in what was found. ``accept``: addresses at which another BMC than before is right. ``touch``:
        write down when it was seen even if nothing has changed."""
        ops: list[Op] = []
        results: list[Recorded] = []
        touched: list[Known] = []
        for found in founds:
            known = self._known.get(found.address)
            why = is_stranger(known, found) if known else ""
            if known is not None and why and found.address not in accept:
                ops += self._note_stranger(known, found)
                results.append(Recorded(found.address, "swapped", (self._change(found, "bmc-swapped", why),)))
                continue
            result, record = await self._renew(known, found, why, ops, touch)
            results.append(result)
            if record is not None:
                touched.append(record)
        clashed = self._clashes_of(self._known[one.address] for one in touched if one.address in self._known)
        await self._write(ops)
        self._tell(results, touched)
        self._tell_resolved(clashed)
        return results

    async def place(self, places: Mapping[str, Mapping[str, Place]]) -> None:
        """Write down where machines are: address of the BMC → id of the machine → place."""
        ops: list[Op] = []
        for address, found in places.items():
            known = self._known.get(address)
            if known is not None and dict(known.places) != dict(found):
                ops.append(put_known(msgspec.structs.replace(known, places=dict(found))))
        await self._write(ops)

    async def forget(self, address: str, author: str, ledger: Ledger) -> None:
        """Drop a BMC and its parts; its history stays."""
        known = self._known.get(address.rstrip("/"))
        if known is None:
            raise NotFound(f"no such BMC: {address[:80]}", hint="list them with: strata hardware list")
        key = BMCS + known.address
        clashed, parts = self._clashes_of([known]), await self.parts(known.address)
        revision = await ledger.commit(
            author, "hardware.forget", known.address, [Delete(key), Delete(PARTS + known.address)]
        )
        self._followed.wrote(key, None, revision)
        self._tell_resolved(clashed)
        # As far as anybody knows, there is nothing there any more that could be unwell.
        gone = changes(parts.components, Found(address=known.address, identity=known.identity, time=time.time()))
        if over := [event(self._named(change), self._node_at) for change in gone if change.what == "health"]:
            self._sink(over)

    async def history(
        self, *, since: float | None, limit: int, wanted: Callable[[Change], bool] = lambda change: True
    ) -> list[Change]:
        """The last changes that are wanted, newest first."""
        found: list[Change] = []
        after, more = "", True
        while more:
            page = await self._store.range(HISTORY, after=after, limit=_PAGE)
            for change in (change for entry in page.entries for change in _decode_changes(entry.value)):
                if since is not None and change.time < since:
                    return found
                if wanted(change):
                    found.append(change)
                    if len(found) >= limit:
                        return found
            more = page.more
            after = page.entries[-1].key if page.entries else after
            await asyncio.sleep(0)
        return found

    async def prune(self, before: float) -> int:
        """Forget history from before a time; how many records."""
        gone = 0
        while True:
            page = await self._store.range(HISTORY, after=_key(before), limit=min(_PAGE, self._store.max_ops))
            if page.entries:
                await self._store.txn([Delete(entry.key) for entry in page.entries])
                gone += len(page.entries)
            if not page.more:
                return gone

    async def _renew(
        self, known: Known | None, found: Found, swapped: str, ops: list[Op], touch: bool
    ) -> tuple[Recorded, Known | None]:
        """Write what is new of one BMC into ``ops``."""
        told = digest(found)
        if known is not None and known.digest == told and known.stranger is None:
            if touch or found.time - known.seen > SEEN_EVERY:
                ops.append(put_known(msgspec.structs.replace(known, seen=found.time)))
            else:
                self._known[found.address] = msgspec.structs.replace(known, seen=found.time)
            return Recorded(found.address, "same"), None
        before = await self.parts(found.address) if known else Parts()
        if swapped:
            happened = [self._change(found, "bmc-swapped", f"accepted: {swapped}")]
            happened += [change for change in changes(before.components, found) if change.what == "health"]
        else:
            found = with_unread(found, before)
            happened = changes(before.components, found) if known else [self._added(found), *unwell(found)]
            if known is not None and known.stranger is not None:
                happened.append(self._change(found, "changed", "the one from before answers again"))
        found, parts = packed(found)
        happened = [self._named(change) for change in await self._moved(happened, before, found)]
        record = summary(found, known, told)
        ops += [put_known(record), Put(PARTS + found.address, parts)]
        if happened:
            ops.append(put_history(happened))
        return Recorded(found.address, "changed" if known else "new", tuple(happened)), record

    async def _moved(self, happened: list[Change], before: Parts, found: Found) -> list[Change]:
        """Tell parts that came from another BMC from new ones; a machine with its parts is one move."""
        had = {part.serial for part in before.components}
        fresh = {part.serial: part for part in found.components if part.serial and part.serial not in had}
        if not fresh:
            return happened
        result = list(happened)
        for other in sorted(self._serials.find(hashed(fresh)) - {found.address}):
            theirs = (await self.parts(other)).components if other in self._known else ()
            moved = [mine for part in theirs if (mine := fresh.get(part.serial)) is not None and mine.kind == part.kind]
            ids = {part.id for part in moved}
            result = [c for c in result if not (c.what == "added" and c.component in ids)]
            machines = [part for part in moved if part.kind == "system"]
            rest = len(moved) - len(machines)
            for part in machines or moved:
                detail = f"serial {part.serial}" + (f", with {rest} other parts" if machines and rest else "")
                result.append(self._change(found, "moved", detail, part=part, old=other))
        return result

    def _note_stranger(self, known: Known, found: Found) -> list[Op]:
        """Remember who else answers there; nothing else of the record changes."""
        if known.stranger == found.identity:
            return []
        change = self._change(found, "bmc-swapped", "not accepted: " + is_stranger(known, found))
        noted = msgspec.structs.replace(known, stranger=found.identity, stranger_since=found.time)
        return [put_known(noted), put_history([self._named(change)])]

    def _added(self, found: Found) -> Change:
        what = " ".join(filter(None, (found.identity.vendor, found.identity.model)))
        detail = f"{what or 'no name'}, {len(found.components)} parts"
        return self._change(found, "added", detail)

    def _change(
        self,
        found: Found,
        what: ChangeKind,
        detail: str,
        *,
        part: Component | None = None,
        old: str = "",
    ) -> Change:
        return Change(
            time=found.time,
            what=what,
            bmc=found.address,
            machine=found.machines[0].address if len(found.machines) == 1 else "",
            component=part.id if part else "",
            kind=part.kind if part else "",
            old=old,
            new=found.address if old else found.identity.serial,
            detail=detail,
        )

    def _named(self, change: Change) -> Change:
        node = self._node_at(change.machine or change.bmc)
        return msgspec.structs.replace(change, node=node) if node else change

    # -- the store

    async def _write(self, ops: Sequence[Op]) -> None:
        """Write in as many transactions as it takes. What belongs to one BMC may be apart for a moment, never
        half-written."""
        batch: list[Op] = []
        size = 0
        for op in ops:
            weight = len(op.value) if isinstance(op, Put) else 0
            if batch and (len(batch) >= self._store.max_ops or size + weight > LARGEST):
                await self._commit(batch)
                batch, size = [], 0
            batch.append(op)
            size += weight
        if batch:
            await self._commit(batch)

    async def _commit(self, batch: Sequence[Op]) -> None:
        revision = await self._store.txn(batch)
        for op in batch:
            if op.key.startswith(BMCS):
                self._followed.wrote(op.key, op.value if isinstance(op, Put) else None, revision)

    def _take(self, key: str, value: bytes | None) -> None:
        address = sys.intern(key.removeprefix(BMCS))
        old = self._known.pop(address, None)
        new = None
        if value is not None:
            try:
                new = self._lean(known_of(value), address)
            except msgspec.MsgspecError:
                log.error("unreadable record of a BMC", extra={"key": key})
        if old is None and new is None:
            return
        self._marks.put(old, new)
        if (old is None) != (new is None):
            self._sorted = None
        if new is not None:
            self._known[address] = new
        if new is not None and new.stranger is not None:
            self._swapped.add(address)
        else:
            self._swapped.discard(address)

    def _clear(self) -> None:
        self._known, self._sorted, self._swapped = {}, None, set()
        self._marks, self._serials = Marks(), Serials()

    def _lean(self, known: Known, address: str) -> Known:
        """``known`` with the texts that many share kept once, and without what is in the index."""
        self._serials.add(address, known.serials)
        counts = self._shared.setdefault(tuple(sorted(known.counts.items())), known.counts)
        one = known.identity
        identity = msgspec.structs.replace(
            one, vendor=sys.intern(one.vendor), model=sys.intern(one.model), firmware=sys.intern(one.firmware)
        )
        return msgspec.structs.replace(known, address=address, identity=identity, counts=counts)

    # -- telling

    def _clashes_of(self, bmcs: Iterable[Known]) -> dict[tuple[Mark, str], tuple[str, ...]]:
        """What these claim to have alone, and others do as well: who does."""
        found = {mark for known in bmcs for mark in marks(known)}
        return {mark: holders for mark in found if (holders := self._marks.clash(mark))}

    def _tell_resolved(self, clashed: Mapping[tuple[Mark, str], tuple[str, ...]]) -> None:
        """Tell what only one claims now, to all who did: which of them the alert was about depends on who came last."""
        over = [
            self._clash_event(mark, value, holder, "ok", f"{mark} {value} is claimed by one BMC alone again")
            for (mark, value), holders in sorted(clashed.items())
            if not self._marks.clash((mark, value))
            for holder in holders
        ]
        if over:
            self._sink(over)

    def _clash_event(self, mark: Mark, value: str, holder: str, severity: Severity, message: str) -> HardwareEvent:
        return HardwareEvent(
            time=time.time(),
            severity=severity,
            message=message,
            source="discovery",
            key=f"inventory/duplicate-{mark}/{value}",
            bmc=holder,
            node=self._node_at(holder),
        )

    def _tell(self, results: Sequence[Recorded], touched: Sequence[Known]) -> None:
        events = [
            event(change, self._node_at)
            for result in results
            for change in result.changes
            if not (change.what == "health" and change.kind in POLLED and change.node)
        ]
        for mark, value in sorted({mark for known in touched for mark in marks(known)}):
            holders = self._marks.clash((mark, value))
            if not holders:
                continue
            said = f"{mark} {value} is claimed by {len(holders)} BMCs: {', '.join(holders[:4])}"
            events.append(self._clash_event(mark, value, holders[-1], "warning", said))
        if events:
            self._sink(events)
