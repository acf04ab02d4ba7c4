"""Discovery as a tracked operation: look, write down, place, adopt. Cancellable between steps, resumed where it was."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import zlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core import intset
from strata.core.errors import BadRequest, NotFound
from strata.fleet.nodes.view import natural
from strata.fleet.operations.records import Step
from strata.fleet.registry.edits import Edits
from strata.hardware.discovery.adopt import Adopter
from strata.hardware.discovery.locations import Locations
from strata.hardware.discovery.records import DiscoverRequest, DiscoveryReport
from strata.hardware.discovery.sources import Candidate, address_of, bare, bmc_of, merged, read_csv, read_list
from strata.hardware.discovery.sources_dhcp import read_leases
from strata.hardware.discovery.sources_scan import range_of, scan, search
from strata.hardware.discovery.sweep import Discovery, Look
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.records import Found, Known, Machine, Parts, Place
from strata.hardware.inventory.store import Inventory
from strata.store.protocol import Delete, Put, Store

INPUT = "hardware-input/"
REPORT = "hardware-report/"
_PIECE = 500_000


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one discovery is to do."""

    author: str
    begun: float
    candidates: tuple[Candidate, ...] = ()
    ranges: tuple[str, ...] = ()
    ssdp: bool = False
    mapping: str = ""
    accept: frozenset[str] = frozenset()
    """Without what they speak."""
    adopt: bool = False
    name: str = ""

    @property
    def addresses(self) -> list[str]:
        """Of the BMCs that were given: several candidates may be behind one."""
        return list(dict.fromkeys(bmc_of(candidate.address)[0] for candidate in self.candidates))

    @property
    def total(self) -> int:
        """Addresses to look at."""
        return len(self.addresses) + sum(len(range_of(text)) for text in self.ranges)


def candidates_of(request: DiscoverRequest, extra: Sequence[str]) -> list[Candidate]:
    """All candidates. Raises ``BadRequest`` before anything is begun; what is wrong among ``extra``, which nobody gave
    now, is left out."""
    if request.mapping:
        Locations().read(request.mapping)
    from_csv = read_csv(request.csv) if request.csv else []
    leases = [lease.ip for lease in read_leases(request.leases) if lease.is_bmc] if request.leases else []
    known = []
    for address in extra:
        with contextlib.suppress(BadRequest):
            known.append(Candidate(address=address_of(address)))
    return merged(from_csv, read_list((*request.addresses, *request.accept, *leases)), known)


async def save_plan(store: Store, plan: Plan) -> str:
    """Keep a plan; the token by which it is found."""
    token = f"{int(plan.begun):011d}-{secrets.token_hex(4)}"
    data = await asyncio.to_thread(lambda: zlib.compress(msgspec.msgpack.encode(plan), 1))
    for at in range(0, len(data), _PIECE):
        await store.txn([Put(f"{INPUT}{token}/{at // _PIECE:06d}", data[at : at + _PIECE])])
    return token


async def load_plan(store: Store, token: str) -> Plan:
    """A plan that was kept."""
    pieces = (await store.range(f"{INPUT}{token}/")).entries
    if not pieces:
        raise NotFound("what this discovery was to do is not kept any more", where="discovery", hint="start it anew")
    data = b"".join(piece.value for piece in pieces)
    return await asyncio.to_thread(lambda: msgspec.msgpack.decode(zlib.decompress(data), type=Plan))


async def load_report(store: Store, token: str) -> DiscoveryReport:
    """What a discovery has come to."""
    entry = await store.get(REPORT + token)
    return msgspec.msgpack.decode(entry.value, type=DiscoveryReport) if entry else DiscoveryReport()


async def prune(store: Store, before: float) -> None:
    """Forget the plans and reports of discoveries that began before a time."""
    for prefix in (INPUT, REPORT):
        keys = [entry.key for entry in (await store.range(prefix)).entries]
        old = [Delete(key) for key in keys if key.removeprefix(prefix) < f"{int(before):011d}"]
        for at in range(0, len(old), store.max_ops):
            await store.txn(old[at : at + store.max_ops])


KIND = "hardware.discover"
_STEP = 64
"""BMCs that are written down at a time."""
_CHUNK = 4096
"""Addresses of a range that are scanned at a time."""
_ADOPT = 500
_MOST_REFUSED = 100
_MOST_TYPES = 100


