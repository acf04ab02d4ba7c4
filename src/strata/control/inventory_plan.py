"""What a discovery is to do, and what it has come to. A plan may be far larger than a job's row holds, so it is kept
beside it until the job is over."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import zlib
from collections.abc import Sequence

import msgspec

from strata.control.machine_views.discovery import DiscoverRequest, DiscoveryReport
from strata.core.errors import BadRequest, NotFound
from strata.hardware.discovery.locations import Locations
from strata.hardware.discovery.sources import Candidate, address_of, controller_of, merged, read_csv, read_list
from strata.hardware.discovery.sources_dhcp import read_leases
from strata.hardware.discovery.sources_scan import range_of
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
        """Of the controllers that were given: several candidates may be behind one."""
        return list(dict.fromkeys(controller_of(candidate.address)[0] for candidate in self.candidates))

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
    leases = [lease.ip for lease in read_leases(request.leases) if lease.is_controller] if request.leases else []
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


async def save_report(store: Store, token: str, report: DiscoveryReport) -> None:
    """Keep what it has come to."""
    await store.txn([Put(REPORT + token, msgspec.msgpack.encode(report))])


async def drop_plan(store: Store, token: str) -> None:
    """All of it is done."""
    await store.txn([Delete(entry.key) for entry in (await store.range(f"{INPUT}{token}/")).entries])


async def prune(store: Store, before: float) -> None:
    """Forget the plans and reports of discoveries that began before a time."""
    for prefix in (INPUT, REPORT):
        keys = [entry.key for entry in (await store.range(prefix)).entries]
        old = [Delete(key) for key in keys if key.removeprefix(prefix) < f"{int(before):011d}"]
        for at in range(0, len(old), store.max_ops):
            await store.txn(old[at : at + store.max_ops])