class DiscoverWork(msgspec.Struct, frozen=True):
    """Does the operations of kind ``hardware.discover``."""

    store: Store
    edits: Edits
    nodes: NodesByBmc
    inventory: Inventory
    discovery: Discovery

    async def __call__(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        """All steps from ``position`` on."""
        token = str(arguments["plan"])
        run = _Run(self, await load_plan(self.store, token), token, await load_report(self.store, token))
        phase, at = position or (0, None)
        for number, steps in enumerate((run.addresses, run.ranges, run.local, run.places)):
            if number < phase:
                continue
            async with contextlib.aclosing(steps(at if number == phase else None)) as found:
                async for step in found:
                    yield msgspec.structs.replace(step, position=(number, step.position))
        await run.end()
        pieces = (await self.store.range(f"{INPUT}{token}/")).entries
        await self.store.txn([Delete(piece.key) for piece in pieces])


class _Run:
    """One discovery, as far as it is done here."""

    def __init__(self, work: DiscoverWork, plan: Plan, token: str, report: DiscoveryReport) -> None:
        self._work = work
        self._plan = plan
        self._token = token
        self._report = report

    # -- the phases; each yields steps whose position is its own

    async def addresses(self, done: Any) -> AsyncGenerator[Step, None]:
        """Those that were given. Position: the numbers of those that are done, as runs."""
        given = self._plan.addresses
        finished = np.zeros(len(given), dtype=np.bool_)
        for first, last in done or ():
            finished[first : last + 1] = True
        left = [i for i in range(len(given)) if not finished[i]]
        number = {given[i]: i for i in left}
        async with contextlib.aclosing(_some(self._work.discovery.look([given[i] for i in left]))) as groups:
            async for looks in groups:
                failed = await self._take(looks)
                finished[[number[look.address] for look in looks]] = True
                runs = intset.pack(np.flatnonzero(finished))
                yield Step(position=runs, done=len(looks) - len(failed), failed=failed)

    async def ranges(self, at: Any) -> AsyncGenerator[Step, None]:
        """Ranges of addresses. Position: which range, how far in it. Silence there is no failure."""
        which, offset = at or (0, 0)
        for number, text in enumerate(self._plan.ranges):
            if number < which:
                continue
            one = range_of(text)
            for begin in range(offset if number == which else 0, len(one), _CHUNK):
                hosts = one.part(begin, begin + _CHUNK)
                urls = await scan(hosts, one, settings=self._work.discovery.settings.scan)
                failed = [
                    bad async for looks in _some(self._work.discovery.look(urls)) for bad in await self._take(looks)
                ]
                end = begin + len(hosts)
                yield Step(position=(number, end), done=len(hosts) - len(failed), failed=failed)

    async def local(self, at: Any) -> AsyncGenerator[Step, None]:
        """Whoever answers a search of the local networks."""
        if self._plan.ssdp and not at:
            urls = await search()
            failed = [bad async for looks in _some(self._work.discovery.look(urls)) for bad in await self._take(looks)]
            yield Step(position=True, failed=failed)

    async def places(self, after: Any) -> AsyncGenerator[Step, None]:
        """Say where the machines are, and make nodes of them. Position: the last BMC that is done."""
        given = {bare(candidate.address): candidate for candidate in self._plan.candidates}
        if not self._plan.mapping and not self._plan.adopt and not any(c.location or c.name for c in given.values()):
            return
        locations = await self._locations()
        adopter = Adopter(self._work.edits, self._work.nodes, self._work.inventory, self._plan.author, self._plan.name)
        # Numbers are given in this order: 10.1.0.2 before 10.1.0.10.
        seen = await asyncio.to_thread(
            sorted, [a for a in self._work.inventory.addresses() if self._seen(a)], key=natural
        )
        if after:
            seen = seen[bisect_right(seen, natural(after), key=natural) :]
        for begin in range(0, len(seen), _ADOPT):
            part = seen[begin : begin + _ADOPT]
            found = await self._placed(part, locations)
            if self._plan.adopt:
                await self._adopt(adopter, found, given)
            await self._save()
            yield Step(position=part[-1])

    async def end(self) -> None:
        """All is done: count what does not fit together."""
        conflicts = sum(1 for _ in self._work.inventory.clashes()) + sum(1 for _ in self._work.inventory.strangers())
        self._report = msgspec.structs.replace(self._report, conflicts=conflicts)
        await self._save()

    # -- what they share

    async def _take(self, looks: Sequence[Look]) -> list[tuple[str, str]]:
        """Write down what was seen; the failures."""
        founds = [look.found for look in looks if look.found is not None]
        if founds:
            # Nobody stays on the event loop for long: encoding and packing of some BMCs is milliseconds.
            accept = [found.address for found in founds if bare(found.address) in self._plan.accept]
            results = await self._work.inventory.record(founds, accept=accept, touch=self._touch)
        else:
            results = []
        outcomes = [result.outcome for result in results]
        before = self._report
        self._report = msgspec.structs.replace(
            before,
            found=before.found + len(founds),
            new=before.new + outcomes.count("new"),
            changed=before.changed + outcomes.count("changed"),
            swapped=before.swapped + outcomes.count("swapped"),
            silent=before.silent + sum(look.silent for look in looks),
            failed=before.failed + sum(look.found is None and not look.silent for look in looks),
            troubled=before.troubled + sum(bool(found.trouble) for found in founds),
            not_understood=_named(before.not_understood, founds),
        )
        await self._save()
        return [
            *((look.address, look.why) for look in looks if look.found is None),
            *((result.address, _swapped(result.address)) for result in results if result.outcome == "swapped"),
        ]

    @property
    def _touch(self) -> bool:
        """Whether ``places`` will ask who was seen, perhaps in another process than this."""
        return self._plan.adopt or bool(self._plan.mapping)

    def _seen(self, address: str) -> bool:
        known = self._work.inventory.get(address)
        return known is not None and known.seen >= self._plan.begun

    async def _locations(self) -> Locations:
        locations = Locations()
        locations.expect(self._plan.candidates)
        if self._plan.mapping:
            await asyncio.to_thread(locations.read, self._plan.mapping)
        for address in self._work.inventory.addresses():
            known = self._work.inventory.get(address)
            if known is not None and known.ports and known.counts.get("switch"):
                parts = await self._work.inventory.parts(address)
                locations.wire(parts.ports, {p.id: p for p in parts.components if p.kind == "switch"})
        return locations

    async def _placed(self, addresses: Sequence[str], locations: Locations) -> list[tuple[Known, Machine, Place]]:
        found: list[tuple[Known, Machine, Place]] = []
        places: dict[str, dict[str, Place]] = {}
        for address in addresses:
            known = self._work.inventory.get(address)
            if known is None or (known.stranger is not None and not known.machines):
                continue
            parts = await self._work.inventory.parts(address) if known.machines else Parts()
            for machine in known.machines:
                place = locations.find(address, machine, parts, alone=len(known.machines) == 1)
                found.append((known, machine, place))
                if place != Place():
                    places.setdefault(address, {})[machine.id] = place
        await self._work.inventory.place(places)
        located = sum(bool(place.location) for _, _, place in found)
        self._report = msgspec.structs.replace(self._report, located=self._report.located + located)
        return found

    async def _adopt(
        self, adopter: Adopter, found: Sequence[tuple[Known, Machine, Place]], given: Mapping[str, Candidate]
    ) -> None:
        result = await adopter.adopt(found, given)
        await self._work.edits.registry.reached(await self._work.store.revision())
        before = self._report
        self._report = msgspec.structs.replace(
            before,
            adopted=before.adopted + result.created,
            updated=before.updated + result.updated,
            refused=(*before.refused, *result.refused)[:_MOST_REFUSED],
            refused_count=before.refused_count + len(result.refused),
        )

    async def _save(self) -> None:
        await self._work.store.txn([Put(REPORT + self._token, msgspec.msgpack.encode(self._report))])


async def _some(looks: AsyncGenerator[Look, None]) -> AsyncGenerator[list[Look], None]:
    """Looks in groups: so many, or those of half a second."""
    group: list[Look] = []
    begun = time.monotonic()
    async with contextlib.aclosing(looks):
        async for look in looks:
            group.append(look)
            if len(group) >= _STEP or time.monotonic() - begun > 0.5:
                yield group
                group, begun = [], time.monotonic()
    if group:
        yield group


def _named(before: Mapping[str, int], founds: Sequence[Found]) -> Mapping[str, int]:
    """``before``, with the parts that are kept under their BMCs' own names; a BMC may make up any number of these."""
    counts = dict(before)
    for part in (part for found in founds for part in found.components if part.kind == "other"):
        name = part.shape.partition(".")[0] or "other"
        name = name if name in counts or len(counts) < _MOST_TYPES else "more"
        counts[name] = counts.get(name, 0) + 1
    return counts


def _swapped(address: str) -> str:
    return (
        "another BMC than before answers there; nothing of it was taken over "
        f"(strata hardware discover --accept {address})"
    )
